"""Small questions about a piece of a cell's tree."""

import ast
from collections.abc import Iterator

_LARGEST_BASE = 1024
_LARGEST_EXPONENT = 64


def dotted(node: ast.AST) -> str:
    """Give a name as it is written, with dots; a part that is no name is left out: `.batch`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def called(call: ast.Call) -> str:
    """Give the last part of what a call calls: `fit` of `model.fit(x, y)`."""
    return dotted(call.func).rpartition(".")[2]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Give the value of a keyword argument."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """Give an argument by its place or its name; None too where a `*` hides the places."""
    if any(isinstance(one, ast.Starred) for one in call.args[: place + 1]):
        return keyword(call, name)
    return call.args[place] if place < len(call.args) else keyword(call, name)


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that stand in a piece of the source."""
    yield from (one.id for one in ast.walk(node) if isinstance(one, ast.Name))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Name a function's parameters."""
    own = function.args
    named = (*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg)
    return frozenset(one.arg for one in named if one is not None)


def free_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Name what a function's body has from outside."""
    used = [one for one in ast.walk(function) if isinstance(one, ast.Name)]
    own = {one.id for one in used if not isinstance(one.ctx, ast.Load)}
    return frozenset(one.id for one in used) - own - parameters(function)


def root_name(node: ast.AST) -> str:
    """Name what a piece is of: `config` of `config["layers"].units`; empty if that has no name."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def whole_number(node: ast.AST | None) -> int | None:
    """Give a whole number that is written there, or follows from two: `2**7`, `4 * 32`."""
    if not isinstance(node, ast.BinOp):
        return _written_number(node)
    left, right = _written_number(node.left), _written_number(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Mult):
        return left * right
    is_small = isinstance(node.op, ast.Pow) and abs(left) <= _LARGEST_BASE
    return left**right if is_small and 0 <= right <= _LARGEST_EXPONENT else None


def _written_number(node: ast.AST | None) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None


def has_long_text(node: ast.AST) -> bool:
    """Say whether a text goes over several lines, which can't be moved to the right."""
    texts = (n for n in ast.walk(node) if isinstance(n, ast.Constant | ast.JoinedStr))
    return any(text.lineno != text.end_lineno for text in texts)
