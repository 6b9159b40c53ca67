"""Numbers of batches that a cell says, and what they become when batches are smaller."""

import ast
from collections.abc import Collection, Iterator

from oommagic.explain.advice.nodes import argument, called, keyword
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.size_names import BATCHING, SIZE_AT
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit

_NEEDS_NO_PARENTHESES = ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant


def multiplied(
    cell: TypedCell, here: Situation, sizes: Collection[ast.expr], times: int
) -> Iterator[Edit]:
    """Yield the edits by which as many samples are in so many times as many batches.

    `sizes` are the places that say the batch size: what is worked out of that follows by itself.
    """
    for count in dict.fromkeys(_counts(cell, here, sizes)):
        if isinstance(count, ast.UnaryOp) or _follows(cell, count, sizes):
            continue  # -1 stands for all
        if isinstance(count, ast.Constant) and type(count.value) is int:
            yield cell.replace(count, str(count.value * times))
        elif not isinstance(count, ast.Constant):
            text = cell.text_of(count)
            whole = text if isinstance(count, _NEEDS_NO_PARENTHESES) else f"({text})"
            yield cell.replace(count, f"{whole} * {times}")


def _counts(cell: TypedCell, here: Situation, sizes: Collection[ast.expr]) -> Iterator[ast.expr]:
    """Yield what counts batches: of an epoch, of its validation, or taken from a data set."""
    for call in cell.calls_of("fit"):
        steps, validation = keyword(call, "steps_per_epoch"), keyword(call, "validation_steps")
        if steps is not None:
            yield steps
        if validation is not None and _is_validated_by(cell, here, call, sizes):
            yield validation
    for call in cell.calls_of("take", "skip"):
        count = argument(call, 0, "count")
        if count is not None and _is_batched_by(cell, call.func, sizes):
            yield count


def _is_validated_by(
    cell: TypedCell, here: Situation, fit: ast.Call, sizes: Collection[ast.expr]
) -> bool:
    """Say whether validation has batches of such a size: of its data, or where those are arrays."""
    data = keyword(fit, "validation_data")
    if data is not None and not _is_of_arrays(cell, here, data):
        made = [data, *(one for name in cell.names_reached(data) for one in cell.makers(name))]
        if here.known(data) is not None or any(_batches_in(one) for one in made):
            return any(_is_batched_by(cell, one, sizes) for one in made)
    own = keyword(fit, "validation_batch_size") or argument(fit, SIZE_AT, "batch_size")
    return fit in sizes or _is_one_of(cell, own, sizes)


def _is_of_arrays(cell: TypedCell, here: Situation, data: ast.expr) -> bool:
    """Say whether data have no batches of their own, however they were made: `(x, y)` has none."""
    known = here.known(data)
    if known is None:
        return isinstance(cell.resolved(data), ast.Tuple | ast.List)
    return known.kind in {"array", "tensor", "list"} or known.text in {"tuple", "dict"}


def _batches_in(node: ast.AST) -> list[ast.expr]:
    """List the sizes that are given there to what makes batches."""
    made = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    given = [argument(one, 0, "") for one in made if called(one) in BATCHING]
    given += [keyword(one, "batch_size") for one in made]
    return [one for one in given if one is not None]


def _is_batched_by(cell: TypedCell, node: ast.AST, sizes: Collection[ast.expr]) -> bool:
    """Say whether what makes batches there is given such a size."""
    return any(_is_one_of(cell, one, sizes) for one in _batches_in(node))


def _is_one_of(cell: TypedCell, size: ast.expr | None, sizes: Collection[ast.expr]) -> bool:
    return size is not None and (size in sizes or cell.resolved(size) in sizes)


def _follows(cell: TypedCell, count: ast.expr, sizes: Collection[ast.expr]) -> bool:
    """Say whether a count is worked out of the size of a batch."""
    parts = [*ast.walk(count), *ast.walk(cell.resolved(count))]
    return any(isinstance(one, ast.expr) and _is_one_of(cell, one, sizes) for one in parts)
