"""Which batch sizes a plan's steps are tried at, and how often: as far as the time allows.

Primes, since an allocation that grows with the batch is known by its shape: no other side of it
should be a multiple of the batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

_FIRST = (7, 5, 11, 13)
_PRIMES = (11, 13, 17, 23, 29, 37, 47, 61, 79, 101, 127, 163, 211, 257, 331, 419, 541, 691, 881)
# How often the steps run at the first size, in between, and at the largest: from much to little.
_DESIGNS = ((4, (2, 2), 4), (4, (2,), 4), (3, (2,), 3), (3, (), 3), (3, (), 2), (2, (), 2))
_MOST_MORE = 3
QUICK_S = 1.5
"""More is not spent on steps that are quick."""
_LEAST_STRIDE = 1.5
"""Each size is at least so many times the one before: closer ones say little."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What was learnt at the first size."""

    batch: int
    step_s: float
    """What a step takes there."""
    fixed_s: float
    """What each recording takes beside the step."""
    size_s: float
    """What each new size takes once: tracing or compiling anew."""
    most: int
    """The largest batch that there is memory for."""


def first_size(sides: frozenset[int]) -> int:
    """Choose the size to begin with, of which no other side of the data is a multiple."""
    return next((size for size in _FIRST if _stands_out(size, sides)), _FIRST[0])


def next_sizes(pace: Pace, left_s: float, sides: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """Choose sizes and how often each runs; the first size's steps that are still due come first.

    One step at the first size has run after the one that prepared everything.
    """
    for allowed_s in sorted({min(QUICK_S, left_s), left_s}):
        for at_first, between, at_last in _DESIGNS:
            sizes = _largest(pace, allowed_s, (at_first, *between, at_last), sides)
            if sizes:
                return sizes
    return ()


def more_at_first(pace: Pace, left_s: float) -> tuple[tuple[int, int], ...]:
    """Where another size takes too long: a few steps more, and shapes tell what is the batch's."""
    affordable = int(left_s / (pace.step_s + pace.fixed_s))
    return ((pace.batch, min(max(affordable, 1), _MOST_MORE)),)


def _usable(pace: Pace, sides: frozenset[int]) -> list[int]:
    return [size for size in _PRIMES if pace.batch < size <= pace.most and _stands_out(size, sides)]


def _largest(
    pace: Pace, allowed_s: float, counts: tuple[int, ...], sides: frozenset[int]
) -> tuple[tuple[int, int], ...]:
    """Give the sizes that reach farthest, or none if not even the smallest are affordable."""
    usable = _usable(pace, sides)
    for last in reversed(usable):
        sizes = tuple(_spread(pace.batch, last, len(counts), usable))
        if len(set(sizes)) == len(counts):
            due = ((pace.batch, counts[0] - 2), *zip(sizes[1:], counts[1:], strict=True))
            if sum(_cost_s(pace, *each) for each in due) <= allowed_s:
                return due
    return ()


def _spread(first: int, last: int, count: int, usable: list[int]) -> Iterator[int]:
    """Give so many sizes from the first to the last, each about as many times the one before."""
    stride = (last / first) ** (1 / (count - 1))
    if stride < _LEAST_STRIDE:
        return
    yield first
    for number in range(1, count - 1):
        yield min(usable, key=lambda size: abs(size - first * stride**number))
    yield last


def _cost_s(pace: Pace, size: int, count: int) -> float:
    each_s = pace.step_s * size / pace.batch + pace.fixed_s
    return count * each_s + (pace.size_s if size != pace.batch else 0.0)


def _stands_out(size: int, sides: frozenset[int]) -> bool:
    return all(side % size for side in sides if side)
