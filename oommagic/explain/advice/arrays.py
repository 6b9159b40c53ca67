"""What a cell does with NumPy's arrays: where it makes, reads, copies and changes them."""

import ast
import re

from oommagic.explain.advice.nodes import called, dotted, names_in, root_name
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell

_ABOUT_IT = frozenset({"shape", "dtype", "ndim", "size", "nbytes", "itemsize"})
_CHANGING = frozenset({"sort", "fill", "put", "partition", "resize", "setflags", "itemset"})
_CHANGING_GIVEN = frozenset({"shuffle", "copyto", "put"})
_MAKERS = frozenset({
    "zeros", "ones", "empty", "full", "arange", "linspace",
    "rand", "randn", "random", "random_sample", "normal", "standard_normal", "uniform",
    "integers", "randint",
})  # fmt: skip
_RUN_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_OF_IPYTHON = re.compile(r"\s*[%!?]|[^#]*=\s*[%!]")


def numpys(here: Situation, call: ast.AST) -> str:
    """Give what a call calls in NumPy: `random.rand`; empty if it is none of NumPy's."""
    numpy = here.module("numpy")
    if numpy is None or not isinstance(call, ast.Call):
        return ""
    name = dotted(call.func)
    return name.removeprefix(f"{numpy}.") if name.startswith(f"{numpy}.") else ""


def makes_new(here: Situation, value: ast.expr) -> bool:
    """Say whether an expression surely gives a new array, which nothing else holds."""
    if isinstance(value, ast.BinOp):
        return True
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    if value.func.attr == "astype":
        return all(one.arg not in {"copy", None} for one in value.keywords)
    return numpys(here, value).rpartition(".")[2] in _MAKERS


def bound_to(cell: TypedCell, value: ast.expr) -> str:
    """Give the name of a statement `name = value`; empty if it is another."""
    statement = cell.parents.get(value)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    target = statement.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def reads(cell: TypedCell, name: str) -> tuple[ast.Name, ...]:
    """Give every place where a name's value is used, in the order of the source."""
    return tuple(
        node
        for node in cell.nodes
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    )


def is_in_a_magic(cell: TypedCell, *names: str) -> bool:
    """Say whether a line of IPython's own has one of these names: the tree does not show it."""
    words = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    return any(words.search(line) for line in cell.text.splitlines() if _OF_IPYTHON.match(line))


def is_used_later(cell: TypedCell, name: str) -> bool:
    """Say whether a function has a name, whenever that is called."""
    return any(
        isinstance(above, _RUN_LATER) for read in reads(cell, name) for above in cell.around(read)
    )


def only_asks_about(cell: TypedCell, read: ast.Name) -> bool:
    """Say whether it only asks for an array's shape or length: `x.shape[0]`, `len(x)`."""
    above = cell.parents[read]
    if isinstance(above, ast.Attribute):
        return above.attr in _ABOUT_IT
    return isinstance(above, ast.Call) and dotted(above.func) == "len"


def is_changed(cell: TypedCell, name: str) -> bool:
    """Say whether the cell may write into an array of that name, or into a piece of it."""
    return any(_changes(node, name) for node in cell.nodes)


def is_deleted(cell: TypedCell, name: str) -> bool:
    """Say whether the cell takes a name away."""
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Del)
        for node in cell.nodes
    )


def names_given(cell: TypedCell, value: ast.expr) -> frozenset[str]:
    """Name what is given a value, alone or among others: `a` and `b` of `a, b = value, other`."""
    above = cell.parents.get(value)
    while isinstance(above, ast.Tuple | ast.List | ast.Starred):
        above = cell.parents.get(above)
    targets: list[ast.expr] = []
    if isinstance(above, ast.Assign):
        targets = above.targets
    elif isinstance(above, ast.AnnAssign | ast.NamedExpr | ast.For | ast.comprehension):
        targets = [above.target]
    return frozenset(name for target in targets for name in names_in(target))


def _changes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return root_name(node.target) == name
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return root_name(node) == name
    if isinstance(node, ast.keyword):
        return node.arg == "out" and root_name(node.value) == name
    if not isinstance(node, ast.Call):
        return False
    if called(node) in _CHANGING and root_name(node.func) == name:
        return True
    return called(node) in _CHANGING_GIVEN and any(root_name(one) == name for one in node.args)
