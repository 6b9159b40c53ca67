"""Which two batch sizes a plan's steps are tried at, and how often: as far as the time allows.

Primes, since an allocation that grows with the batch is known by its shape: no other side of it
should be a multiple of the batch. And large ones: where kernels take long, ops race as they do at
the sizes that people train at. Two sizes tell by which law an allocation grows.
"""

from dataclasses import dataclass

from oommagic.units import MIB

_FIRST = (7, 11, 17, 29, 41, 61)
_FIRST_OF_UNKNOWN = 11
_FIRST_BYTES = 48 * MIB
"""What a model's layers may give out in its first step, whose pace is not known yet."""
_PRIMES = (11, 17, 23, 29, 37, 47, 61, 79, 101, 127, 163, 211, 257, 331, 419, 541, 691, 881)
_COUNTS = (8, 6, 4, 3, 2)
"""How often a step runs at the second size: its first time only prepares the others."""
_MOST_MORE = 5
_MORE_S, _MORE_SHARE = 0.6, 0.2
"""What more steps at the first size may take, and of the time that is left."""
QUICK_S = 2.4
"""More is not spent on steps that are quick."""
_LEAST_STRIDE = 1.5
"""The second size is at least so many times the first: closer ones say little."""


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


def first_size(sides: frozenset[int], sample_bytes: int) -> int:
    """Choose the size to begin with, of which no other side of the data is a multiple.

    `sample_bytes` is what the layers give out for one sample, or 0 where that is not known.
    """
    most = _FIRST_BYTES // sample_bytes if sample_bytes else _FIRST_OF_UNKNOWN
    affordable = [size for size in _FIRST if size <= most] or [_FIRST[0]]
    by_preference = [*reversed(affordable), *_FIRST]
    return next((size for size in by_preference if _stands_out(size, sides)), affordable[-1])


def more_at_first(pace: Pace, left_s: float) -> int:
    """Say how many more steps run at the first size, of which two have run."""
    allowed_s = min(_MORE_S, _MORE_SHARE * left_s)
    return min(max(int(allowed_s / (pace.step_s + pace.fixed_s)), 1), _MOST_MORE)


def second_run(pace: Pace, left_s: float, sides: frozenset[int]) -> tuple[int, int] | None:
    """Choose a second size, and how often it runs, or neither where that takes too long.

    Then shapes tell what is the batch's.
    """
    for allowed_s in sorted({min(QUICK_S, left_s), left_s}):
        for count in _COUNTS:
            for size in reversed(_usable(pace, sides)):
                if _cost_s(pace, size, count) <= allowed_s:
                    return size, count
    return None


def _usable(pace: Pace, sides: frozenset[int]) -> list[int]:
    least = _LEAST_STRIDE * pace.batch
    return [size for size in _PRIMES if least <= size <= pace.most and _stands_out(size, sides)]


def _cost_s(pace: Pace, size: int, count: int) -> float:
    each_s = pace.step_s * size / pace.batch + pace.fixed_s
    return count * each_s + pace.size_s


def _stands_out(size: int, sides: frozenset[int]) -> bool:
    return all(side % size for side in sides if side)
