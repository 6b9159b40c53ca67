"""A smaller batch: the size from the plan, wherever the cell says the size."""

from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.batches import resized, size_for_shapes, sizes_that_ran
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.fitting import (
    batch_to_try,
    is_guess,
    is_planned,
    saving_between,
    step_at,
)
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import LayerFacts, ModelFacts, Named
from oommagic.report import Holding, PlannedBatch
from oommagic.units import MIB, format_bytes

_STEP_OF_16 = replace(
    STEP_OF_96,
    batch=32,
    forecast=None if STEP_OF_96.forecast is None else replace(STEP_OF_96.forecast, max_batch=16),
)
"""The same with Keras's own batch size, which is too large, too."""
_TABLE = (44_000, 256)
_UPDATE_OF_A_TABLE = replace(
    STEP_OF_96,
    forecast=None,
    batch=32,
    device_needs_bytes=294 * MIB,
    device_limit_bytes=260 * MIB,
    asked_bytes=43 * MIB,
    asked_shape=_TABLE,
    has_all_activations=True,
    holdings=(
        Holding("weights", 43 * MIB, layer="embedding", owner="model", shape=_TABLE),
        Holding("optimizer slots", 43 * MIB, owner="model.optimizer", shape=_TABLE),
        Holding("workspace", 86 * MIB, layer="adam", shape=_TABLE, count=2),
        Holding("rounding", 58 * MIB, layer="adam"),
        Holding("rounding", 19 * MIB, layer="embedding", owner="model.optimizer"),
        Holding("gradients", 2 * MIB, layer="lstm", shape=(32, 64, 256)),
    ),
    names={
        "model": Named(
            "model",
            model=ModelFacts((LayerFacts("embedding", "Embedding", 43 * MIB),), optimizer="Adam"),
        )
    },
)
"""A first step that ran out amid the update of a large table, whatever its batch."""
_LEAST_OF_WHAT_FITS = 4
"""A fixed shape becomes no smaller than a fourth of what fits: a prime has no divisor but 1."""


class SmallerBatch(Rule):
    """Batches of a size that fits."""

    name = "smaller-batch"
    title = "A smaller batch"
    what = (
        "Where the training step does not fit the device, it takes the largest batch that does, "
        "by the plan, and writes it where the cell says the size: the argument of `fit` or "
        "`batch`, the name that stands for it, or what is passed to the function that trains. The "
        "`batch_shape` of a model that takes no other changes with it, to a divisor, which divides "
        "the data, too; where that is far below what fits, or layers are `stateful`, it is a hint. "
        "Where the name stands for more, as in `Dense(n)` or `np.zeros(n)`, the number stands "
        "where it is the batch's. A `fit` of arrays without a size has Keras's, 32."
    )
    why = (
        "Activations, their gradients and the data grow with the batch; weights and slots do not. "
        "So a smaller batch is the surest way to a step that fits, and it needs no guessing: the "
        "peak of every size is known beforehand."
    )
    example = "model.fit(x, y, batch_size=128)"
    instead = "model.fit(x, y, batch_size=96)"
    safety = "changes results"
    fix_safety = (
        "Gradients are means over fewer samples and there are more steps in an epoch, or fewer "
        "samples where `steps_per_epoch` counts the steps: training takes another course. Scale "
        "the learning rate with the batch, or keep the effective batch by gradient accumulation."
    )
    cost = "more, smaller steps"
    effort = 1.5
    causes = STEP
    speaks = (
        Case(
            "model.fit(x, y, batch_size=128)\n",
            STEP_OF_96,
            "model.fit(x, y, batch_size=96)\n",
        ),
        Case(
            "BATCH = 128  # as in the paper\nds = ds.batch(BATCH)\nmodel.fit(ds)\n",
            STEP_OF_96,
            "BATCH = 96  # as in the paper\nds = ds.batch(BATCH)\nmodel.fit(ds)\n",
        ),
        Case(
            "BATCH, EPOCHS = 128, 5\nmodel.fit(x, y, BATCH, EPOCHS)\n",
            STEP_OF_96,
            "BATCH, EPOCHS = 96, 5\nmodel.fit(x, y, BATCH, EPOCHS)\n",
        ),
        Case(
            "def train(batch_size=2**7):\n    model.fit(x, y, batch_size=batch_size)\n\ntrain()\n",
            STEP_OF_96,
            "def train(batch_size=96):\n    model.fit(x, y, batch_size=batch_size)\n\ntrain()\n",
        ),
        Case(
            "size = 128\n\ndef train(data, *, size=64):\n"
            "    for batch in data.batch(size):\n        step(batch)\n\ntrain(ds, size=size)\n",
            STEP_OF_96,
            "size = 96\n\ndef train(data, *, size=64):\n"
            "    for batch in data.batch(size):\n        step(batch)\n\ntrain(ds, size=size)\n",
        ),
        Case(
            "config = {'batch': 128}\nmodel.fit(x, y, batch_size=config['batch'])\n",
            STEP_OF_96,
            "config = {'batch': 128}\nmodel.fit(x, y, batch_size=96)\n",
        ),
        Case(
            "N = 128\nmodel = keras.Sequential([keras.layers.Dense(N)])\n"
            "model.fit(ds.batch(N))  # of N\n",
            STEP_OF_96,
            "N = 128\nmodel = keras.Sequential([keras.layers.Dense(N)])\n"
            "model.fit(ds.batch(96))  # of N\n",
        ),
        Case(
            "BATCH = 128\nx = np.random.rand(BATCH, 32)\nmodel.fit(x, y, batch_size=BATCH)\n",
            STEP_OF_96,
            "BATCH = 128\nx = np.random.rand(BATCH, 32)\nmodel.fit(x, y, batch_size=96)\n",
        ),
        Case(
            "n = 128\ndef images():\n    return tf.image.resize(x, (n, n))\n"
            "model.fit(images(), y, 128)\nmodel.evaluate(images(), y, n)\n",
            STEP_OF_96,
            "n = 128\ndef images():\n    return tf.image.resize(x, (n, n))\n"
            "model.fit(images(), y, 96)\nmodel.evaluate(images(), y, n)\n",
        ),
        Case(
            "n = 128\ndef images(rows):\n    return np.zeros((rows, 8))\n"
            "model.fit(images(n), y, batch_size=n)\n",
            STEP_OF_96,
            "n = 128\ndef images(rows):\n    return np.zeros((rows, 8))\n"
            "model.fit(images(n), y, batch_size=96)\n",
        ),
        Case(
            "n = 128\ndef train(size=n):\n    for at in range(0, len(x), size):\n"
            "        model.train_on_batch(x[at : at + size])\n"
            "print(n, f'{len(x) // n}')\ntrain(n)\nmodel.fit(x, y, batch_size=n)\n",
            STEP_OF_96,
            "n = 96\ndef train(size=n):\n    for at in range(0, len(x), size):\n"
            "        model.train_on_batch(x[at : at + size])\n"
            "print(n, f'{len(x) // n}')\ntrain(n)\nmodel.fit(x, y, batch_size=n)\n",
        ),
        Case(
            "BATCH = 128\ndef step(x):\n    noise = tf.random.normal((BATCH, 64))\n"
            "    return gan(x, noise)\nfor x in ds.batch(BATCH):\n    step(x)\n",
            STEP_OF_96,
            "BATCH = 96\ndef step(x):\n    noise = tf.random.normal((BATCH, 64))\n"
            "    return gan(x, noise)\nfor x in ds.batch(BATCH):\n    step(x)\n",
        ),
        Case(
            "BATCH = 128\nx = np.random.rand(BATCH, 32)\nfor batch in ds.batch(BATCH):\n"
            "    step(batch, tf.random.normal((BATCH, 64)))\n",
            STEP_OF_96,
        ),
        Case(
            "inputs = keras.Input(batch_shape=(128, 8))\nmodel.fit(x, y, batch_size=128)\n",
            STEP_OF_96,
            "inputs = keras.Input(batch_shape=(64, 8))\nmodel.fit(x, y, batch_size=64)\n",
        ),
        Case(
            "inputs = keras.Input(batch_shape=(127, 8))\nmodel.fit(x, y, batch_size=127)\n",
            replace(STEP_OF_96, batch=127),
        ),
        Case(
            "model.add(keras.Input(batch_shape=(128, 8, 4)))\n"
            "model.add(keras.layers.LSTM(32, stateful=True))\nmodel.fit(x, y, batch_size=128)\n",
            STEP_OF_96,
        ),
        Case(
            "N = 128\nmodel.add(keras.Input(shape=(8,), batch_size=N))\n"
            "model.fit(x, y, batch_size=N)\n",
            STEP_OF_96,
            "N = 64\nmodel.add(keras.Input(shape=(8,), batch_size=N))\n"
            "model.fit(x, y, batch_size=N)\n",
        ),
        Case(
            "model.fit(x, y, epochs=2)\n",
            _STEP_OF_16,
            "model.fit(x, y, epochs=2, batch_size=16)\n",
        ),
    )
    is_silent = (
        Case("model.fit(x, y, batch_size=64)\n", STEP_OF_96),
        Case("keras.Input(batch_shape=(128, 8))\nmodel.fit(ds)\n", STEP_OF_96),
        Case(
            "def train(batch_size=64):\n    model.fit(x, y, batch_size=batch_size)\n\ntrain()\n",
            STEP_OF_96,
        ),
        Case("for one in runs:\n    model.fit(x, y, batch_size=one.batch)\n", STEP_OF_96),
        Case("model.fit(x, y, batch_size=128)\n"),
        Case("model.fit(x, y, batch_size=32)\n", _UPDATE_OF_A_TABLE),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the size of the steps that ran, and what the plan says of smaller ones."""
        batch, most = here.batch, batch_to_try(here)
        if not batch or not most or most >= batch:
            return
        divisor = size_for_shapes(cell, here, most)
        is_useful = divisor * _LEAST_OF_WHAT_FITS >= most
        fits = divisor if is_useful else most
        now, then = step_at(here, batch), step_at(here, fits)
        sizes = sizes_that_ran(cell, here)
        if now is None or then is None or not sizes:
            return
        yield Found(
            title=f"Batches of {fits} instead of {batch}",
            message=_message(here, now, then),
            place=here.device,
            saving=saving_between(here.device, now, then),
            edits=resized(cell, sizes, fits) if is_useful else (),
            line_number=sizes[0].line_number,
            runs_then=True,
        )


def _message(here: Situation, now: PlannedBatch, then: PlannedBatch) -> str:
    limit = format_bytes(here.device_limit_bytes or 0)
    if is_planned(here, now, then):
        largest = "largest" if then.batch == batch_to_try(here) else "largest divisor of it"
        return (
            f"A step at batch {now.batch} is expected to take {format_bytes(now.peak_bytes)}; "
            f"{then.batch} is the {largest} that is expected to fit {limit}, at "
            f"{format_bytes(then.peak_bytes)}."
        )
    came_to = (
        f"The first step at batch {now.batch} came to {format_bytes(here.device_needs_bytes)} of "
        f"{limit} before it ran out"
    )
    if is_guess(here):
        return (
            f"{came_to}, on its way forward: what was still to come is not known. One of "
            f"{then.batch} may fit; `%oombatch` finds the largest that does."
        )
    return (
        f"{came_to}. One of {then.batch} is expected to take {format_bytes(then.high_bytes)} at "
        "the most; `%oombatch` finds the largest that fits."
    )
