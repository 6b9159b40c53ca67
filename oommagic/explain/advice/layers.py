"""The layers that a cell makes, and which of a model's they are."""

import ast

from oommagic.explain.advice.nodes import argument, called, dotted, keyword
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import LayerFacts, ModelFacts


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
    """Give the call that makes the last layer of the cell's one model, if that is written there."""
    models = list(cell.calls_of("Sequential", "Model"))
    if len(models) != 1:
        return None
    if dotted(models[0].func).endswith("Sequential"):
        return _last_of_sequential(cell, models[0])
    return _made_by(_latest(cell, models[0], argument(models[0], 1, "outputs")))


def _last_of_sequential(cell: TypedCell, model: ast.Call) -> ast.Call | None:
    layers = argument(model, 0, "layers")
    made = cell.statement(model)
    name = cell.text_of(made).partition("=")[0].strip()
    added = [call.args[0] for call in cell.calls_of(f"{name}.add") if len(call.args) == 1]
    listed = layers.elts if isinstance(layers, ast.List) else []
    last = next(reversed(added or listed), None)
    return last if isinstance(last, ast.Call) and not isinstance(last.func, ast.Call) else None


def _latest(cell: TypedCell, where: ast.Call, value: ast.expr | None) -> ast.expr | None:
    """Give what a name was given last above a place; several models may go through `x`."""
    if not isinstance(value, ast.Name):
        return value
    above = [one for one in cell.assignments(value.id) if one.lineno < where.lineno]
    last = max(above, key=lambda one: one.lineno, default=None)
    return last.value if isinstance(last, ast.Assign) else None


def _made_by(value: ast.expr | None) -> ast.Call | None:
    """Give `Dense(10)` for `Dense(10)(x)`."""
    is_called = isinstance(value, ast.Call) and isinstance(value.func, ast.Call)
    return value.func if is_called else None  # type: ignore[union-attr]  # just seen
