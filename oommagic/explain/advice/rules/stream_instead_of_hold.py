"""A data set that takes its samples from the arrays, instead of copies of them."""

from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.examples import HOST_RAN_OUT, host_peaks
from oommagic.explain.advice.generators import SLICES, arrays_given, by_generator
from oommagic.explain.advice.host_memory import lower_from, place_of_data
from oommagic.explain.advice.rule import HOST_CAUSES, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.wording import code_list
from oommagic.recording import Named
from oommagic.report import HOST
from oommagic.units import format_bytes

_COPIES_WHEN_MADE, _COPIES_IN_A_PASS = 2.0, 3.1
"""How often the array is in memory beside itself."""

_MADE = replace(
    HOST_RAN_OUT,
    cause="none",
    place="",
    lines=host_peaks(9, 12),
    names={**HOST_RAN_OUT.names, "x": Named("array", 2**31, "float32", (10_000, 224, 224, 1))},
)


class StreamInsteadOfHold(Rule):
    """Samples are taken from the arrays one by one."""

    name = "stream-instead-of-hold"
    title = "A generator instead of `from_tensor_slices`"
    what = (
        "Where `from_tensor_slices` is given large NumPy arrays, it makes the data set from a "
        "generator that goes over them, with the same samples in the same order."
    )
    why = (
        "`from_tensor_slices` copies the whole array into a tensor, and while it does so there are "
        "two copies beside the array; going over the data set made one more. They lie where "
        "TensorFlow's data lie, on a training device on the CPU too. `fit(x, y)` makes one copy "
        "that stays while it trains, and one that does not. A generator or a "
        "`keras.utils.PyDataset` makes none."
    )
    example = "ds = tf.data.Dataset.from_tensor_slices((x, y))"
    instead = (
        "ds = tf.data.Dataset.from_generator(\n"
        "    lambda x=x, y=y: zip(x, y),\n"
        "    output_signature=(\n"
        "        tf.TensorSpec(x.shape[1:], x.dtype),\n"
        "        tf.TensorSpec(y.shape[1:], y.dtype),\n"
        "    ),\n"
        ").apply(tf.data.experimental.assert_cardinality(len(x)))"
    )
    safety = "same results"
    fix_safety = (
        "The same samples in the same order, as long as nobody writes into the arrays meanwhile."
    )
    cost = "time: each sample goes through Python"
    effort = 1.3
    causes = HOST_CAUSES
    speaks = (
        Case(
            "ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)\nmodel.fit(ds)\n",
            _MADE,
            "ds = tf.data.Dataset.from_generator(\n"
            "    lambda x=x, y=y: zip(x, y),\n"
            "    output_signature=(\n"
            "        tf.TensorSpec(x.shape[1:], x.dtype),\n"
            "        tf.TensorSpec(y.shape[1:], y.dtype),\n"
            "    ),\n"
            ").apply(tf.data.experimental.assert_cardinality(len(x))).batch(32)\nmodel.fit(ds)\n",
        ),
        Case(
            "ds = tf.data.Dataset.from_tensor_slices((x, x))\nmodel.fit(ds)\n",
            _MADE,
            "ds = tf.data.Dataset.from_generator(\n"
            "    lambda x=x: zip(x, x),\n"
            "    output_signature=(\n"
            "        tf.TensorSpec(x.shape[1:], x.dtype),\n"
            "        tf.TensorSpec(x.shape[1:], x.dtype),\n"
            "    ),\n"
            ").apply(tf.data.experimental.assert_cardinality(len(x)))\nmodel.fit(ds)\n",
        ),
        Case(
            "ds = tf.data.Dataset.from_tensor_slices((x,))\nmodel.fit(ds)\n",
            _MADE,
            "ds = tf.data.Dataset.from_generator(\n"
            "    lambda x=x: zip(x),\n"
            "    output_signature=(\n"
            "        tf.TensorSpec(x.shape[1:], x.dtype),\n"
            "    ),\n"
            ").apply(tf.data.experimental.assert_cardinality(len(x)))\nmodel.fit(ds)\n",
        ),
        Case(
            "if True:\n    ds = tf.data.Dataset.from_tensor_slices(x)  # images\n",
            _MADE,
            "if True:\n    ds = tf.data.Dataset.from_generator(\n"
            "        lambda x=x: x,\n"
            "        output_signature=tf.TensorSpec(x.shape[1:], x.dtype),\n"
            "    ).apply(tf.data.experimental.assert_cardinality(len(x)))  # images\n",
        ),
    )
    is_silent = (
        Case("ds = tf.data.Dataset.from_tensor_slices(files)\n", _MADE),
        Case("ds = tf.data.Dataset.from_tensor_slices(y)\n", _MADE),
        Case("ds = tf.data.Dataset.from_tensor_slices((x, y))\ndel x\n", _MADE),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find data sets that are made of large arrays."""
        if place_of_data(here) != HOST:  # then another rule speaks, of the device
            return
        for call in cell.calls_of(SLICES):
            names = arrays_given(here, call)
            edits = by_generator(cell, here, call, names) if names else ()
            if not edits or cell.function_of(call) is not None:
                continue
            size = sum(here.names[name].bytes for name in names)
            lower = lower_from(here, cell.statement(call).lineno, int(_COPIES_WHEN_MADE * size))
            yield Found(
                title=f"Take the samples from {code_list(dict.fromkeys(names))} one by one",
                message=(
                    f"`from_tensor_slices` copies {format_bytes(size)}, and each pass over the "
                    "data set copies them once more; a generator hands on what is there."
                ),
                place=HOST,
                saving=expected(HOST, lower, 0.6, _COPIES_IN_A_PASS / _COPIES_WHEN_MADE),
                edits=edits,
                line_number=call.lineno,
            )
