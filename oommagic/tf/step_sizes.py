"""Which batch sizes a plan's steps are tried at, and how often: as far as the time allows.

Primes, since an allocation that grows with the batch is known by its shape: no other side of it
should be a multiple of the batch. And large ones: where kernels take long, ops race as they do at
the sizes that people train at. Two sizes tell by which law an allocation grows. A small one shows
what kernels do without there; with few samples they often choose another algorithm. Where one of
two sizes takes scratch memory that the other does without, sizes between them tell from where on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from oommagic.curve import Curve
from oommagic.units import MIB

_FIRST = (7, 11, 17, 29, 41, 61)
LEAST = 2
"""What is tried where the first size does not fit; of a single sample kernels make an exception."""
_FIRST_OF_UNKNOWN = 11
_FIRST_BYTES = 48 * MIB
"""What a model's layers may give out in its first step, whose pace is not known yet."""
_FIRST_COMPILED = 2
"""So much more, where XLA compiles the step: then it runs twice, and at no other size."""
_PRIMES = (
    3, 5, 7, 11, 17, 23, 29, 37, 47, 61, 79, 101, 127, 163, 211, 257, 331, 419, 541, 691, 881,
)  # fmt: skip
_COUNTS = (8, 6, 4, 3, 2)
"""How often a step runs at the second size: its first time only prepares the others."""
_MOST_MORE = 5
_MORE_S, _MORE_SHARE = 0.6, 0.2
"""What more steps at the first size may take, and of the time that is left."""
_SMALL = (5, 3, 7)
_SMALL_S, _SMALL_SHARE = 1.2, 0.25
"""What steps at a small size may take, and of the time that is left."""
QUICK_S = 1.6
"""More is not spent on steps that are quick."""
BETWEEN_S, EACH = 1.5, 2
"""What sizes between two others may take, and how often each runs."""
_PATIENCE = (1, 2, 3)
"""How many times that, where tracing a second size takes long; then all the time that is left."""
_LEAST_STRIDE = 1.5
"""The second size is at least so many times the first: closer ones say little."""
_ALWAYS_TOLD, _TOLD = (256, 64, 16), (4, 1024, 128, 4096, 32, 512, 8, 2048)
"""Sizes at which XLA is asked what a step takes that it compiled: the usual ones."""
_BESIDE = 0.2
"""So close to a size that is known, another one tells little."""
_SURE = 0.02
"""Where all of a step is known so closely, XLA need not be asked."""


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


def first_size(sides: frozenset[int], sample_bytes: int, *, is_compiled: bool = False) -> int:
    """Choose the size to begin with, of which no other side of the data is a multiple.

    `sample_bytes` is what the layers give out for one sample, or 0 where that is not known.
    """
    first_bytes = _FIRST_BYTES * (_FIRST_COMPILED if is_compiled else 1)
    most = first_bytes // sample_bytes if sample_bytes else _FIRST_OF_UNKNOWN
    affordable = [size for size in _FIRST if size <= most] or [_FIRST[0]]
    by_preference = [*reversed(affordable), *_FIRST]
    return next((size for size in by_preference if _stands_out(size, sides)), affordable[-1])


def more_at_first(pace: Pace, left_s: float) -> int:
    """Say how many more steps run at the first size, of which two have run."""
    allowed_s = min(_MORE_S, _MORE_SHARE * left_s)
    return min(max(int(allowed_s / (pace.step_s + pace.fixed_s)), 1), _MOST_MORE)


def small_run(pace: Pace, left_s: float, sides: frozenset[int]) -> tuple[int, int] | None:
    """Choose a size well below the first, and how often it runs, or neither."""
    allowed_s = min(_SMALL_S, _SMALL_SHARE * left_s)
    # Laws are known from the other sizes: a small one need not stand out.
    size = next((n for n in _SMALL if _stands_out(n, sides)), _SMALL[0])
    if size * _LEAST_STRIDE**2 >= pace.batch:
        return None
    costs = ((count, _cost_s(pace, size, count)) for count in _COUNTS)
    return next(((size, count) for count, cost_s in costs if cost_s <= allowed_s), None)


def second_run(pace: Pace, left_s: float, sides: frozenset[int]) -> tuple[int, int] | None:
    """Choose a second size, and how often it runs, or neither where that takes too long.

    Then shapes tell what is the batch's.
    """
    for allowed_s in sorted({*(min(QUICK_S * times, left_s) for times in _PATIENCE), left_s}):
        for count in _COUNTS:
            for size in reversed(_usable(pace, sides)):
                if _cost_s(pace, size, count) <= allowed_s:
                    return size, count
    return None


def size_between(small: int, large: int, sides: frozenset[int]) -> int | None:
    """Choose a size in the middle of two, as kernels count: by how many times they differ."""
    middle = round((small * large) ** 0.5)
    inside = sorted(range(small + 1, large), key=lambda size: abs(size - middle))
    return next((size for size in inside if _stands_out(size, sides)), None)


def size_to_tell(known: Mapping[int, int], held_bytes: int) -> int | None:
    """Choose the size where it is least sure what XLA would tell; None where that is sure enough.

    `known` has what it told; `held_bytes` is what stays on the device beside.
    """
    for size in _ALWAYS_TOLD:
        if all(abs(size - other) > _BESIDE * size for other in known):
            return size
    curve = Curve(tuple(sorted(known.items())))
    unsure = {size: _unsure(curve, size, held_bytes) for size in _TOLD if size not in known}
    least_sure = max(unsure, key=lambda size: unsure[size], default=None)
    return least_sure if least_sure is not None and unsure[least_sure] > _SURE else None


def _unsure(curve: Curve, size: int, held_bytes: int) -> float:
    least, most = curve.range_at(size)
    return (most - least) / max(most + held_bytes, 1)


def _usable(pace: Pace, sides: frozenset[int]) -> list[int]:
    least = _LEAST_STRIDE * pace.batch
    return [size for size in _PRIMES if least <= size <= pace.most and _stands_out(size, sides)]


def _cost_s(pace: Pace, size: int, count: int) -> float:
    each_s = pace.step_s * size / pace.batch + pace.fixed_s
    return count * each_s + pace.size_s


def _stands_out(size: int, sides: frozenset[int]) -> bool:
    return all(side % size for side in sides if side)
