"""A tf.function that is traced again and again."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import TRACED_AGAIN
from oommagic.explain.advice.graphs import graph_decorator
from oommagic.explain.advice.nodes import dotted, keyword
from oommagic.explain.advice.rule import Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import HOST, Edit
from oommagic.units import format_bytes

_FEW = 5
"""A function that takes inputs of a few kinds has as many graphs; more are a mistake."""
_COMPUTING = frozenset({"float", "int", "round", "abs", "min", "max", "len", "pow", "sum"})
_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.IfExp)
_SETTLED = ("input_signature", "reduce_retracing", "experimental_relax_shapes")


class Retraces(Rule):
    """One graph for all shapes, and tensors where Python numbers are passed."""

    name = "retraces"
    title = "One graph, not one a call"
    what = (
        "Where a tf.function was traced more than a few times, it says why, and lets one graph "
        "take all shapes: `reduce_retracing=True`. A Python number has to be passed as a tensor, "
        "and a function has to be defined outside the loop: those are hints."
    )
    why = (
        "Each new shape of a tensor and each new Python number makes a graph of its own, with "
        "the constants in it, and all graphs stay for as long as the function does. "
        "`reduce_retracing` helps against new shapes only: numbers are traced each on their own."
    )
    example = "@tf.function\ndef step(x):\n    return model(x)"
    instead = "@tf.function(reduce_retracing=True)\ndef step(x):\n    return model(x)"
    safety = "same results"
    fix_safety = "The same operations run, in a graph whose sizes are left open."
    cost = ""
    causes = frozenset({"growth", "host memory", "unknown"})
    is_a_defect = True
    speaks = (
        Case(
            "@tf.function  # fast\ndef step(x):\n    return model(x)\nfor x in ds:\n    step(x)\n",
            TRACED_AGAIN,
            "@tf.function(reduce_retracing=True)  # fast\ndef step(x):\n    return model(x)\n"
            "for x in ds:\n    step(x)\n",
        ),
        Case(
            "@tf.function(jit_compile=False)\ndef step(x):\n    return model(x)\n",
            TRACED_AGAIN,
            "@tf.function(jit_compile=False, reduce_retracing=True)\ndef step(x):\n"
            "    return model(x)\n",
        ),
        Case(
            "@tf.function\ndef step(x, n):\n    return x * n\n"
            "for n, x in enumerate(ds):\n    step(x, n)\n",
            TRACED_AGAIN,
        ),
        Case("for x in ds:\n    @tf.function\n    def step():\n        return x\n", TRACED_AGAIN),
        Case(
            "@tf.function\ndef step(x, n):\n    return x * n\n"
            "for n, x in enumerate(ds):\n    step(x, max(0.1, n / 1000))\n",
            TRACED_AGAIN,
        ),
        Case(
            "@tf.function\ndef step(x, n):\n    return x * n\n"
            "for n, x in enumerate(ds):\n    step(x * n, tf.constant(n))\n",
            TRACED_AGAIN,
            "@tf.function(reduce_retracing=True)\ndef step(x, n):\n    return x * n\n"
            "for n, x in enumerate(ds):\n    step(x * n, tf.constant(n))\n",
        ),
    )
    is_silent = (
        Case("@tf.function\ndef step(x):\n    return model(x)\n", STEP_OF_96),
        Case("def step(x):\n    return model(x)\n", TRACED_AGAIN),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the functions of the cell that were traced more than a few times."""
        for node in cell.nodes:
            if isinstance(node, ast.FunctionDef):
                decorator, traces = graph_decorator(node), here.traces.get(node.name, 0)
                if decorator is not None and traces > _FEW:
                    yield _found(cell, here, node, decorator, traces)


def _found(
    cell: TypedCell, here: Situation, function: ast.FunctionDef, by: ast.expr, traces: int
) -> Found:
    why, edit = _why(cell, here, function, by)
    grown = here.growth_of("graphs")
    taken = f", {format_bytes(grown.total_bytes)} in all" if grown is not None else ""
    return Found(
        title=f"Trace `{function.name}` once, not {traces} times",
        message=f"`{function.name}` has {traces} graphs{taken}: {why}.",
        place=grown.place if grown is not None else here.place or HOST,
        saving=expected(grown.place, grown.total_bytes) if grown is not None else None,
        edits=(edit,) if edit is not None else (),
        line_number=function.lineno,
    )


def _why(
    cell: TypedCell, here: Situation, function: ast.FunctionDef, by: ast.expr
) -> tuple[str, Edit | None]:
    if cell.loop_of(function) is not None:
        return "it is defined in a loop, each time anew; define it above the loop", None
    number = _number_passed(cell, here, function.name)
    if number is not None:
        words = f"each new Python number makes one; pass `tf.constant({number})` with the data type"
        return f"{words} that its arithmetic needs", None
    if isinstance(by, ast.Call) and any(keyword(by, name) is not None for name in _SETTLED):
        return "its inputs come in many kinds; give all of them one data type and rank", None
    return "each new shape makes one; `reduce_retracing` leaves sizes open", _relaxed(cell, by)


def _relaxed(cell: TypedCell, decorator: ast.expr) -> Edit | None:
    if isinstance(decorator, ast.Call):
        return cell.set_keyword(decorator, "reduce_retracing", "True")
    return cell.replace(decorator, f"{cell.text_of(decorator)}(reduce_retracing=True)")


def _number_passed(cell: TypedCell, here: Situation, function: str) -> str | None:
    """Find what is worked out of Python numbers among what is passed to a function."""
    for call in cell.calls_of(function):
        for given in (*call.args, *(one.value for one in call.keywords)):
            for value in given.elts if isinstance(given, ast.Tuple | ast.List) else [given]:
                if _is_number(cell, here, value):
                    return cell.text_of(value)
    return None


def _is_number(cell: TypedCell, here: Situation, value: ast.expr) -> bool:
    """Say whether a count or another number is in it, and nothing that makes a tensor of it."""
    names = list(_worked_out_of(value))
    kinds = {here.names[one.id].kind for one in names if one.id in here.names}
    counts = any(one.id in cell.counters for one in names)
    return (counts or "number" in kinds) and kinds.isdisjoint({"tensor", "variable", "array"})


def _worked_out_of(value: ast.expr) -> Iterator[ast.Name]:
    """Yield the names of which Python's own arithmetic makes a value: `n` of `float(n) / 1000`."""
    if isinstance(value, ast.Name):
        yield value
    is_own = isinstance(value, ast.Call) and dotted(value.func) in _COMPUTING
    if is_own or isinstance(value, _ARITHMETIC):
        for part in ast.iter_child_nodes(value):
            if isinstance(part, ast.expr):
                yield from _worked_out_of(part)
