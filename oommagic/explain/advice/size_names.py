"""Whether a name that stands for the size of batches stands for nothing else.

`n = 128` may be the number of images or a layer's units, too. Then another number is written where
it is the size of batches, and the name stays as it is.
"""

import ast
import re
from collections.abc import Iterator
from typing import Literal

from oommagic.explain.advice.arrays import reads
from oommagic.explain.advice.graphs import is_in_graph
from oommagic.explain.advice.nodes import argument, called, dotted, names_in, whole_number
from oommagic.explain.advice.parameters import Function, parameter_given
from oommagic.explain.advice.typed import TypedCell

SIZE_AT = 2
"""Where `fit` has it without its name: `fit(x, y, 32)`."""
BATCHING = ("batch", "padded_batch", "ragged_batch")
"""Methods of data sets that make batches of their first argument's size."""
SHAPES_OF_BATCHES = ("batch_shape", "batch_input_shape")
_CALLED_SO = re.compile(r"(?:mini_?)?batch_?(?:size)?|bs")
"""What people call the size of a batch."""
_SIZES = {*SHAPES_OF_BATCHES, "validation_batch_size", "global_batch_size"}
_PLACES = {
    "fit": SIZE_AT, "evaluate": SIZE_AT, "predict": 1, "range": 2,
    **dict.fromkeys(BATCHING, 0),
}  # fmt: skip
"""What takes the size of batches, and where without its name: `range(0, len(x), 32)`, too."""
_TELLING = ("print", "format")
_SAME_NUMBER = ("int", "float")
_ROUNDING = (*_SAME_NUMBER, "ceil", "floor", "round")
_ROWS = ("len", "cardinality")
"""What tells how many rows there are: of arrays, and of a data set."""
_DIVISIONS = (ast.FloorDiv, ast.Div, ast.Mod)
_STEP = "train_step"

Meaning = Literal["batches", "more", "unclear"]


def is_called_so(name: str) -> bool:
    """Say whether people call the size of a batch so: `BATCH_SIZE`."""
    return bool(_CALLED_SO.fullmatch(name.lower()))


def meaning_of(cell: TypedCell, name: str) -> Meaning:
    """Say what a name stands for, by all its uses.

    What is called a batch is one where a loop or a step uses it: `normal((batch_size, 8))`. It is
    not clear what it is if something is made of it beside, as data are.
    """
    others = [one for one in reads(cell, name) if not _is_of_batches(cell, one)]
    if not is_called_so(name):
        return "more" if others else "batches"
    meanings = {_meaning_there(cell, one) for one in others}
    if meanings <= {"batches"}:
        return "batches"
    return "more" if meanings == {"more"} else "unclear"


def _meaning_there(cell: TypedCell, read: ast.Name) -> Meaning:
    """Say what it is where nothing takes it for the size of batches, though it is called so.

    Layers have it for their units. A function that is no step may make the data with it, and a
    loop may take a piece of them, `x[:BATCH]`.
    """
    value, above = _multiple_of(cell, read)
    call = cell.parents[above] if isinstance(above, ast.keyword) else above
    if isinstance(call, ast.Call) and called(call)[:1].isupper():
        return "unclear" if isinstance(value, ast.Tuple | ast.List) else "more"
    if isinstance(above, ast.Slice) and cell.is_repeated(read):
        return "unclear"
    functions = tuple(_functions_around(cell, read))
    if cell.is_repeated(read) or any(_is_a_step(cell, one) for one in functions):
        return "batches"
    return "unclear" if functions else "more"


def _functions_around(cell: TypedCell, read: ast.AST) -> Iterator[Function | ast.Lambda]:
    """Yield the functions in whose bodies it stands: a default is worked out outside of its own."""
    below = read
    for above in cell.around(read):
        if isinstance(above, Function | ast.Lambda):
            body = [above.body] if isinstance(above, ast.Lambda) else above.body
            if below in body:
                yield above
        below = above


def _is_a_step(
    cell: TypedCell, function: Function | ast.Lambda, within: tuple[ast.AST, ...] = ()
) -> bool:
    """Say whether a function runs for each batch: a loop calls it, or Keras or a graph runs it."""
    if isinstance(function, ast.Lambda) or function in within:
        return False
    return (
        function.name == _STEP
        or is_in_graph(cell, function.body[0])
        or any(_is_called_in_a_step(cell, one, (*within, function))
               for one in cell.calls_of(function.name))
    )  # fmt: skip


def _is_called_in_a_step(cell: TypedCell, call: ast.Call, within: tuple[ast.AST, ...]) -> bool:
    around = _functions_around(cell, call)
    return cell.is_repeated(call) or any(_is_a_step(cell, one, within) for one in around)


def _is_of_batches(cell: TypedCell, read: ast.Name, within: tuple[Function, ...] = ()) -> bool:
    """Say whether it is for the size of batches there, or tells of it, and nothing else."""
    value, above = _multiple_of(cell, read)
    match above:
        case ast.FormattedValue():
            return True
        case ast.BinOp():
            return _counts_batches(cell, read, above)
        case ast.Compare():
            sides = (above.left, *above.comparators)
            return is_called_so(read.id) or any(_counts_rows(cell, one) for one in sides)
        case ast.Slice():
            return _cuts_a_batch(cell, read, above)
    call = cell.parents[above] if isinstance(above, ast.keyword) else above
    return _takes_it(call, value) or _is_passed_on(cell, call, value, within)


def _counts_batches(cell: TypedCell, read: ast.Name, division: ast.BinOp) -> bool:
    """Say whether rows are divided by it, and not images: `len(x) // n`, `ceil(rows / BATCH)`."""
    if _counts_rows(cell, division.left):
        return True
    above = cell.parents[division]
    is_rounded = isinstance(above, ast.Call) and called(above) in _ROUNDING
    return is_called_so(read.id) and (is_rounded or not isinstance(division.op, ast.Div))


def _counts_rows(cell: TypedCell, value: ast.expr) -> bool:
    """Say whether a value is worked out of how many rows there are: `len(x)`, `x.shape[0] - 1`."""
    return any(_gives_rows(one) for one in ast.walk(cell.resolved(value)))


def _gives_rows(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return called(node) in _ROWS
    is_of_shape = isinstance(node, ast.Subscript) and dotted(node.value).endswith("shape")
    return is_of_shape and isinstance(node, ast.Subscript) and whole_number(node.slice) == 0


def _cuts_a_batch(cell: TypedCell, read: ast.Name, cut: ast.Slice) -> bool:
    """Say whether a loop or a function cuts one batch after another: `x[i * n : (i + 1) * n]`.

    Not `x[:n]`, nor `x[n : 2 * n]`: that is the same piece each time.
    """
    moves = cut.lower is not None and not {read.id}.issuperset(names_in(cut.lower))
    is_whole = moves and cut.upper is not None
    return is_whole and (cell.is_repeated(read) or any(_functions_around(cell, read)))


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
