"""Growth that a figure shows as time passes, while a loop or one long call runs."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oommagic.explain.facts import Facts
from oommagic.explain.growth.lines import taken, turn_of
from oommagic.explain.growth.value import Growth
from oommagic.report import HOST, Lane, LineUsage
from oommagic.units import MIB

_FEWEST_POINTS = 8
_MOST_FLOORS = 16
# One point alone may have been read in the middle of a step.
_POINTS_OF_A_FLOOR = 3
_LEAST_NET = 0.8
_LEAST_OF_A_THIRD = 0.2
_LEAST_RISES = 4
_A_RISE = 0.02

_FIRST_STEPS = 3
"""Growth shows in more: the first ones also make what stays, as an optimizer's slots."""

_LEAST_OF_HOST = 16 * MIB
"""A process's resident memory wanders; an allocator's figure does not."""
_LEAST_OF_DEVICE = MIB
_STALL_S = 11.0
"""TensorFlow tries a failed allocation for ten seconds."""
_STILL = 0.005
_FULL = 0.95
_MOST_AFTER_FALL = 3


@dataclass(frozen=True, slots=True)
class Rise:
    """The floor of a figure, at first and at last."""

    first: float
    last: float


def steady_rise(values: Sequence[float], least: float) -> Rise | None:
    """Find a rise that goes on: in the floor of the figure, and in its last two thirds.

    A saw-tooth that returns to its floor has none, nor has a figure that stays after a while.
    """
    if len(values) < _FEWEST_POINTS:
        return None
    floors = _floors(values)
    rise = floors[-1] - floors[0]
    changes = [later - earlier for earlier, later in pairwise(floors)]
    goes_on = all(part >= _LEAST_OF_A_THIRD * rise for part in _last_two_thirds(floors))
    is_steady = rise >= _LEAST_NET * sum(map(abs, changes))
    rises = sum(change > _A_RISE * rise for change in changes)
    if rise < least or not goes_on or not is_steady or rises < _LEAST_RISES:
        return None
    return Rise(floors[0], floors[-1])


def _floors(values: Sequence[float]) -> list[float]:
    parts = min(_MOST_FLOORS, max(_FEWEST_POINTS, len(values) // _POINTS_OF_A_FLOOR))
    edges = [len(values) * part // parts for part in range(parts + 1)]
    return [min(values[start:end]) for start, end in pairwise(edges)]


def _last_two_thirds(floors: Sequence[float]) -> tuple[float, float]:
    last = len(floors) - 1
    first_third, second_third = floors[last // 3], floors[2 * last // 3]
    return second_third - first_third, floors[last] - second_third


def over_time(facts: Facts) -> Iterator[Growth]:
    """Yield the largest growth of the host and of each device, each in one stretch of time."""
    names = {HOST, *(device.name for device in facts.devices)}
    for lane in facts.timeline.lanes:
        if lane.name in names and lane.unit == "bytes":
            found = [_in_stretch(facts, lane, first, last) for first, last in _stretches(facts)]
            grown = [growth for growth in found if growth is not None]
            yield from sorted(grown, key=lambda growth: -growth.total_bytes)[:1]


def _stretches(facts: Facts) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of what may repeat something: loops, and calls that last."""
    outermost = [loop for loop in facts.clues.loops if loop.is_outermost]
    yield from ((loop.first_line, loop.last_line) for loop in outermost if not loop.is_in_a_step)
    points = Counter(facts.timeline.line_numbers)
    for line, count in points.items():
        in_loop = any(loop.first_line <= line <= loop.last_line for loop in outermost)
        if line and count >= _FEWEST_POINTS and not in_loop:
            yield line, line


def _in_stretch(facts: Facts, lane: Lane, first_line: int, last_line: int) -> Growth | None:
    numbers = facts.timeline.line_numbers
    inside = [at for at, line in enumerate(numbers) if first_line <= line <= last_line]
    if not inside:
        return None
    start, end = inside[0], inside[-1] + 1
    if facts.failure is not None and not any(numbers[end:]):
        end = _before_stall(facts, lane, start, end)
    rise = steady_rise(
        _lows(lane, start, end), _LEAST_OF_HOST if lane.name == HOST else _LEAST_OF_DEVICE
    )
    if rise is None:
        return None
    began_s, ended_s = facts.timeline.times_s[start], facts.timeline.times_s[end - 1]
    if _is_of_first_steps(facts, lane, rise, start, end):
        return None
    line = _growing_line(facts, lane.name, first_line, last_line)
    return _as_growth(facts, lane.name, rise, line, ended_s - began_s)


def _is_of_first_steps(facts: Facts, lane: Lane, rise: Rise, start: int, end: int) -> bool:
    """Say whether the rise is that of a recorded step which ran at the end, or of the first few."""
    times_s = facts.timeline.times_s
    for tape in facts.tapes:
        steps = tape.steps if tape.device == lane.name else ()
        for number, (_, ended_s, _) in enumerate(steps):
            is_early = number < _FIRST_STEPS
            began_s = steps[0 if is_early else number][0]
            at = max(start, bisect_left(times_s, began_s, start, end) - 1)
            lows = _lows(lane, at, end)
            if ended_s >= times_s[end - 1] and lows:
                is_in_them = lows[0] <= rise.first + (1 - _LEAST_NET) * (rise.last - rise.first)
                # What a model and its data take before them comes in a few leaps.
                return is_in_them or (is_early and not steady_rise(_lows(lane, start, at), 0))
    return False


def _lows(lane: Lane, start: int, end: int) -> list[float]:
    return [low for low in lane.lows[start:end] if low is not None]


def _as_growth(
    facts: Facts, place: str, rise: Rise, line: LineUsage | None, seconds: float
) -> Growth:
    loop = facts.clues.loop_of(line.line_number) if line is not None else None
    repeats = line.hits if line is not None and line.hits > 1 else 0
    return Growth(
        place=place,
        per=turn_of(loop) if repeats else "second",
        repeats=repeats or max(1, round(seconds)),
        total_bytes=round(rise.last - rise.first),
        first_bytes=round(rise.first),
        last_bytes=round(rise.last),
        line_number=line.line_number if line is not None else None,
        line_source=line.source.strip() if line is not None else "",
    )


def _growing_line(facts: Facts, place: str, first_line: int, last_line: int) -> LineUsage | None:
    """Find the line that took most, or the one that ran most often, within a loop's lines."""
    lines = [line for line in facts.lines() if first_line <= line.line_number <= last_line]
    most = max(lines, key=lambda line: (taken(line, place), line.hits), default=None)
    return most if most is not None and most.hits else None


def _before_stall(facts: Facts, lane: Lane, start: int, end: int) -> int:
    """Leave out the time in which TensorFlow waited for memory, and what was freed after it.

    A failed allocation is tried for ten seconds in which nothing moves. Some ops can do without
    and the next one waits again; that is known by a device that is full.
    """
    times_s, limit = facts.timeline.times_s, _limit_of(lane.name, facts)
    end = _before_fall(lane, start, end)
    level, deadline = lane.lows[end - 1], times_s[end - 1] - _STALL_S
    while level is not None and end - start > _FEWEST_POINTS:
        low, high = lane.lows[end - 2], lane.highs[end - 2]
        if low is None or high is None:
            break
        is_full = limit is not None and low >= _FULL * limit
        is_still = max(abs(low - level), abs(high - level)) <= _STILL * level
        if not is_full and not (is_still and times_s[end - 1] > deadline):
            break
        end -= 1
    return end


def _before_fall(lane: Lane, start: int, end: int) -> int:
    """Leave out the last few points if they are lower than those before."""
    tail = range(end - 1, max(start, end - 1 - _MOST_AFTER_FALL), -1)
    for at in tail:
        low_before, high = lane.lows[at - 1], lane.highs[at]
        if low_before is not None and high is not None and high < low_before * (1 - _STILL):
            return at
    return end


def _limit_of(place: str, facts: Facts) -> int | None:
    device = facts.device(place)
    return device.limit_bytes if device is not None else None
