"""Data that stays in the host's memory, of which the device gets a batch at a time."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import DATA_ON_THE_CARD, DATA_ON_THE_DEVICE
from oommagic.explain.advice.generators import SLICES, arrays_given, by_generator
from oommagic.explain.advice.nodes import dotted
from oommagic.explain.advice.rule import Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.wording import code_list
from oommagic.report import Edit
from oommagic.units import format_bytes

_COPIES, _RANGE = 1.8, (0.45, 1.6)
"""Of the data: going over a data set holds up to two more copies for a while, which may or may not
be when the device is at its fullest."""


class DataOnHost(Rule):
    """Rows that come from arrays one at a time, or tensors that are made on the CPU."""

    name = "data-on-host"
    title = "Data on the host, batches on the device"
    what = (
        "Where a whole data set lies on the device, it keeps it off. For a GPU: what makes "
        'tensors of it is put into `with tf.device("CPU:0")`. On a training device on the CPU, '
        "where that is the same place: `from_tensor_slices` becomes `from_generator`, which takes "
        "the rows from the arrays."
    )
    why = (
        "`tf.constant`, `convert_to_tensor` and `from_tensor_slices` put all of an array on the "
        "device at once, and it stays there for as long as the data set does. A step needs one "
        "batch."
    )
    example = "ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)"
    instead = (
        'with tf.device("CPU:0"):\n    ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)'
    )
    safety = "same results"
    fix_safety = "The same rows come in the same order."
    cost = "each batch is copied when it is needed; a generator is slower"
    effort = 1.2
    causes = frozenset({"data on the device", "unknown"})
    speaks = (
        Case(
            "if True:\n    x_all = tf.constant(x)  # fast?\n",
            DATA_ON_THE_CARD,
            'if True:\n    with tf.device("CPU:0"):\n        x_all = tf.constant(x)  # fast?\n',
        ),
        Case(
            "ds = (tf.data.Dataset.from_tensor_slices((x, y))\n      .shuffle(100)  # few\n"
            "      .batch(32))\n",
            DATA_ON_THE_DEVICE,
            "ds = (tf.data.Dataset.from_generator(\n"
            "    lambda x=x, y=y: zip(x, y),\n"
            "    output_signature=(\n"
            "        tf.TensorSpec(x.shape[1:], x.dtype),\n"
            "        tf.TensorSpec(y.shape[1:], y.dtype),\n"
            "    ),\n"
            ").apply(tf.data.experimental.assert_cardinality(len(x)))\n      .shuffle(100)  # few\n"
            "      .batch(32))\n",
        ),
        Case("x_all = tf.convert_to_tensor(x)\n", DATA_ON_THE_DEVICE),
    )
    is_silent = (
        Case("ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)\n", STEP_OF_96),
        Case("half = tf.constant(0.5)\n", DATA_ON_THE_DEVICE),
        Case(
            'with tf.device("CPU:0"):\n    x_all = tf.constant(x)\n',
            DATA_ON_THE_CARD,
        ),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find what puts a whole array on the device."""
        for call in cell.calls_of(SLICES, "constant", "convert_to_tensor"):
            arrays = arrays_given(here, call)
            if arrays and not _is_placed(cell, call):
                yield _found(cell, here, call, arrays)


def _found(cell: TypedCell, here: Situation, call: ast.Call, arrays: tuple[str, ...]) -> Found:
    size = sum(here.names[name].bytes for name in arrays)
    slices = dotted(call.func).endswith(SLICES)
    if here.is_on_gpu:
        edits = _on_the_cpu(cell, here, call)
    else:
        edits = by_generator(cell, here, call, arrays) if slices else ()
    else_by = "" if edits else "; feed it batches, from the arrays or a generator"
    return Found(
        title=f"Keep {code_list(dict.fromkeys(arrays))} on the host",
        message=(
            f"`{cell.text_of(call.func)}` puts {format_bytes(size)} on {here.device} at once, and "
            f"a step needs one batch of it{else_by}."
        ),
        place=here.device,
        saving=expected(here.device, _COPIES * size, *_RANGE),
        edits=edits,
        line_number=call.lineno,
    )


def _is_placed(cell: TypedCell, node: ast.AST) -> bool:
    """Say whether the cell says already on which device it shall be."""
    heads = [above for above in cell.around(node) if isinstance(above, ast.With)]
    return any(
        isinstance(item.context_expr, ast.Call)
        and dotted(item.context_expr.func).endswith("device")
        for head in heads
        for item in head.items
    )


def _on_the_cpu(cell: TypedCell, here: Situation, call: ast.Call) -> tuple[Edit, ...]:
    """Put the statement into a block of the CPU's."""
    tensorflow, statement = here.module("tensorflow"), cell.statement(call)
    if tensorflow is None or not isinstance(statement, ast.Assign | ast.Expr):
        return ()
    return cell.put_within([statement], f'with {tensorflow}.device("CPU:0"):')
