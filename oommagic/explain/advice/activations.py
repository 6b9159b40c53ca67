"""Which activation functions a cell's layers have, and what TensorFlow keeps of them."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.nodes import called, dotted, keyword
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import HoldingKind

EXPENSIVE = {
    "gelu": 3.5,
    "mish": 3.5,
    "swish": 2.0,
    "silu": 2.0,
    "softplus": 2.0,
    "leaky_relu": 2.0,
}
"""How many tensors of a layer's output are kept for the backward pass; `relu`, `tanh`, `sigmoid`,
`elu`, `selu` and `relu6` keep one. Measured on the training device, with TensorFlow 2.21."""
_OF_STEPS: tuple[HoldingKind, ...] = ("activations", "gradients")


def with_activation(cell: TypedCell) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that make a layer with such a function, and its name."""
    for call in cell.calls:
        value = keyword(call, "activation")
        if value is None and call.args and called(call) == "Activation":
            value = call.args[0]
        name = _name(value)
        if name in EXPENSIVE:
            yield call, name


def _name(value: ast.expr | None) -> str:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return dotted(value).rpartition(".")[2] if value is not None else ""


def kept_beyond(here: Situation, pieces: int) -> int:
    """Say what layers hold at the peak beyond so many tensors of what they give."""
    saved = 0
    for layer, total in here.layers_by_bytes(*_OF_STEPS):
        sizes = [
            one.bytes // max(one.count, 1)
            for one in here.holdings
            if one.layer == layer and one.kind in _OF_STEPS
        ]
        saved += max(0, total - pieces * max(sizes))
    return saved
