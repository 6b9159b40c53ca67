"""Where a cell says how large its batches are, and another size in its place."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oommagic.explain.advice.nodes import argument, keyword
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit

_CALLED_SO = re.compile(r"(?:mini_?)?batch_?(?:size)?|bs")
"""What people call the size of a batch."""
_SIZE_AT = 2
"""Where `fit` has it without its name: `fit(x, y, 32)`."""
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
    """The number that would have to change: of the argument, or of the name that stands there."""

    @property
    def line_number(self) -> int:
        """The line that would change."""
        return self.written.lineno


def batch_sizes(cell: TypedCell, here: Situation) -> Iterator[BatchSize]:
    """Yield every size that the cell gives to what makes batches for training."""
    for call in cell.calls_of("fit"):
        yield from _size(cell, here, argument(call, _SIZE_AT, "batch_size"))
    for call in cell.calls_of(*_BY_KEYWORD):
        yield from _size(cell, here, keyword(call, "batch_size"))
    for call in cell.calls_of("batch", "padded_batch", "ragged_batch"):
        yield from _size(cell, here, argument(call, 0, "batch_size"))
    yield from _sliced_by_hand(cell)


def sizes_that_ran(cell: TypedCell, here: Situation) -> tuple[BatchSize, ...]:
    """Give the places where the cell says the size of the steps that ran."""
    return tuple(one for one in batch_sizes(cell, here) if one.size == here.batch)


def resized(cell: TypedCell, sizes: Sequence[BatchSize], batch: int) -> tuple[Edit, ...]:
    """Write another size in these places; several may have it from one name."""
    return tuple(cell.replace(one, str(batch)) for one in dict.fromkeys(s.written for s in sizes))


def _sliced_by_hand(cell: TypedCell) -> Iterator[BatchSize]:
    """Yield the size by which a loop cuts arrays: `x[i * batch_size : (i + 1) * batch_size]`."""
    for node in cell.nodes:
        if isinstance(node, ast.Slice) and node.lower is not None and cell.is_repeated(node):
            named = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            sizes = [one for one in named if _CALLED_SO.fullmatch(one.id.lower())]
            number = cell.number(sizes[0]) if sizes else None
            if number is not None:
                yield BatchSize(number, cell.resolved(sizes[0]))


def _size(cell: TypedCell, here: Situation, value: ast.expr | None) -> Iterator[BatchSize]:
    if value is None:
        return
    number = cell.number(value)
    if number is not None:
        yield BatchSize(number, cell.resolved(value))
    elif isinstance(value, ast.Name) and not cell.assignments(value.id):
        # The name has its number from another cell: here it can be replaced where it is used.
        known = here.known(value)
        if known is not None and known.number is not None:
            yield BatchSize(int(known.number), value)
