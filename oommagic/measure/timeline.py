"""Lanes over time in bounded memory: a run of ten hours keeps its shape in a thousand points."""

from array import array
from collections.abc import Callable, Mapping

from oommagic.report import Lane, LaneUnit, Timeline

POINTS = 1024
FIRST_INTERVAL_S = 0.05

_MISSING = float("nan")


class _LaneStore:
    """The lowest and highest value of one figure in each interval."""

    def __init__(self, unit: LaneUnit, points_before: int) -> None:
        self.unit = unit
        self.lows = array("d", [_MISSING] * points_before)
        self.highs = array("d", [_MISSING] * points_before)

    def open_point(self) -> None:
        self.lows.append(_MISSING)
        self.highs.append(_MISSING)

    def add(self, value: float) -> None:
        # A comparison with NaN is false, so the first value of a point replaces it.
        if not self.lows[-1] <= value:
            self.lows[-1] = value
        if not self.highs[-1] >= value:
            self.highs[-1] = value

    def halve(self) -> None:
        self.lows = _pairs(self.lows, min)
        self.highs = _pairs(self.highs, max)


class TimelineStore:
    """Collects samples. When it is full, neighbours merge and intervals become twice as long."""

    def __init__(self) -> None:
        self.interval_s = FIRST_INTERVAL_S
        self._times = array("d")
        self._line_numbers = array("l")
        self._lanes: dict[str, _LaneStore] = {}

    def add(
        self, time_s: float, line_number: int, values: Mapping[str, tuple[LaneUnit, float | None]]
    ) -> None:
        """Add one sample of all lanes; a lane may be new, or have no value this time."""
        if not self._times or time_s >= self._times[-1] + self.interval_s:
            self._open_point(time_s)
        self._line_numbers[-1] = line_number
        for name, (unit, value) in values.items():
            if name not in self._lanes:
                self._lanes[name] = _LaneStore(unit, len(self._times))
            if value is not None:
                self._lanes[name].add(value)

    def timeline(self) -> Timeline:
        """Return what was collected, as values."""
        return Timeline(
            times_s=tuple(self._times),
            line_numbers=tuple(self._line_numbers),
            lanes=tuple(
                Lane(name, lane.unit, _known(lane.lows), _known(lane.highs))
                for name, lane in self._lanes.items()
                if len(lane.lows)
            ),
        )

    def _open_point(self, time_s: float) -> None:
        if len(self._times) == POINTS:
            self._halve()
        self._times.append(time_s)
        self._line_numbers.append(0)
        for lane in self._lanes.values():
            lane.open_point()

    def _halve(self) -> None:
        self.interval_s *= 2
        self._times = self._times[::2]
        self._line_numbers = self._line_numbers[::2]
        for lane in self._lanes.values():
            lane.halve()


def _pairs(values: "array[float]", choose: Callable[[float, float], float]) -> "array[float]":
    """Merge neighbours; where one of them is missing, the other one stands."""
    merged = array("d")
    for first, second in zip(values[::2], values[1::2], strict=True):
        merged.append(choose(first, second) if first == first else second)  # noqa: PLR0124 (NaN)
    return merged


def _known(values: "array[float]") -> tuple[float | None, ...]:
    return tuple(None if value != value else value for value in values)  # noqa: PLR0124 (NaN)
