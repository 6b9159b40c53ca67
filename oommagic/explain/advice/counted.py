"""Numbers of batches that a cell says, and what they become when batches are smaller."""

import ast
from collections.abc import Collection, Iterator

from oommagic.explain.advice.nodes import argument, keyword
from oommagic.explain.advice.size_names import SIZE_AT
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
    """Yield what counts batches: of an epoch, of its validation, or taken from a data set."""
    for call in cell.calls_of("fit"):
        steps, validation = keyword(call, "steps_per_epoch"), keyword(call, "validation_steps")
        if steps is not None:
            yield steps
        if validation is not None and _is_validated_by(cell, call, sizes):
            yield validation
    for call in cell.calls_of("take", "skip"):
        count = argument(call, 0, "count")
        if count is not None and _is_batched_by(cell, call.func, sizes):
            yield count


def _is_validated_by(cell: TypedCell, fit: ast.Call, sizes: Collection[ast.expr]) -> bool:
    """Say whether validation has batches of such a size: of its data, or where those are arrays."""
    own = keyword(fit, "validation_batch_size") or argument(fit, SIZE_AT, "batch_size")
    if own is not None or fit in sizes:
        return fit in sizes or _is_one_of(cell, own, sizes)
    data = keyword(fit, "validation_data")
    given = cell.assignments(data.id) if isinstance(data, ast.Name) else ()
    return any(_is_batched_by(cell, one, sizes) for one in (data, *given) if one is not None)


def _is_batched_by(cell: TypedCell, node: ast.AST, sizes: Collection[ast.expr]) -> bool:
    """Say whether a call in it is given such a size."""
    made = (one for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(
        _is_one_of(cell, argument(one, 0, "batch_size"), sizes)
        or _is_one_of(cell, keyword(one, "batch_size"), sizes)
        for one in made
    )


def _is_one_of(cell: TypedCell, size: ast.expr | None, sizes: Collection[ast.expr]) -> bool:
    return size is not None and (size in sizes or cell.resolved(size) in sizes)


def _follows(cell: TypedCell, count: ast.expr, sizes: Collection[ast.expr]) -> bool:
    """Say whether a count is worked out of the size of a batch."""
    parts = [*ast.walk(count), *ast.walk(cell.resolved(count))]
    return any(isinstance(one, ast.expr) and _is_one_of(cell, one, sizes) for one in parts)
