"""What came out for one case, as values: the truth, the plan and the peers beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from bench.plan.cases import Case


@dataclass(frozen=True, slots=True)
class Figure:
    """One batch size: what steps really took at most, and what was said before."""

    batch: int
    truths_bytes: tuple[int, ...]
    """In each of several processes."""
    low_bytes: int
    peak_bytes: int
    high_bytes: int
    peers: Mapping[str, int | None]

    @property
    def truth_bytes(self) -> int:
        """Give the truth in the middle: ops race, and so truths differ."""
        return int(median(self.truths_bytes))

    @property
    def truths_apart(self) -> float:
        """Give how far truths lie apart, as a share of the one in the middle."""
        return (max(self.truths_bytes) - min(self.truths_bytes)) / self.truth_bytes

    @property
    def error(self) -> float:
        """Give how far the plan was off, as a share of the truth."""
        return self.peak_bytes / self.truth_bytes - 1

    @property
    def width(self) -> float:
        """Give the range's width as a share of the peak."""
        return (self.high_bytes - self.low_bytes) / self.peak_bytes

    @property
    def inside(self) -> int:
        """Count the truths that lie in the range."""
        return sum(self.low_bytes <= truth <= self.high_bytes for truth in self.truths_bytes)


@dataclass(frozen=True, slots=True)
class Finding:
    """One case."""

    case: Case
    figures: tuple[Figure, ...]
    seconds: float
    """What the plan took."""
    lookup_ms: float
    """What the slowest `peak_bytes` took afterwards."""
    answer: int
    """The largest batch that fits, by the plan."""
    answer_outcome: str
    """What came of it when it was tried."""
    largest: int
    """The largest that really fits."""
    peer_answers: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Failure:
    """A case without a plan, and what oommagic said."""

    case: Case
    message: str


def answer_from(figures: Mapping[int, int | None], limit_bytes: int) -> int | None:
    """Give the largest batch that fits by figures at a few sizes, joined by lines."""
    known = sorted((batch, size) for batch, size in figures.items() if size is not None)
    if len(known) < 2:
        return None
    for one, other in pairwise(known):
        if other[1] > limit_bytes:
            return _on_line(one, other, limit_bytes)
    return _on_line(known[-2], known[-1], limit_bytes)


def _on_line(one: tuple[int, int], other: tuple[int, int], limit_bytes: int) -> int | None:
    """Follow the line to the limit; one that does not rise never gets there."""
    rise = (other[1] - one[1]) / (other[0] - one[0])
    return max(0, int(one[0] + (limit_bytes - one[1]) / rise)) if rise > 0 else None
