"""Where a cell says how large its batches are, and another size in its place."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oommagic.explain.advice.nodes import argument, called, keyword
from oommagic.explain.advice.parameters import meant, whose_parameter
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.size_names import (
    BATCHING,
    SHAPES_OF_BATCHES,
    SIZE_AT,
    is_called_so,
    meaning_of,
)
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit

_KERASS = 32
"""What `fit` takes where nothing is said."""
_INPUTS = ("Input", "InputLayer")
_LISTED = (ast.Tuple, ast.List)
_BY_KEYWORD = (
    "image_dataset_from_directory",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
    "flow",
    "flow_from_directory",
    "flow_from_dataframe",
)


@dataclass(frozen=True, slots=True)
class BatchSize:
    """A size of batches, and where it is written."""

    size: int
    written: ast.expr
    """The number that would have to change: of the argument, or of the name that stands there.

    Where `fit` says none, the call.
    """
    is_clear: bool = True
    """Whether no data are made with the same number, beside what goes by the size of batches."""

    @property
    def line_number(self) -> int:
        """The line that would change."""
        return self.written.lineno


def batch_sizes(cell: TypedCell, here: Situation) -> Iterator[BatchSize]:
    """Yield every size that the cell gives to what makes batches for training."""
    for call in cell.calls_of("fit"):
        said = argument(call, SIZE_AT, "batch_size")
        yield from _size(cell, here, said)
        if said is None and _has_kerass(call, here):
            yield BatchSize(_KERASS, call)
    for call in cell.calls_of(*_BY_KEYWORD):
        yield from _size(cell, here, keyword(call, "batch_size"))
    for call in cell.calls_of(*BATCHING):
        yield from _size(cell, here, argument(call, 0, "batch_size"))
    yield from _sliced_by_hand(cell)


def sizes_that_ran(cell: TypedCell, here: Situation) -> tuple[BatchSize, ...]:
    """Give the places where the cell says the size of the steps that ran."""
    found = tuple(one for one in batch_sizes(cell, here) if one.size == here.batch)
    found = found or tuple(_at_the_only_fit(cell, here.batch or 0))
    return (*found, *_in_shapes(cell, here)) if found else ()


def size_for_shapes(cell: TypedCell, here: Situation, most: int) -> int:
    """Give the largest size that may be written: shapes of batches are fixed for all of the data.

    So it divides the size that ran, as that divides the data.
    """
    if not any(_in_shapes(cell, here)):
        return most
    return next(size for size in range(most, 0, -1) if (here.batch or 0) % size == 0)


def resized(cell: TypedCell, sizes: Sequence[BatchSize], batch: int) -> tuple[Edit, ...]:
    """Write another size in these places, all or none; several may have it from one name.

    None for layers that go on with each sample where the batch before it has left off.
    """
    if _is_stateful(cell) or not all(size.is_clear for size in sizes):
        return ()
    places = dict.fromkeys(size.written for size in sizes)
    edits = [_resized(cell, place, str(batch)) for place in places]
    return () if None in edits else tuple(edit for edit in edits if edit is not None)


def _resized(cell: TypedCell, place: ast.expr, batch: str) -> Edit | None:
    if isinstance(place, ast.Call):
        return cell.set_keyword(place, "batch_size", batch)
    return cell.replace(place, batch)


def _is_stateful(cell: TypedCell) -> bool:
    given = [keyword(call, "stateful") for call in cell.calls]
    return any(
        not isinstance(one, ast.Constant) or bool(one.value) for one in given if one is not None
    )


def _has_kerass(call: ast.Call, here: Situation) -> bool:
    """Say whether a call of `fit` that says no size has Keras's: with arrays it does."""
    is_sure = len(call.args) <= SIZE_AT and all(one.arg is not None for one in call.keywords)
    known = here.known(argument(call, 0, "x"))
    return is_sure and known is not None and known.kind in {"array", "tensor"}


def _at_the_only_fit(cell: TypedCell, batch: int) -> Iterator[BatchSize]:
    """Yield the size that ran where the one `fit` has it from an attribute or an item."""
    said = [argument(call, SIZE_AT, "batch_size") for call in cell.calls_of("fit")]
    for size in said if len(said) == 1 else ():
        if isinstance(size, ast.Attribute | ast.Subscript) and not _may_change(cell, size):
            yield BatchSize(batch, size)


def _in_shapes(cell: TypedCell, here: Situation) -> Iterator[BatchSize]:
    """Yield the size that ran where a model takes batches of that alone: `batch_shape=(128, 8)`."""
    for call in cell.calls:
        shapes = [keyword(call, name) for name in SHAPES_OF_BATCHES]
        first = [one.elts[0] for one in shapes if isinstance(one, _LISTED) and one.elts]
        if called(call) in _INPUTS:
            first += filter(None, [keyword(call, "batch_size")])
        for written in first:
            yield from (one for one in _size(cell, here, written) if one.size == here.batch)


def _may_change(cell: TypedCell, size: ast.expr) -> bool:
    """Say whether a size may be another one each time: of a loop, or of what is passed."""
    names = [one for one in ast.walk(size) if isinstance(one, ast.Name) and one.id != "self"]
    return cell.is_repeated(size) or any(whose_parameter(cell, one) for one in names)


def _sliced_by_hand(cell: TypedCell) -> Iterator[BatchSize]:
    """Yield the size by which a loop cuts arrays: `x[i * batch_size : (i + 1) * batch_size]`."""
    for node in cell.nodes:
        if isinstance(node, ast.Slice) and node.lower is not None and cell.is_repeated(node):
            named = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            sizes = [one for one in named if is_called_so(one.id)]
            number = cell.number(sizes[0]) if sizes else None
            if number is not None:
                is_clear = meaning_of(cell, sizes[0].id) == "batches"
                yield BatchSize(number, cell.resolved(sizes[0]), is_clear)


def _size(cell: TypedCell, here: Situation, value: ast.expr | None) -> Iterator[BatchSize]:
    for one in () if value is None else meant(cell, value):
        number = cell.number(one)
        if number is not None:
            meaning = meaning_of(cell, one.id) if isinstance(one, ast.Name) else "batches"
            written = one if meaning == "more" else cell.resolved(one)
            yield BatchSize(number, written, is_clear=meaning != "unclear")
        elif isinstance(one, ast.Name) and not cell.assignments_for(one):
            # The name has its number from another cell: here it can be replaced where it is used.
            known = here.known(one)
            if known is not None and known.number is not None:
                yield BatchSize(int(known.number), one)
