"""What grows, from figures that grow: over time, from step to step, from run to run.

Memory that is taken once is not growth: not a first step's, not a cache that fills and stays, not
a tensor that a step returns and the next one replaces. So each finding needs several figures, of
which the later ones rise as well.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Literal

from oommagic.explain.clues import Clue, Loop
from oommagic.explain.facts import HOST, Facts, once_each, root_of
from oommagic.recording import Held, Tape, TracedLines
from oommagic.report import HoldingKind, Lane, LineUsage, Report
from oommagic.units import MIB

Per = Literal["step", "epoch", "iteration", "run", "second"]
WhatGrows = Literal["", "tensors", "models", "graphs", "buffer"]

FEW_TRACES = 5
"""A function that takes inputs of a few kinds has as many graphs; more are a mistake."""

_FEWEST_POINTS = 8
_MOST_FLOORS = 16
_LEAST_NET = 0.8
_LEAST_OF_A_THIRD = 0.2
_LEAST_RISES = 4
_A_RISE = 0.02

_LEAST_OVER_TIME = {True: 16 * MIB, False: MIB}
"""By whether it is the host's: a process's resident memory wanders, an allocator's figure not."""
_STALL_S = 11.0
"""TensorFlow tries a failed allocation for ten seconds."""
_STILL = 0.005
_FULL = 0.95
_MOST_AFTER_FALL = 3

_FEWEST_STEPS = 4
_LEAST_PER_STEP = 1
_EVEN = 2.5
"""Steps of a steady growth differ by no more than this factor from their median."""

_FEWEST_MORE = 3
_FEWEST_ELEMENTS = 16
_LEAST_PER_RUN = 4 * MIB
_LEAST_OF_FIRST_RUN = 0.25


@dataclass(frozen=True, slots=True)
class Growth:
    """Something that grew in one place, by how much, and what is known of it."""

    place: str
    """A device, or the host."""
    per: Per
    repeats: int
    total_bytes: int
    first_bytes: int = 0
    last_bytes: int = 0
    """What was in use when it began, and at last."""
    what: WhatGrows = ""
    owner: str = ""
    count_before: int = 0
    count_after: int = 0
    kind: HoldingKind | None = None
    op: str = ""
    layer: str = ""
    line_number: int | None = None
    line_source: str = ""
    maker: str = ""
    """The call that makes what grows, as it is written, or the function that is traced again."""

    @property
    def rate_bytes(self) -> int:
        """How much it grows each time."""
        return round(self.total_bytes / max(1, self.repeats))


@dataclass(frozen=True, slots=True)
class Rise:
    """The floor of a figure, at first and at last."""

    first: float
    last: float


def growths(facts: Facts) -> tuple[Growth, ...]:
    """Find all that grows, the largest first; what is seen in several ways is told once."""
    seen = [*_over_time(facts), *_in_tapes(facts), *_in_names(facts)]
    by_place: dict[str, list[Growth]] = defaultdict(list)
    for growth in seen:
        by_place[growth.place].append(growth)
    within = [_with_a_maker(_as_one(same), facts) for same in by_place.values()]
    within += [buffer for buffer in _buffers(facts) if buffer.place not in by_place]
    return tuple(sorted((*within, *_over_runs(facts)), key=lambda growth: -growth.total_bytes))


def retraced(facts: Facts) -> TracedLines | None:
    """Find the function that was traced most, if it was more than a few times."""
    most = max(facts.traced, key=lambda each: each.traces, default=None)
    return most if most is not None and most.traces > FEW_TRACES else None


# ---- Over time ----------------------------------------------------------------------------------


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
    parts = min(_MOST_FLOORS, len(values))
    edges = [len(values) * part // parts for part in range(parts + 1)]
    return [min(values[start:end]) for start, end in pairwise(edges)]


def _last_two_thirds(floors: Sequence[float]) -> tuple[float, float]:
    last = len(floors) - 1
    first_third, second_third = floors[last // 3], floors[2 * last // 3]
    return second_third - first_third, floors[last] - second_third


def _over_time(facts: Facts) -> Iterator[Growth]:
    names = {HOST, *(device.name for device in facts.devices)}
    for lane in facts.timeline.lanes:
        if lane.name in names and lane.unit == "bytes":
            found = [_in_stretch(facts, lane, first, last) for first, last in _stretches(facts)]
            grown = [growth for growth in found if growth is not None]
            yield from sorted(grown, key=lambda growth: -growth.total_bytes)[:1]


def _stretches(facts: Facts) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of what may repeat something: loops, and calls that last."""
    outermost = [loop for loop in facts.clues.loops if loop.is_outermost]
    yield from ((loop.first_line, loop.last_line) for loop in outermost)
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
    lows = [low for low in lane.lows[start:end] if low is not None]
    rise = steady_rise(lows, _LEAST_OVER_TIME[lane.name == HOST])
    if rise is None:
        return None
    seconds = facts.timeline.times_s[end - 1] - facts.timeline.times_s[start]
    line = _growing_line(facts, lane.name, first_line, last_line)
    return _grown_over_time(facts, lane.name, rise, line, seconds)


def _grown_over_time(
    facts: Facts, place: str, rise: Rise, line: LineUsage | None, seconds: float
) -> Growth:
    loop = facts.clues.loop_of(line.line_number) if line is not None else None
    repeats = line.hits if line is not None and line.hits > 1 else 0
    return Growth(
        place=place,
        per=_per(loop) if repeats else "second",
        repeats=repeats or max(1, round(seconds)),
        total_bytes=round(rise.last - rise.first),
        first_bytes=round(rise.first),
        last_bytes=round(rise.last),
        line_number=line.line_number if line is not None else None,
        line_source=line.source.strip() if line is not None else "",
    )


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


def _growing_line(facts: Facts, place: str, first_line: int, last_line: int) -> LineUsage | None:
    """Find the line that took most, or the one that ran most often, within a loop's lines."""
    lines = [line for line in facts.lines() if first_line <= line.line_number <= last_line]
    most = max(lines, key=lambda line: (_taken(line, place), line.hits), default=None)
    return most if most is not None and most.hits else None


def _taken(line: LineUsage, place: str) -> int:
    if place == HOST:
        return line.host_delta_bytes
    return line.devices[place].delta_bytes if place in line.devices else 0


def _per(loop: Loop | None) -> Per:
    return "epoch" if loop is not None and "epoch" in loop.target.lower() else "step"


# ---- From step to step, in a tape ---------------------------------------------------------------


def _in_tapes(facts: Facts) -> Iterator[Growth]:
    for tape in facts.tapes:
        floors = floors_after_steps(tape)
        changes = [later - earlier for earlier, later in pairwise(floors)]
        if len(floors) >= _FEWEST_STEPS - 1 and _is_even(changes):
            yield _described(tape, floors, facts.held_after)


def floors_after_steps(tape: Tape) -> list[int]:
    """Give the least that was in use between the end of each step and that of the next.

    The first step is left out: it takes what all later ones use. What a step returns lives until
    the next one has replaced it, so no floor of a loop that keeps nothing rises.
    """
    ends = [end for _, end in _steps_alike(tape)]
    edges = [_count_until(tape, end) for end in ends] + [len(tape.times_s)]
    spans = list(pairwise(edges))[1:]
    return [min(tape.in_use_bytes[first - 1 : end]) for first, end in spans if 0 < first <= end]


def _steps_alike(tape: Tape) -> list[tuple[float, float]]:
    """Give the steps of the function that ran most often."""
    names = Counter(name for _, _, name in tape.steps)
    if not names:
        return []
    usual = names.most_common(1)[0][0]
    return sorted((began, ended) for began, ended, name in tape.steps if name == usual)


def _count_until(tape: Tape, time_s: float) -> int:
    low, high = 0, len(tape.times_s)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if tape.times_s[middle] <= time_s else (low, middle)
    return low


def _is_even(changes: Sequence[int]) -> bool:
    if not changes or min(changes) < _LEAST_PER_STEP:
        return False
    usual = median(changes)
    return all(usual / _EVEN <= change <= usual * _EVEN for change in changes)


def _described(tape: Tape, floors: Sequence[int], held: Iterable[Held]) -> Growth:
    """Say which op's allocations of earlier steps are still there, and which name holds them."""
    kept = _kept_from_steps(tape)
    op_number = max(kept, key=lambda number: sum(kept[number].values()), default=None)
    role = tape.roles[op_number] if op_number is not None else None
    addresses = kept[op_number] if op_number is not None else {}
    owners = Counter(
        root_of(each.owner)
        for each in held
        if each.owner and each.device == tape.device and each.address in addresses
    )
    return Growth(
        place=tape.device,
        per="step",
        repeats=len(floors) - 1,
        total_bytes=floors[-1] - floors[0],
        first_bytes=floors[0],
        last_bytes=floors[-1],
        what="buffer" if role is not None and role.kind == "data" and not owners else "",
        owner=owners.most_common(1)[0][0] if owners else "",
        kind=role.kind if role is not None else None,
        op=tape.ops[op_number] if op_number is not None else "",
        layer=role.layer if role is not None else "",
    )


def _kept_from_steps(tape: Tape) -> dict[int, dict[int, int]]:
    """Give, for each op, what later steps allocated and was not freed: bytes by address."""
    steps = _steps_alike(tape)
    start = _count_until(tape, steps[0][1]) if steps else 0
    alive: dict[int, tuple[int, int]] = {}
    for at in range(start, len(tape.times_s)):
        if tape.bytes[at] > 0:
            alive[tape.addresses[at]] = (tape.op_numbers[at], tape.bytes[at])
        else:
            alive.pop(tape.addresses[at], None)
    kept: dict[int, dict[int, int]] = defaultdict(dict)
    for address, (op_number, size) in alive.items():
        kept[op_number][address] = size
    return kept


# ---- In what names hold -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    count: int = 0
    bytes: int = 0
    what: WhatGrows = "tensors"


def _in_names(facts: Facts) -> Iterator[Growth]:
    """Yield the longest-growing collection on each device: a list with more in it than before."""
    before = _collections(facts.held_before, facts)
    grown: dict[str, list[Growth]] = defaultdict(list)
    for (device, owner), now in _collections(facts.held_after, facts).items():
        was = before.get((device, owner), _Kept())
        if owner in facts.clues.names_replaced:
            was = _Kept()  # the cell begins with a new one
        clue = _filled_by(owner, facts)
        more = now.count - was.count
        if more >= _FEWEST_MORE and (clue is not None or was.count > 0):
            grown[device].append(_longer(device, owner, was, now, clue, facts))
    for same in grown.values():
        yield max(same, key=lambda growth: growth.total_bytes)


def _collections(held: Iterable[Held], facts: Facts) -> dict[tuple[str, str], _Kept]:
    """Count what each collection holds: tensors, or models by their places in it."""
    by_owner: dict[tuple[str, str], list[Held]] = defaultdict(list)
    for each in once_each(held, facts):
        if each.owner:
            by_owner[each.device, root_of(each.owner)].append(each)
    return {key: _counted(same) for key, same in by_owner.items()}


def _counted(held: Sequence[Held]) -> _Kept:
    # A model's or an optimizer's own variables become more when it is built: that is no list.
    of_models = [each for each in held if each.kind in {"weights", "optimizer slots"}]
    places = {each.owner.partition("]")[0] for each in held if "[" in each.owner}
    size = sum(each.bytes for each in held)
    if of_models:
        return _Kept(len(places), size, "models")
    return _Kept(max(len(held), len(places)), size)


def _filled_by(owner: str, facts: Facts) -> Clue | None:
    appends = [clue for clue in facts.clues.of("append") if clue.name == owner]
    in_loop = (clue for clue in appends if clue.is_in_loop)
    # A callback's function is called again and again.
    in_function = (clue for clue in appends if clue.is_in_function)
    return next(in_loop, next(in_function, None))


def _longer(  # noqa: PLR0913, PLR0917 (one finding's parts)
    device: str, owner: str, was: _Kept, now: _Kept, clue: Clue | None, facts: Facts
) -> Growth:
    line_number = clue.first_line if clue is not None else None
    loop = facts.clues.loop_of(line_number) if line_number is not None else None
    return Growth(
        place=device,
        per="iteration" if now.what == "models" else _per(loop),
        repeats=now.count - was.count,
        total_bytes=now.bytes - was.bytes,
        what=now.what,
        owner=owner,
        count_before=was.count,
        count_after=now.count,
        line_number=line_number,
        line_source=_source_of(facts, line_number),
    )


def _source_of(facts: Facts, line_number: int | None) -> str:
    lines = facts.source.splitlines()
    at = (line_number or 0) - facts.first_line
    return lines[at].strip() if 0 <= at < len(lines) else ""


# ---- As one -------------------------------------------------------------------------------------


def _as_one(seen: Sequence[Growth]) -> Growth:
    """Tell once what was seen in several ways: the rate from time or tape, the name from names."""
    figures = max(seen, key=lambda growth: growth.total_bytes)
    for other in seen:
        if other is not figures and _is_the_same(figures, other):
            figures = _completed(figures, other)
    return figures


def _is_the_same(larger: Growth, smaller: Growth) -> bool:
    """A tape sees only a few steps: compare what grows each time, or else in all."""
    if larger.per == smaller.per == "step" and smaller.repeats < larger.repeats:
        larger_each, smaller_each = larger.rate_bytes, smaller.rate_bytes
        return smaller_each * _EVEN >= larger_each
    return smaller.total_bytes * _EVEN >= larger.total_bytes


def _completed(figures: Growth, other: Growth) -> Growth:
    named = other if other.owner and not figures.owner else figures
    has_line = named.line_number is not None
    # What is told of a part of the time has other ends.
    ends = figures if figures.last_bytes or other.total_bytes < figures.total_bytes / 2 else other
    return replace(
        figures,
        first_bytes=ends.first_bytes,
        last_bytes=ends.last_bytes,
        what=figures.what or other.what,
        owner=named.owner,
        count_before=figures.count_before or other.count_before,
        count_after=figures.count_after or other.count_after,
        kind=figures.kind or other.kind,
        op=figures.op or other.op,
        layer=figures.layer or other.layer,
        line_number=named.line_number if has_line else figures.line_number or other.line_number,
        line_source=named.line_source if has_line else figures.line_source or other.line_source,
    )


def _with_a_maker(growth: Growth, facts: Facts) -> Growth:
    """Say what makes it grow, if no name holds it: models in a loop, graphs, or a buffer."""
    if growth.owner:
        return growth
    built = _model_in(growth, facts)
    if built is not None:
        return replace(
            growth,
            what="models",
            per="iteration",
            maker=built.text,
            line_number=built.first_line,
            line_source=_source_of(facts, built.first_line),
        )
    traced, buffer = retraced(facts), _buffer_in(growth.place, facts)
    if buffer is not None and (growth.kind == "data" or (traced is None and not growth.kind)):
        return replace(growth, what="buffer", maker=buffer.text)
    if traced is not None:
        return replace(growth, what="graphs", maker=traced.name, count_after=traced.traces)
    return growth


def _buffers(facts: Facts) -> Iterator[Growth]:
    """Yield data sets' buffers that were seen filling: many pieces alike that no layer made."""
    for composition in facts.compositions:
        clue = _buffer_in(composition.device, facts)
        elements = [
            holding
            for holding in composition.holdings
            if holding.count >= _FEWEST_ELEMENTS and not holding.layer and not holding.owner
        ]
        if clue is not None and elements:
            yield Growth(
                place=composition.device,
                per="step",
                repeats=sum(holding.count for holding in elements),
                total_bytes=sum(holding.bytes for holding in elements),
                what="buffer",
                owner=clue.name,
                maker=clue.text,
            )


def _buffer_in(place: str, facts: Facts) -> Clue | None:
    """Find a buffer of a data set's; they never stand on a GPU."""
    buffers = facts.clues.of("cache", "shuffle")
    return buffers[0] if buffers and not place.startswith("GPU") else None


def _model_in(growth: Growth, facts: Facts) -> Clue | None:
    """Find a model that is built in the loop that grows, or in any if the line is not known."""
    loop = facts.clues.loop_of(growth.line_number) if growth.line_number is not None else None
    for clue in facts.clues.of("model"):
        here = loop is None or loop.first_line <= clue.first_line <= loop.last_line
        if clue.is_in_loop and here:
            return clue
    return None


# ---- From run to run ----------------------------------------------------------------------------


def _over_runs(facts: Facts) -> Iterator[Growth]:
    """Yield devices on which each run of this cell has left more, not the first one alone."""
    runs = facts.earlier_runs()
    for device in facts.devices:
        left = [_left_by(run, device.name) for run in runs]
        if facts.profile is not None and facts.failure is None:
            left.append(device.after_bytes - device.before_bytes)
        again = left[1:]
        least = max(_LEAST_PER_RUN, _LEAST_OF_FIRST_RUN * left[0]) if left else 0
        is_still_there = device.before_bytes >= sum(left[: len(runs)]) / 2
        if again and min(again) >= least and is_still_there:
            grown = _grown_by_runs(device.name, left, runs[-1], device.before_bytes)
            yield _with_its_list(grown, facts)


def _with_its_list(grown: Growth, facts: Facts) -> Growth:
    """Name the list to which each run of the cell appends, if it holds most of what was left."""
    kept = _collections(facts.held_before, facts)
    for clue in facts.clues.of("append"):
        found = kept.get((grown.place, clue.name))
        if found is not None and found.bytes * 2 >= grown.total_bytes:
            return replace(
                grown,
                owner=clue.name,
                what=found.what,
                count_after=found.count,
                line_number=clue.first_line,
                line_source=_source_of(facts, clue.first_line),
            )
    return grown


def _left_by(run: Report, device: str) -> int:
    return sum(each.after_bytes - each.before_bytes for each in run.devices if each.name == device)


def _grown_by_runs(device: str, left: Sequence[int], last: Report, now_bytes: int) -> Growth:
    lines = [line for line in last.profile.lines if _taken(line, device) > 0]
    most = max(lines, key=lambda line: _taken(line, device), default=None)
    return Growth(
        place=device,
        per="run",
        repeats=len(left),
        total_bytes=sum(left),
        first_bytes=max(0, now_bytes - sum(left)),
        last_bytes=now_bytes,
        line_number=most.line_number if most is not None else None,
        line_source=most.source.strip() if most is not None else "",
    )
