"""Arithmetic in place, where the old values are not needed any more."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from oommagic.explain.advice.arrays import (
    bound_to,
    is_in_a_magic,
    is_used_later,
    makes_new,
    numpys,
    only_asks_about,
    reads,
)
from oommagic.explain.advice.examples import HOST_RAN_OUT, host_peaks
from oommagic.explain.advice.host_memory import lower_at
from oommagic.explain.advice.rule import HOST_CAUSES, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.wording import a_list
from oommagic.report import HOST
from oommagic.units import format_bytes

_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+=",
    ast.Sub: "-=",
    ast.Mult: "*=",
    ast.Div: "/=",
}
_SUMS = frozenset({"mean", "std", "min", "max", "var", "sum"})
_FLOATS = frozenset({"rand", "randn", "random", "random_sample", "normal", "uniform"})

_ONE_LINE_HIGH = replace(HOST_RAN_OUT, cause="none", place="", lines=host_peaks(5, 10, 5))


class InPlaceArithmetic(Rule):
    """The result takes the place of what it is made of."""

    name = "in-place-arithmetic"
    title = "Arithmetic in place"
    what = (
        "Where a large array that the cell has just made is replaced by itself and a number, as in "
        "`x = x / 255.0`, it computes in place: `x /= 255.0`."
    )
    why = (
        "`x = x / 255.0` makes a second array of the same size, and only then lets go of the "
        "first: for a moment both are there. In place there is no second one."
    )
    example = "x = np.random.rand(n, 1000)\nx = x - 0.5"
    instead = "x = np.random.rand(n, 1000)\nx -= 0.5"
    safety = "same results"
    fix_safety = (
        "Only where the cell itself has made the array, of floats, and has given it to nobody: "
        "whoever else held it would see it change."
    )
    cost = ""
    causes = HOST_CAUSES
    speaks = (
        Case(
            "x = np.random.rand(n, 1000)\nx = x * 2  # twice\nprint(x.shape)\n",
            _ONE_LINE_HIGH,
            "x = np.random.rand(n, 1000)\nx *= 2  # twice\nprint(x.shape)\n",
        ),
        Case(
            "x = np.random.rand(n)\nx = x - 0.5; x = x * 2\n",
            replace(HOST_RAN_OUT, line_number=None),
            "x = np.random.rand(n)\nx -= 0.5; x *= 2\n",
        ),
        Case(
            "x = raw.astype(np.float64)\nx = x / (x.max())\n",
            _ONE_LINE_HIGH,
            "x = raw.astype(np.float64)\nx /= x.max()\n",
        ),
    )
    is_silent = (
        Case("x = np.random.rand(n, 1000)\nkept = x\nx = x * 2\n", _ONE_LINE_HIGH),
        Case("x = np.random.rand(n); kept = x\nx = x * 2\n", _ONE_LINE_HIGH),
        Case("x = np.random.rand(n)\nkept = x; x = x * 2\n", _ONE_LINE_HIGH),
        Case(
            "def keep():\n    kept.append(x)\n\nx = np.random.rand(n)\nkeep()\nx = x * 2\n",
            _ONE_LINE_HIGH,
        ),
        Case("keep = lambda: x\nx = np.random.rand(n)\na = keep()\nx = x * 2\n", _ONE_LINE_HIGH),
        Case(
            "x = np.random.rand(n)\nkeep()\nx = x * 2\n",
            replace(_ONE_LINE_HIGH, names_in_functions=frozenset({"x"})),
        ),
        Case("x = raw.astype(int)\nx = x / 2\n", _ONE_LINE_HIGH),
        Case("x = load()\nx = x / 2\n", _ONE_LINE_HIGH),
        Case("x = np.random.rand(9)\nx = x * 2\n"),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find arrays that the cell makes, and then replaces by something of the same size."""
        for name in sorted(cell.names):
            array = here.array(name)
            if array is None or not array.dtype.startswith("float"):
                continue
            if name in here.names_in_functions or is_used_later(cell, name):
                continue
            steps = _steps(cell, here, name)
            if not steps:
                continue
            lines = sorted({statement.lineno for statement in steps})
            size = lower_at(here, dict.fromkeys(lines, array.bytes))
            yield Found(
                title=f"Compute `{name}` in place",
                message=(
                    f"{'Line' if len(lines) == 1 else 'Lines'} {a_list([*map(str, lines)])} "
                    f"{'makes' if len(lines) == 1 else 'make'} a second array of "
                    f"{format_bytes(array.bytes)} while the old one is still there."
                ),
                place=HOST,
                saving=expected(HOST, size, 0.85, 1.05),
                edits=tuple(
                    cell.replace(
                        statement, f"{name} {_SIGNS[type(value.op)]} {cell.text_of(value.right)}"
                    )
                    for statement, value in steps.items()
                ),
                line_number=lines[0],
            )


def _steps(cell: TypedCell, here: Situation, name: str) -> dict[ast.stmt, ast.BinOp]:
    """Give the statements that may work in place: behind a new array, or behind each other."""
    found: dict[ast.stmt, ast.BinOp] = {}
    for made, again in pairwise(cell.assignments(name)):
        value = _replacing(cell, here, name, again)
        if value is None or not _is_untouched(cell, name, made, again):
            continue
        if made in found or _is_fresh(cell, here, name, made):
            found[again] = value
    return found


def _replacing(
    cell: TypedCell, here: Situation, name: str, statement: ast.stmt
) -> ast.BinOp | None:
    """Give `x / 2` of `x = x / 2`."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(value, ast.BinOp) or bound_to(cell, value) != name:
        return None
    is_itself = isinstance(value.left, ast.Name) and value.left.id == name
    fits = is_itself and type(value.op) in _SIGNS and _is_a_number(here, name, value.right)
    return value if fits else None


def _is_a_number(here: Situation, name: str, value: ast.expr) -> bool:
    """Say whether it is one number, of a kind that keeps the array's: a plain one, or its own."""
    if isinstance(value, ast.Constant):
        return type(value.value) in {int, float}
    known = here.known(value)
    if known is not None:
        return known.kind == "number"
    return isinstance(value, ast.Call) and not value.args and _is_sum_of(value.func, name)


def _is_sum_of(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr not in _SUMS:
        return False
    return isinstance(node.value, ast.Name) and node.value.id == name


def _is_fresh(cell: TypedCell, here: Situation, name: str, made: ast.stmt) -> bool:
    """Say whether the cell makes it there, of floats, so that nothing else holds it."""
    if not isinstance(made, ast.Assign) or bound_to(cell, made.value) != name:
        return False
    return makes_new(here, made.value) and _is_of_floats(here, made.value)


def _is_untouched(cell: TypedCell, name: str, made: ast.stmt, again: ast.stmt) -> bool:
    """Say whether one follows the other, and nothing between them can take hold of the array."""
    if made not in cell.block_of(again) or cell.function_of(again) is not None:
        return False
    if is_in_a_magic(cell, name):
        return False
    start, end = cell.end(made), cell.start(again)
    between = [read for read in reads(cell, name) if start <= cell.start(read) < end]
    return all(
        only_asks_about(cell, read) or _is_sum_of(cell.parents[read], name) for read in between
    )


def _is_of_floats(here: Situation, value: ast.expr) -> bool:
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Div)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute) and value.func.attr == "astype" and value.args:
        return "float" in ast.unparse(value.args[0])
    return numpys(here, value).rpartition(".")[2] in _FLOATS
