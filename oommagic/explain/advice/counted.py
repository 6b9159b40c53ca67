"""Numbers of batches that a cell says, and what they become when batches are smaller."""

import ast
from collections.abc import Collection, Iterator

from oommagic.explain.advice.nodes import argument, keyword
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit

_NEEDS_NO_PARENTHESES = ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant


def multiplied(cell: TypedCell, sizes: Collection[ast.expr], times: int) -> Iterator[Edit]:
    """Yield the edits by which as many samples are in so many times as many batches.

    `sizes` are the places that say the batch size: what is worked out of that follows by itself.
    """
    for count in dict.fromkeys(_counts(cell, sizes)):
        if isinstance(count, ast.UnaryOp) or _follows(cell, count, sizes):
            continue  # -1 stands for all
        if isinstance(count, ast.Constant) and type(count.value) is int:
            yield cell.replace(count, str(count.value * times))
        elif not isinstance(count, ast.Constant):
            text = cell.text_of(count)
            whole = text if isinstance(count, _NEEDS_NO_PARENTHESES) else f"({text})"
            yield cell.replace(count, f"{whole} * {times}")


def _counts(cell: TypedCell, sizes: Collection[ast.expr]) -> Iterator[ast.expr]:
    """Yield what counts batches of training: of an epoch, or taken from a data set."""
    for call in cell.calls_of("fit"):
        steps = keyword(call, "steps_per_epoch")
        if steps is not None:
            yield steps
    for call in cell.calls_of("take", "skip"):
        count = argument(call, 0, "count")
        made = [one for one in ast.walk(call.func) if isinstance(one, ast.Call)]
        given = (argument(one, 0, "batch_size") for one in made)
        if count is not None and any(_is_one_of(cell, one, sizes) for one in given):
            yield count


def _is_one_of(cell: TypedCell, size: ast.expr | None, sizes: Collection[ast.expr]) -> bool:
    return size is not None and (size in sizes or cell.resolved(size) in sizes)


def _follows(cell: TypedCell, count: ast.expr, sizes: Collection[ast.expr]) -> bool:
    """Say whether a count is worked out of the size of a batch."""
    parts = [*ast.walk(count), *ast.walk(cell.resolved(count))]
    return any(isinstance(one, ast.expr) and _is_one_of(cell, one, sizes) for one in parts)
