"""The layers that a cell makes, and which of a model's they are."""

import ast

from oommagic.explain.advice.nodes import argument, called, dotted, keyword
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import LayerFacts, ModelFacts

_KERASS = frozenset({
    "Activation", "Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Conv3D",
    "Conv3DTranspose", "Dense", "DepthwiseConv2D", "EinsumDense", "Flatten", "GRU",
    "GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalMaxPooling1D",
    "GlobalMaxPooling2D", "LSTM", "LeakyReLU", "ReLU", "Reshape", "SeparableConv1D",
    "SeparableConv2D", "SimpleRNN", "Softmax", "UpSampling2D",
})  # fmt: skip
"""Layers of Keras with which models end, but for those around another, which computes for them."""


def layer_made(cell: TypedCell, model: ModelFacts, call: ast.Call) -> LayerFacts | None:
    """Tell which of a model's layers a call has made, by its name or by its place among its like.

    None where that is not sure: in a loop, or in a function that may have been called often.
    """
    kind = called(call)
    alike = [layer for layer in model.layers if layer.kind == kind]
    name = keyword(call, "name")
    if isinstance(name, ast.Constant):
        return next((one for one in alike if one.name.rpartition("/")[2] == name.value), None)
    calls = list(cell.calls_of(kind))
    if len(calls) != len(alike) or cell.is_repeated(call):
        return None
    return alike[calls.index(call)]


def last_layer(cell: TypedCell) -> ast.Call | None:
    """Give the call that makes the last layer of the cell's one model, if that is written there.

    And is a layer of Keras: what the user has defined may take other arguments.
    """
    models = list(cell.calls_of("Sequential", "Model"))
    if len(models) != 1:
        return None
    if dotted(models[0].func).endswith("Sequential"):
        last = _last_of_sequential(cell, models[0])
    else:
        last = _made_by(_latest(cell, models[0], argument(models[0], 1, "outputs")))
    return last if isinstance(last, ast.Call) and _is_of_keras(cell, last) else None


def _is_of_keras(cell: TypedCell, made: ast.Call) -> bool:
    own = cell.assignments(called(made)) if isinstance(made.func, ast.Name) else ()
    return called(made) in _KERASS and all(isinstance(one, ast.ImportFrom) for one in own)


def _last_of_sequential(cell: TypedCell, model: ast.Call) -> ast.expr | None:
    """Give what is listed or added last; None where it is not the last each time."""
    layers = argument(model, 0, "layers")
    made = cell.statement(model)
    name = cell.text_of(made).partition("=")[0].strip()
    added = [call for call in cell.calls_of(f"{name}.add") if len(call.args) == 1]
    if added:
        is_sure = cell.statement(added[-1]) in cell.block_of(made)
        return added[-1].args[0] if is_sure else None
    listed = layers.elts if isinstance(layers, ast.List) else []
    return listed[-1] if listed else None


def _latest(cell: TypedCell, where: ast.Call, value: ast.expr | None) -> ast.expr | None:
    """Give what a name was given last above a place; several models may go through `x`."""
    if not isinstance(value, ast.Name):
        return value
    above = [one for one in cell.assignments(value.id) if one.lineno < where.lineno]
    last = max(above, key=lambda one: one.lineno, default=None)
    is_sure = last in cell.block_of(cell.statement(where))
    return last.value if isinstance(last, ast.Assign) and is_sure else None


def _made_by(value: ast.expr | None) -> ast.Call | None:
    """Give `Dense(10)` for `Dense(10)(x)`."""
    is_called = isinstance(value, ast.Call) and isinstance(value.func, ast.Call)
    return value.func if is_called else None  # type: ignore[union-attr]  # just seen
