"""Whether a name that stands for the size of batches stands for nothing else.

`n = 128` may be the number of images or a layer's units, too. Then another number is written where
it is the size of batches, and the name stays as it is.
"""

import ast
import re
from typing import Literal

from oommagic.explain.advice.arrays import reads
from oommagic.explain.advice.nodes import argument, called
from oommagic.explain.advice.parameters import Function, parameter_given
from oommagic.explain.advice.typed import TypedCell

SIZE_AT = 2
"""Where `fit` has it without its name: `fit(x, y, 32)`."""
BATCHING = ("batch", "padded_batch", "ragged_batch")
"""Methods of data sets that make batches of their first argument's size."""
SHAPES_OF_BATCHES = ("batch_shape", "batch_input_shape")
_CALLED_SO = re.compile(r"(?:mini_?)?batch_?(?:size)?|bs")
"""What people call the size of a batch."""
_SIZES = {*SHAPES_OF_BATCHES, "validation_batch_size"}
_PLACES = {
    "fit": SIZE_AT, "evaluate": SIZE_AT, "predict": 1, "range": 2,
    **dict.fromkeys(BATCHING, 0),
}  # fmt: skip
"""What takes the size of batches, and where without its name: `range(0, len(x), 32)`, too."""
_TELLING = ("print", "format")
_SAME_NUMBER = ("int", "float")
_DIVISIONS = (ast.FloorDiv, ast.Div, ast.Mod)
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

Meaning = Literal["batches", "more", "unclear"]


def is_called_so(name: str) -> bool:
    """Say whether people call the size of a batch so: `BATCH_SIZE`."""
    return bool(_CALLED_SO.fullmatch(name.lower()))


def meaning_of(cell: TypedCell, name: str) -> Meaning:
    """Say what a name stands for, by all its uses.

    What is called a batch is one where a loop or a function uses it: `normal((batch_size, 8))`.
    It is not clear what it is if something is made of it beside, as data are.
    """
    others = [one for one in reads(cell, name) if not _is_of_batches(cell, one)]
    inside = [one for one in others if is_called_so(name) and _is_in_a_step(cell, one)]
    if len(inside) == len(others):
        return "batches"
    return "unclear" if inside else "more"


def _is_in_a_step(cell: TypedCell, read: ast.Name) -> bool:
    return cell.is_repeated(read) or any(isinstance(one, _LATER) for one in cell.around(read))


def _is_of_batches(cell: TypedCell, read: ast.Name, within: tuple[Function, ...] = ()) -> bool:
    """Say whether it is for the size of batches there, or tells of it, and nothing else."""
    value, above = _multiple_of(cell, read)
    if isinstance(above, ast.BinOp | ast.FormattedValue | ast.Compare):
        return True
    if isinstance(above, ast.Slice):
        return _is_in_a_step(cell, read)
    call = cell.parents[above] if isinstance(above, ast.keyword) else above
    return _takes_it(call, value) or _is_passed_on(cell, call, value, within)


def _multiple_of(cell: TypedCell, read: ast.Name) -> tuple[ast.AST, ast.AST]:
    """Give the number that is worked out with it, or the shape that begins so, and what has that.

    Not what is divided by it: that counts batches.
    """
    value: ast.AST = read
    above = cell.parents[read]
    while _goes_on(value, above):
        value, above = above, cell.parents[above]
    return value, above


def _goes_on(value: ast.AST, above: ast.AST) -> bool:
    if isinstance(above, ast.BinOp):
        return not (isinstance(above.op, _DIVISIONS) and value is above.right)
    if isinstance(above, ast.Tuple | ast.List):
        return value is above.elts[0]
    return isinstance(above, ast.Call) and called(above) in _SAME_NUMBER


def _takes_it(call: ast.AST, value: ast.AST) -> bool:
    """Say whether a call takes a value for the size of its batches, or only tells it."""
    if not isinstance(call, ast.Call):
        return False
    named = next((one.arg or "" for one in call.keywords if one.value is value), "")
    place = _PLACES.get(called(call))
    is_placed = place is not None and argument(call, place, "") is value
    return is_placed or is_called_so(named) or named in _SIZES or called(call) in _TELLING


def _is_passed_on(
    cell: TypedCell, call: ast.AST, value: ast.AST, within: tuple[Function, ...]
) -> bool:
    """Say whether it is given to a function of the cell that takes it for the size of batches."""
    given = parameter_given(cell, call, value)
    if given is None or given[0] in within:
        return given is not None
    function, name = given
    return all(
        _is_of_batches(cell, one, (*within, function)) or is_called_so(name)
        for one in reads(cell, name)
        if function in cell.around(one)
    )
