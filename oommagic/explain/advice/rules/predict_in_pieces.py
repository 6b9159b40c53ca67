"""Predict a large array piece by piece, and keep of each piece what is needed."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from oommagic.explain.advice.arrays import bound_to, numpys
from oommagic.explain.advice.examples import HOST_RAN_OUT, MODEL
from oommagic.explain.advice.host_memory import lower_at, taken_by_line
from oommagic.explain.advice.nodes import argument, keyword, names_in
from oommagic.explain.advice.rule import HOST_CAUSES, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.training import is_on_model
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import Named
from oommagic.report import HOST, LineUsage
from oommagic.units import GIB, format_bytes

_FEWEST_ROWS, _MOST_ROWS, _PIECES = 32, 4096, 8
_PLAIN_ARGUMENTS = 2
"""Of `predict` those without a name that each piece has alike: the data, and the batch size."""
_COPIES = 2
"""How often `predict` has the array in memory beside itself."""

_FULL = replace(
    HOST_RAN_OUT,
    names={**HOST_RAN_OUT.names, "model": Named("model", model=MODEL)},
    cause="none",
    place="",
    host_before_bytes=4 * GIB,
    lines=(LineUsage(1, "", hits=1, host_peak_bytes=12 * GIB),),
)


@dataclass(frozen=True, slots=True)
class _Whole:
    """A prediction of a whole array, and what is made of it at once."""

    predict: ast.Call
    outer: ast.Call
    """The call to be made for each piece: `predict` itself, or the `argmax` of it."""
    array: str


class PredictInPieces(Rule):
    """Copies of a few thousand samples at a time."""

    name = "predict-in-pieces"
    title = "Predict piece by piece"
    what = (
        "Where `predict` of a large array takes much memory, it predicts a few thousand samples at "
        "a time; where only the class is wanted, it keeps the class of each alone."
    )
    why = (
        "`predict` makes a tensor of the whole array, and holds it twice for a while. It keeps the "
        "outputs of all batches, and joins them at the end: then they are there twice too. Batches "
        "bound what the model computes at once, not that."
    )
    example = "classes = np.argmax(model.predict(x), axis=1)"
    instead = (
        "classes = np.concatenate([\n"
        "    np.argmax(model.predict(x[start : start + 4096], verbose=0), axis=1)\n"
        "    for start in range(0, len(x), 4096)\n"
        "])"
    )
    safety = "same results"
    fix_safety = "The same outputs in the same order."
    cost = "a little time for each piece"
    causes = HOST_CAUSES
    speaks = (
        Case(
            "k = np.argmax(model.predict(x), axis=1)  # classes\n",
            _FULL,
            "k = np.concatenate([\n"
            "    np.argmax(model.predict(x[start : start + 1024], verbose=0), axis=1)\n"
            "    for start in range(0, len(x), 1024)\n"
            "])  # classes\n",
        ),
        Case(
            "y = model.predict(x, batch_size=64, verbose=2)\n",
            _FULL,
            "y = np.concatenate([\n"
            "    model.predict(x[start : start + 1024], batch_size=64, verbose=2)\n"
            "    for start in range(0, len(x), 1024)\n"
            "])\n",
        ),
        Case(
            "k = model.predict(x).argmax(axis=-1)\n",
            _FULL,
            "k = np.concatenate([\n"
            "    model.predict(x[start : start + 1024], verbose=0).argmax(axis=-1)\n"
            "    for start in range(0, len(x), 1024)\n"
            "])\n",
        ),
    )
    is_silent = (
        Case("for part in parts:\n    k = model.predict(part)\n", _FULL),
        Case("outputs = model.predict(x)\n", _FULL),
        Case("k = model.predict(x).argmax()\n", _FULL),
        Case("y = model.predict(x, steps=3)\n", _FULL),
        Case("y = model.predict(x, 64, 1)\n", _FULL),
        Case("y = model.predict(x, **options)\n", _FULL),
        Case("y = forest.predict(x)\n", _FULL),
        Case("y = model.predict(x)\n"),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find predictions of large arrays."""
        numpy = here.module("numpy")
        for call in cell.calls_of("predict") if numpy else ():
            whole = _whole(cell, here, call)
            code = None if whole is None else _in_pieces(cell, here, whole)
            if whole is None or code is None:
                continue
            statement = cell.statement(call)
            taken = taken_by_line(here, statement.lineno)
            size = _saved(here, whole, taken)
            yield Found(
                title=f"Predict `{whole.array}` in pieces of {_rows(here, whole.array)}",
                message=(
                    f"`predict` copies `{whole.array}`, and keeps the outputs of all batches until "
                    f"it joins them: line {statement.lineno} took up to {format_bytes(taken)}."
                ),
                place=HOST,
                saving=expected(HOST, lower_at(here, {statement.lineno: size}), 0.7, 1.1),
                edits=(cell.replace(whole.outer, code),),
                line_number=call.lineno,
            )


def _whole(cell: TypedCell, here: Situation, call: ast.Call) -> _Whole | None:
    data = call.args[0] if call.args else None
    array = here.array(data.id) if isinstance(data, ast.Name) else None
    if not is_on_model(here, call):
        return None
    if array is None or not array.shape or not isinstance(data, ast.Name):
        return None
    if cell.is_repeated(call) or cell.function_of(call) is not None or not _is_of_all(call):
        return None
    outer = _argmax_of(cell, here, call)
    if outer is not None:
        return _Whole(call, outer, data.id)
    # Bound to one array: the model has one output.
    return _Whole(call, call, data.id) if here.array(bound_to(cell, call)) else None


def _is_of_all(call: ast.Call) -> bool:
    """Say whether all rows are predicted, as far as it shows: `steps` would count in each piece."""
    named = {one.arg for one in call.keywords}
    return len(call.args) <= _PLAIN_ARGUMENTS and named.isdisjoint({"steps", None})


def _argmax_of(cell: TypedCell, here: Situation, call: ast.Call) -> ast.Call | None:
    """Give `np.argmax(model.predict(x), axis=1)` or `model.predict(x).argmax(1)`, if it is that."""
    above = cell.parents[call]
    if isinstance(above, ast.Attribute) and above.attr == "argmax":
        outer, place = cell.parents[above], 0
    else:
        outer, place = above, 1
        if numpys(here, outer) != "argmax":
            return None
    axis = argument(outer, place, "axis") if isinstance(outer, ast.Call) else None
    is_last = axis is not None and ast.unparse(axis) in {"1", "-1"}
    return outer if is_last and isinstance(outer, ast.Call) else None


def _in_pieces(cell: TypedCell, here: Situation, whole: _Whole) -> str | None:
    """Write it as pieces that are joined; None where comments or names stand in the way."""
    call, rows, text = whole.predict, _rows(here, whole.array), cell.text
    rest = text[cell.end(call.args[0]) : cell.end(call) - 1].rstrip().removesuffix(",")
    if "#" in cell.text_of(whole.outer) or "start" in names_in(whole.outer):
        return None
    quiet = "" if keyword(call, "verbose") is not None else ", verbose=0"
    one = text[cell.start(whole.outer) : cell.end(call.args[0])]
    one += f"[start : start + {rows}]{rest}{quiet})"
    one += text[cell.end(call) : cell.end(whole.outer)]
    margin = cell.margin(cell.statement(call).lineno)
    pieces = f"for start in range(0, len({whole.array}), {rows})"
    return (
        f"{here.module('numpy')}.concatenate([\n{margin}    {one}\n{margin}    {pieces}\n{margin}])"
    )


def _rows(here: Situation, name: str) -> int:
    """Give the rows of a piece: a power of two, so that batches stay whole."""
    rows = (here.names[name].shape or (0,))[0] // _PIECES
    return max(_FEWEST_ROWS, min(_MOST_ROWS, 1 << max(0, rows.bit_length() - 1)))


def _saved(here: Situation, whole: _Whole, taken: int) -> int:
    array = here.names[whole.array]
    share = 1 - _rows(here, whole.array) / max(1, (array.shape or (1,))[0])
    if whole.outer is not whole.predict:
        return int(taken * max(0.0, share))
    return min(taken, int(_COPIES * array.bytes * max(0.0, share)))
