"""Gradient accumulation: small batches, and an update for each few of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from oommagic.explain.advice.batches import BatchSize, resized, sizes_that_ran
from oommagic.explain.advice.counted import multiplied
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import TWO_REPLICAS
from oommagic.explain.advice.fitting import batch_to_try, is_planned, saving_between, step_at
from oommagic.explain.advice.keras_names import spelled
from oommagic.explain.advice.nodes import keyword
from oommagic.explain.advice.rule import STEP, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import growing
from oommagic.explain.advice.training import WrittenOptimizer, only_optimizer, strategies, trains
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import Named
from oommagic.report import Edit, Holding, PlannedBatch, Saving
from oommagic.units import MIB, format_bytes

_MOST_STEPS = 64
_IN_AN_UPDATE = 2.5
"""How often the size of the weights is taken when gradients are added up and divided, at most."""
_OF_WHAT_WAS_SEEN = (0.5, 2.0)
"""Where the first step of all ran out, for which there is no plan."""
_ARGUMENT = "gradient_accumulation_steps"
_UPDATING = (
    Holding("weights", 500 * MIB, layer="dense", shape=(1000, 131_072)),
    Holding("optimizer slots", 1000 * MIB, layer="dense", shape=(1000, 131_072)),
    Holding("workspace", 500 * MIB, layer="adam", shape=(1000, 131_072)),
)
"""A step that ran out when the weights were updated."""


class GradientAccumulation(Rule):
    """The optimizer adds up the gradients of several smaller batches."""

    name = "gradient-accumulation"
    title = "Gradient accumulation"
    what = (
        "Where the training step does not fit, it divides the batch by the smallest number with "
        "which it does, by the plan, and lets the Keras optimizer add up the gradients of so "
        f"many batches: its own argument `{_ARGUMENT}`. That holds for `fit` and "
        "for a loop with `apply_gradients`, in a tf.function or not. Not under `tf.distribute`: "
        "with two replicas Keras 3.15 fails there."
    )
    why = (
        "A gradient over a large batch is the mean of those over its parts. Activations are then "
        "needed for one part at a time; only the sum of the gradients stays, which is one more "
        "copy of the trainable weights."
    )
    example = 'model.compile(optimizer="adam", loss="mse")\nmodel.fit(x, y, batch_size=128)'
    instead = (
        f'model.compile(optimizer=keras.optimizers.Adam({_ARGUMENT}=2), loss="mse")\n'
        "model.fit(x, y, batch_size=64)"
    )
    safety = "changes results"
    fix_safety = (
        "Updates are those of the large batch within float rounding, but for this: batch "
        "normalisation uses each small batch's statistics; dropout draws anew; where the data do "
        "not divide evenly, a batch that is not full counts as much as a full one, and batches "
        "left over at the end of an epoch count for the next one's first update, after the last "
        "epoch for none. A loss that sums over the batch, instead of its mean, becomes smaller. "
        "Gradients that a loop clips itself are clipped for each small batch; those that the "
        "optimizer clips, after they were added up. "
        "`steps_per_epoch` and `validation_steps`, and what `take` takes of a data set's batches, "
        "are multiplied, so that an epoch has the same samples; a loop that counts its steps in "
        "another way has fewer."
    )
    cost = "more, smaller steps"
    effort = 1.6
    causes = STEP
    speaks = (
        Case(
            'model.compile(optimizer="adam", loss="mse")\nmodel.fit(x, y, batch_size=128)\n',
            STEP_OF_96,
            f'model.compile(optimizer=keras.optimizers.Adam({_ARGUMENT}=2), loss="mse")\n'
            "model.fit(x, y, batch_size=64)\n",
        ),
        Case(
            "opt = tf.keras.optimizers.Adam(1e-3)\n"
            "for a, b in ds.batch(128):  # as in the paper\n"
            "    with tf.GradientTape() as tape:\n"
            "        loss = loss_fn(b, model(a))\n"
            "    grads = tape.gradient(loss, model.trainable_variables)\n"
            "    opt.apply_gradients(zip(grads, model.trainable_variables))\n",
            STEP_OF_96,
            f"opt = tf.keras.optimizers.Adam(1e-3, {_ARGUMENT}=2)\n"
            "for a, b in ds.batch(64):  # as in the paper\n"
            "    with tf.GradientTape() as tape:\n"
            "        loss = loss_fn(b, model(a))\n"
            "    grads = tape.gradient(loss, model.trainable_variables)\n"
            "    opt.apply_gradients(zip(grads, model.trainable_variables))\n",
        ),
        Case(
            "from tensorflow.keras import layers\n\nmodel.compile('sgd', 'mse')\n"
            "model.fit(x, y, batch_size=128)\n",
            replace(STEP_OF_96, names={"model": STEP_OF_96.names["model"]}),
            "import keras\nfrom tensorflow.keras import layers\n\n"
            f"model.compile(keras.optimizers.SGD({_ARGUMENT}=2), 'mse')\n"
            "model.fit(x, y, batch_size=64)\n",
        ),
        Case("model.fit(x, y, batch_size=128)\n", STEP_OF_96),
        Case(
            "model.add(keras.layers.LSTM(32, stateful=True))\n"
            "model.compile(keras.optimizers.Adam(), 'mse')\nmodel.fit(x, y, batch_size=128)\n",
            STEP_OF_96,
        ),
        Case(
            "model.compile(keras.optimizers.Adam(), 'mse')\n"
            "train = ds.batch(128).take(len(x) // 128).repeat()\n"
            "model.fit(train, steps_per_epoch=100)  # of 128\n",
            STEP_OF_96,
            f"model.compile(keras.optimizers.Adam({_ARGUMENT}=2), 'mse')\n"
            "train = ds.batch(64).take((len(x) // 128) * 2).repeat()\n"
            "model.fit(train, steps_per_epoch=200)  # of 128\n",
        ),
        Case(
            "model.compile(keras.optimizers.Adam(), 'mse')\nval = other.batch(128).repeat()\n"
            "model.fit(ds.batch(128), validation_data=val, validation_steps=9)\n",
            STEP_OF_96,
            f"model.compile(keras.optimizers.Adam({_ARGUMENT}=2), 'mse')\n"
            "val = other.batch(64).repeat()\n"
            "model.fit(ds.batch(64), validation_data=val, validation_steps=18)\n",
        ),
        Case(
            "model.compile(keras.optimizers.Adam(), 'mse')\nval = other.batch(32).repeat()\n"
            "model.fit(ds.batch(128), validation_data=val, validation_steps=9)\n",
            STEP_OF_96,
            f"model.compile(keras.optimizers.Adam({_ARGUMENT}=2), 'mse')\n"
            "val = other.batch(32).repeat()\n"
            "model.fit(ds.batch(64), validation_data=val, validation_steps=9)\n",
        ),
        Case(
            "model.compile(keras.optimizers.Adam(), 'mse')\nrows = other.batch(32)\n"
            "val = rows.repeat()\n"
            "model.fit(x, y, batch_size=128, validation_data=val, validation_steps=9)\n",
            STEP_OF_96,
            f"model.compile(keras.optimizers.Adam({_ARGUMENT}=2), 'mse')\nrows = other.batch(32)\n"
            "val = rows.repeat()\n"
            "model.fit(x, y, batch_size=64, validation_data=val, validation_steps=9)\n",
        ),
        Case(
            "model.compile(keras.optimizers.Adam(), 'mse')\n"
            "model.fit(x, y, 128, validation_data=val, validation_steps=9)\n",
            replace(STEP_OF_96, names={**STEP_OF_96.names, "val": Named("dataset")}),
            f"model.compile(keras.optimizers.Adam({_ARGUMENT}=2), 'mse')\n"
            "model.fit(x, y, 64, validation_data=val, validation_steps=9)\n",
        ),
        Case(
            "model.compile(keras.optimizers.Adam(), 'mse')\n"
            "model.fit(x, y, 128, validation_data=pair, validation_steps=9)\n",
            STEP_OF_96,
            f"model.compile(keras.optimizers.Adam({_ARGUMENT}=2), 'mse')\n"
            "model.fit(x, y, 64, validation_data=pair, validation_steps=18)\n",
        ),
        Case(
            "model.compile(keras.optimizers.Adam(), 'mse')\n"
            "def val():\n    return other.batch(32).repeat()\n"
            "model.fit(x, y, 128, validation_data=val(), validation_steps=9)\n",
            STEP_OF_96,
            f"model.compile(keras.optimizers.Adam({_ARGUMENT}=2), 'mse')\n"
            "def val():\n    return other.batch(32).repeat()\n"
            "model.fit(x, y, 64, validation_data=val(), validation_steps=9)\n",
        ),
        Case(
            "model.compile(keras.optimizers.Adam(), 'mse')\nx, y = next(iter(ds.batch(5000)))\n"
            "xv, yv = x[:999], y[:999]\n"
            "model.fit(x, y, 128, validation_data=(xv, yv), validation_steps=4)\n",
            STEP_OF_96,
            f"model.compile(keras.optimizers.Adam({_ARGUMENT}=2), 'mse')\n"
            "x, y = next(iter(ds.batch(5000)))\nxv, yv = x[:999], y[:999]\n"
            "model.fit(x, y, 64, validation_data=(xv, yv), validation_steps=8)\n",
        ),
        Case(
            "SIZE = 128\nsteps = len(x) // SIZE\nmodel.compile(keras.optimizers.Adam(), 'mse')\n"
            "model.fit(ds.batch(SIZE), steps_per_epoch=steps)\n",
            STEP_OF_96,
            "SIZE = 64\nsteps = len(x) // SIZE\n"
            f"model.compile(keras.optimizers.Adam({_ARGUMENT}=2), 'mse')\n"
            "model.fit(ds.batch(SIZE), steps_per_epoch=steps)\n",
        ),
    )
    is_silent = (
        Case(
            f"o = keras.optimizers.Adam({_ARGUMENT}=4)\n"
            "model.compile(o, 'mse')\nmodel.fit(x, y, batch_size=128)\n",
            STEP_OF_96,
        ),
        Case(
            "with strategy.scope():\n    model.compile('adam', 'mse')\n"
            "model.fit(x, y, batch_size=128)\n",
            TWO_REPLICAS,
        ),
        Case("model.predict(x, batch_size=128)\n", STEP_OF_96),
        Case('model.compile("adam", "mse")\nmodel.fit(x, y, batch_size=64)\n', STEP_OF_96),
        Case(
            'model.compile("adam", "mse")\nmodel.fit(x, y, batch_size=128)\n',
            replace(STEP_OF_96, forecast=None, holdings=_UPDATING),
        ),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the size of the steps that ran, and the optimizer."""
        batch, now = here.batch, step_at(here, here.batch or 0)
        sizes = sizes_that_ran(cell, here)
        if not batch or now is None or not sizes or not trains(cell):
            return
        if strategies(cell, here):
            return
        written, weights = only_optimizer(cell), _trainable_bytes(here)
        steps = _steps(here, batch, weights)
        then = step_at(here, batch // steps) if steps else None
        if steps is None or then is None or _accumulates(here, written):
            return
        yield Found(
            title=f"{steps} batches of {batch // steps}, their gradients accumulated",
            message=(
                f"{_steps_in_words(here, now, then)}, and the accumulated gradients "
                f"{format_bytes(weights)}. With `{_ARGUMENT}={steps}` the optimizer updates the "
                f"weights by the mean over {steps} such batches."
            ),
            place=here.device,
            saving=_saving(here, now, then, weights),
            edits=_edits(cell, here, written, sizes, steps),
            line_number=sizes[0].line_number,
            runs_then=True,
        )


def _steps_in_words(here: Situation, now: PlannedBatch, then: PlannedBatch) -> str:
    """Say what the steps take: as planned, or else what the one came to and the other may."""
    if is_planned(here, now, then):
        return (
            f"A step at batch {now.batch} is expected to take {format_bytes(now.peak_bytes)}, one "
            f"of {then.batch} {format_bytes(then.peak_bytes)}"
        )
    return (
        f"The first step at batch {now.batch} came to {format_bytes(here.device_needs_bytes)} "
        f"before it ran out; one of {then.batch} is expected to take "
        f"{format_bytes(then.low_bytes)} to {format_bytes(then.high_bytes)}"
    )


def _steps(here: Situation, batch: int, weights_bytes: int) -> int | None:
    """Find the smallest number of parts of which one fits, beside the sum of the gradients."""
    fits, limit = batch_to_try(here), here.device_limit_bytes
    if not fits or limit is None or fits >= batch:
        return None
    for steps in range(2, min(batch, _MOST_STEPS) + 1):
        part = step_at(here, batch // steps) if batch % steps == 0 else None
        if part is None or part.batch > fits:
            continue
        if part.high_bytes + weights_bytes <= limit and _helps(here, batch, steps, weights_bytes):
            return steps
    return None


def _helps(here: Situation, batch: int, steps: int, weights_bytes: int) -> bool:
    """Say whether what grows with the batch is enough to be worth it, where no plan tells.

    A step that ran out among its optimizer's updates is not made to fit by this.
    """
    if here.planned(batch) is not None:
        return True
    saved = _seen(here, steps) - _IN_AN_UPDATE * weights_bytes
    fits = here.device_needs_bytes - saved <= (here.device_limit_bytes or 0)
    return fits and here.is_worth(int(saved), here.device)


def _seen(here: Situation, steps: int) -> float:
    """Say what so many parts save of what the step had, which may not have been all."""
    grown = growing(here, "activations", "gradients", "workspace", "data")
    return sum(one.bytes for one in grown) * (1 - 1 / steps)


def _saving(here: Situation, now: PlannedBatch, then: PlannedBatch, weights_bytes: int) -> Saving:
    if here.planned(now.batch) is None:
        steps = now.batch // then.batch
        return expected(here.device, _seen(here, steps) - weights_bytes, *_OF_WHAT_WAS_SEEN)
    between = saving_between(here.device, now, then)
    return Saving(
        here.device,
        max(0, between.low_bytes - int(_IN_AN_UPDATE * weights_bytes)),
        max(0, between.bytes - weights_bytes),
        between.high_bytes,
    )


def _trainable_bytes(here: Situation) -> int:
    return next((model.trainable_bytes for _, model in here.models()), here.held("weights"))


def _accumulates(here: Situation, written: WrittenOptimizer | None) -> bool:
    if written is not None:
        return written.call is not None and keyword(written.call, _ARGUMENT) is not None
    return any(model.accumulates for _, model in here.models())


def _edits(
    cell: TypedCell,
    here: Situation,
    written: WrittenOptimizer | None,
    sizes: Sequence[BatchSize],
    steps: int,
) -> tuple[Edit, ...]:
    """Change the size and the optimizer; without the one the other would do harm."""
    optimizer = () if written is None else _accumulating(cell, here, written, steps)
    smaller = resized(cell, sizes, sizes[0].size // steps)
    if not optimizer or not smaller:
        return ()
    return (*optimizer, *smaller, *multiplied(cell, here, {size.written for size in sizes}, steps))


def _accumulating(
    cell: TypedCell, here: Situation, written: WrittenOptimizer, steps: int
) -> tuple[Edit, ...]:
    if written.call is not None:
        edit = cell.set_keyword(written.call, _ARGUMENT, str(steps))
        return () if edit is None else (edit,)
    made = spelled(cell, here, f"optimizers.{written.kind}({_ARGUMENT}={steps})")
    return (*made.imports, cell.replace(written.written, made.text))
