"""The shapes that a traced function ran with, where it was traced for any batch size."""

from collections.abc import Iterable, Sequence
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.tf.xla_functions import CannotCompileError, Shape, Unknown

keep_builtins(globals())


def known_shapes(
    data: Sequence[tuple[Unknown, Any]], seen: Iterable[tuple[Shape, str]]
) -> set[tuple[Shape, ...]]:
    """Fill in what was left open at tracing, from the shapes that were seen on the device.

    All arguments have the batch size in front; other open dimensions are taken as they were seen.
    """
    if all(None not in shape for shape, _ in data):
        return {tuple(_filled(shape, ()) for shape, _ in data)}
    found = set()
    for batch in {shape[0] for shape, _ in seen}:
        filled = [_seen_as(shape, dtype, batch, seen) for shape, dtype in data]
        whole = tuple(shape for shape in filled if shape is not None)
        largest = max((s for s, _ in data if None in s), key=len)
        is_seen = any(_matches(largest, other) and other[0] == batch for other, _ in seen)
        if len(whole) == len(data) and is_seen:
            found.add(whole)
    return found


def _seen_as(
    shape: Unknown, dtype: Any, batch: int, seen: Iterable[tuple[Shape, str]]
) -> Shape | None:
    """Give the full shape of one argument for a batch size, if it is known."""
    if None not in shape[1:]:
        return _filled(shape, (batch,))
    fitting = [
        other
        for other, name in seen
        if name == dtype.name and _matches(shape, other) and other[0] == batch
    ]
    return max(fitting, default=None)


def _matches(shape: Unknown, other: Shape) -> bool:
    return len(shape) == len(other) and all(
        wanted in {None, found} for wanted, found in zip(shape, other, strict=True)
    )


def _filled(shape: Unknown, front: Shape) -> Shape:
    """Put the batch size in front, where it was left open."""
    return tuple(front[0] if size is None else size for size in shape)


def takes(data: Sequence[tuple[Unknown, Any]], batch: int) -> bool:
    """Say whether it can be given batches of that size, or whether it was traced for another."""
    fronts = {shape[0] for shape, _ in data if shape}
    return None in fronts or batch in fronts


def batched(data: Sequence[tuple[Unknown, Any]], batch: int) -> tuple[Shape, ...]:
    """Fill in a batch size; nothing else may be open."""
    if any(None in shape[1:] for shape, _ in data):
        raise CannotCompileError(
            "The shapes of the compiled step's batch are not known: "
            "it was traced for any, and the tape does not show them."
        )
    return tuple(_filled(shape, (batch,)) for shape, _ in data)
