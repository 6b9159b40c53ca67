"""A run's timeline as lanes to draw: few enough moments, an axis each, and what ran when."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from oommagic.report import Lane, Report
from oommagic.show.characters import label, visible
from oommagic.show.table import device_names
from oommagic.units import format_bytes, format_seconds

_SAY: Mapping[str, Callable[[float], str]] = {
    "bytes": lambda value: format_bytes(int(value)),
    "percent": lambda value: f"{value:.0f} %",
    "bytes/s": lambda value: f"{format_bytes(int(value))}/s",
    "celsius": lambda value: f"{value:.0f} °C",
    "watts": lambda value: f"{value:.0f} W",
}
_LEAST_SPAN = 0.05
"""An axis covers at least this share of its highest value, so that noise stays small."""
_HIGH_GROUND = 0.4
"""An axis starts at zero unless its lowest value is above this share of its highest."""
_FULL_PERCENT = 100.0
_LONGEST_HOLD = 7
"""A missing reading longer than so many intervals is a gap."""

LaneKind = Literal["host", "device", "other"]
Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """One lane: heights from 0 to 1 for each moment (None: no reading), and words for them."""

    name: str
    kind: LaneKind
    lows: Values
    highs: Values
    texts: tuple[str, ...]
    floor_text: str
    ceiling_text: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time during which one line ran, as fractions of the whole; line 0 is outside the cell."""

    start: float
    end: float
    line_number: int
    words: str


@dataclass(frozen=True, slots=True)
class DrawnTimeline:
    """All lanes over the same moments, which are fractions of the whole."""

    duration_text: str
    moments: tuple[float, ...]
    moment_texts: tuple[str, ...]
    moment_words: tuple[str, ...]
    lanes: tuple[DrawnLane, ...]
    quiet: tuple[str, ...]
    stretches: tuple[Stretch, ...]


def draw(report: Report, most_moments: int = 240) -> DrawnTimeline | None:
    """Lay out the lanes; None if there are too few readings to draw a line through."""
    timeline = report.timeline
    spans = _spans(min(len(timeline.times_s), len(timeline.line_numbers)), most_moments)
    times = [timeline.times_s[span.start] for span in spans]
    lanes = [lane for lane in timeline.lanes if _is_drawable(lane, spans)]
    moving = [lane for lane in lanes if any(lane.highs) or any(lane.lows)]
    duration_s = max(report.elapsed_s, *times, 0.0)
    if len(times) < 2 or not moving or not duration_s:  # noqa: PLR2004 - a line has two ends
        return None
    moments = tuple(min(1.0, max(0.0, time / duration_s)) for time in times)
    numbers = [_commonest(timeline.line_numbers[span.start : span.stop]) for span in spans]
    words = _line_words(report)
    devices = device_names(report)
    return DrawnTimeline(
        duration_text=format_seconds(duration_s),
        moments=moments,
        moment_texts=tuple(map(format_seconds, times)),
        moment_words=tuple(_words_for(number, words) for number in numbers),
        lanes=tuple(_drawn(lane, spans, devices) for lane in moving),
        quiet=tuple(label(lane.name) for lane in lanes if lane not in moving),
        stretches=tuple(_stretches(moments, numbers, words)),
    )


def runs_of_readings(values: Values) -> Iterator[range]:
    """Find the indexes of readings that follow each other without a gap."""
    for is_reading, indexes in groupby(range(len(values)), lambda i: values[i] is not None):
        if is_reading:
            run = list(indexes)
            yield range(run[0], run[-1] + 1)


def _spans(count: int, most: int) -> list[range]:
    used = min(count, most)
    ends = [count * i // used for i in range(used + 1)] if used else []
    return [range(start, end) for start, end in pairwise(ends)]


def _is_drawable(lane: Lane, spans: Sequence[range]) -> bool:
    shown = spans[-1].stop if spans else 0
    fits = 0 < shown <= min(len(lane.lows), len(lane.highs))
    return fits and any(value is not None for value in lane.highs[:shown])


def _drawn(lane: Lane, spans: Sequence[range], devices: Sequence[str]) -> DrawnLane:
    lows = [_extreme(min, span) for span in _cut_up(_held(lane.lows), spans)]
    highs = [_extreme(max, span) for span in _cut_up(_held(lane.highs), spans)]
    floor, ceiling = _axis(lane.unit, [value for value in (*lows, *highs) if value is not None])
    say = _SAY[lane.unit]
    return DrawnLane(
        name=label(lane.name),
        kind=_kind(lane, devices),
        lows=tuple(_height(value, floor, ceiling) for value in lows),
        highs=tuple(_height(value, floor, ceiling) for value in highs),
        texts=tuple("no reading" if value is None else say(value) for value in highs),
        floor_text=say(floor),
        ceiling_text=say(ceiling),
    )


def _kind(lane: Lane, devices: Sequence[str]) -> LaneKind:
    if lane.unit != "bytes":
        return "other"
    return "device" if lane.name in devices else "host"


def _held(values: Values) -> Values:
    """Let a reading stand for a while: some figures are read less often than others."""
    held: list[float | None] = []
    missing = 0
    for value in values:
        missing = missing + 1 if value is None else 0
        is_bridged = 0 < missing <= _LONGEST_HOLD and held
        held.append(held[-1] if is_bridged else value)
    return tuple(held)


def _cut_up(values: Values, spans: Sequence[range]) -> Iterator[Values]:
    return (values[span.start : span.stop] for span in spans)


def _extreme(choose: Callable[[Iterable[float]], float], values: Values) -> float | None:
    found = [value for value in values if value is not None]
    return choose(found) if found else None


def _axis(unit: str, values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if unit == "percent":
        return 0.0, max(_FULL_PERCENT, high)
    if unit in ("bytes/s", "watts"):
        return min(0.0, low), high
    # Memory and temperature can stand on a high ground that says nothing: then leave it out.
    on_high_ground = low > high * _HIGH_GROUND
    return (min(low, high * (1 - _LEAST_SPAN)) if on_high_ground else min(0.0, low)), high


def _height(value: float | None, floor: float, ceiling: float) -> float | None:
    if value is None:
        return None
    height = (value - floor) / (ceiling - floor) if ceiling > floor else 0.0
    return round(min(1.0, max(0.0, height)), 4) if math.isfinite(height) else 0.0


def _commonest(numbers: Sequence[int]) -> int:
    return Counter(numbers).most_common(1)[0][0]


def _line_words(report: Report) -> dict[int, str]:
    return {line.line_number: visible(line.source).strip() for line in report.profile.lines}


def _words_for(number: int, words: Mapping[int, str]) -> str:
    if number == 0:
        return "outside the cell's lines"
    return f"line {number}: {words[number]}" if number in words else f"line {number}"


def _stretches(
    moments: Sequence[float], numbers: Sequence[int], words: Mapping[int, str]
) -> Iterator[Stretch]:
    firsts = [next(indexes) for _, indexes in groupby(range(len(numbers)), numbers.__getitem__)]
    starts = [0.0, *(moments[first] for first in firsts[1:]), 1.0]
    for first, (start, end) in zip(firsts, pairwise(starts), strict=True):
        if end > start:
            yield Stretch(start, end, numbers[first], _words_for(numbers[first], words))
