"""What a function's parameter stands for: what the cell's calls of it give, or its default."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.nodes import argument, called, keyword, parameters
from oommagic.explain.advice.tree import CellTree

Function = ast.FunctionDef | ast.AsyncFunctionDef


def meant(cell: CellTree, value: ast.expr, within: tuple[Function, ...] = ()) -> Iterator[ast.expr]:
    """Yield what a value may come from: itself, or for a parameter what is given for it."""
    function = whose_parameter(cell, value) if isinstance(value, ast.Name) else None
    if function is None:
        yield value
    elif function not in within and isinstance(value, ast.Name):
        for given in dict.fromkeys(_given(cell, function, value.id)):
            yield from meant(cell, given, (*within, function))


def whose_parameter(cell: CellTree, name: ast.Name) -> Function | None:
    """Give the function whose parameter a name is where it stands, if it is nothing else there."""
    path: list[ast.AST] = [name]
    for above in cell.around(name):
        # A default is worked out where the function is defined.
        if isinstance(above, Function) and above.args not in path:
            if any(isinstance(one, ast.Name) and one.id == name.id and _is_set(one)
                   for one in ast.walk(above)):  # fmt: skip
                return None
            if name.id in parameters(above):
                return above
        path.append(above)
    return None


def parameter_given(cell: CellTree, place: ast.AST, value: ast.AST) -> tuple[Function, str] | None:
    """Give the function of the cell, and its parameter, that gets a value by a call or default."""
    for function in _functions_at(cell, place):
        is_method = isinstance(cell.parents.get(function), ast.ClassDef)
        for name in parameters(function):
            given = (
                _argument(place, function, name, int(is_method))
                if isinstance(place, ast.Call)
                else _default(function, name)
            )
            if given is value:
                return function, name
    return None


def _functions_at(cell: CellTree, place: ast.AST) -> Iterator[Function]:
    """Yield the cell's functions that a call may call, or the one whose parameters these are."""
    name = called(place) if isinstance(place, ast.Call) else ""
    for one in cell.assignments(name):
        if isinstance(one, Function) and one.name == name:
            yield one
    above = cell.parents[place]
    if isinstance(place, ast.arguments) and isinstance(above, Function):
        yield above


def _is_set(name: ast.Name) -> bool:
    return not isinstance(name.ctx, ast.Load)


def _given(cell: CellTree, function: Function, name: str) -> Iterator[ast.expr]:
    """Yield what the calls in the cell give for a parameter; the default where one gives nothing.

    And where there is no call: then another cell's has run it.
    """
    is_method = isinstance(cell.parents.get(function), ast.ClassDef)
    kind = ast.Attribute if is_method else ast.Name
    calls = [call for call in cell.calls_of(function.name) if isinstance(call.func, kind)]
    given = [_argument(call, function, name, int(is_method)) for call in calls] or [None]
    default = _default(function, name)
    for value in given:
        if value is not None:
            yield value
        elif default is not None:
            yield default


def _argument(call: ast.Call, function: Function, name: str, skipped: int) -> ast.expr | None:
    places = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if name not in places:
        return keyword(call, name)
    return argument(call, places.index(name) - skipped, name)


def _default(function: Function, name: str) -> ast.expr | None:
    own = function.args
    places = [one.arg for one in (*own.posonlyargs, *own.args)]
    last = places[len(places) - len(own.defaults) :]
    by_name = dict(zip([one.arg for one in own.kwonlyargs], own.kw_defaults, strict=True))
    return {**by_name, **dict(zip(last, own.defaults, strict=True))}.get(name)
