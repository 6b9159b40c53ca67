"""Lanes over time: hours of samples keep their shape in little memory."""

import math
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from oommagic.measure.timeline import POINTS, TimelineStore
from oommagic.report import Lane, LaneUnit, Timeline

TEN_HOURS_S = 36_000
EVERY_S = 0.5
LANES = 16


def lane(timeline: Timeline, name: str) -> Lane:
    (found,) = [each for each in timeline.lanes if each.name == name]
    return found


def wave(time_s: float) -> float:
    """Give a value that rises and falls once an hour."""
    return 1e9 * (1 + math.sin(2 * math.pi * time_s / 3600))


def test_ten_hours_keep_their_shape_in_less_than_20_mb() -> None:
    tracemalloc.start()
    store, spike_s = TimelineStore(), 20_000.0
    others: dict[str, tuple[LaneUnit, float | None]] = {
        f"lane {number}": ("percent", 1.0) for number in range(LANES)
    }
    for count in range(int(TEN_HOURS_S / EVERY_S)):
        now = count * EVERY_S
        host = 5e9 if now == spike_s else wave(now)
        store.add(now, count // 1000, {"host": ("bytes", host), **others})
    timeline = store.timeline()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6
    assert POINTS // 2 <= len(timeline.times_s) <= POINTS
    host_lane = lane(timeline, "host")
    for at, low, high in zip(timeline.times_s, host_lane.lows, host_lane.highs, strict=True):
        assert low is not None
        assert high is not None
        assert low <= high
        # A value changes by this much at most from one point to the next.
        assert abs(low - wave(at)) < 2 * 2e9 * math.pi * store.interval_s / 3600
    assert sum(high == 5e9 for high in host_lane.highs) == 1


_samples = st.lists(
    st.tuples(st.floats(0.001, 3.0), st.one_of(st.none(), st.floats(-1e12, 1e12))),
    min_size=1,
    max_size=300,
)


@given(_samples)
def test_every_value_lies_within_the_range_of_its_moment(
    samples: list[tuple[float, float | None]],
) -> None:
    store, now, sent = TimelineStore(), 0.0, []
    for pause_s, value in samples:
        now += pause_s
        store.add(now, 1, {"host": ("bytes", value)})
        if value is not None:
            sent.append((now, value))
    timeline = store.timeline()
    host = lane(timeline, "host")
    for at, value in sent:
        point = max(n for n, time_s in enumerate(timeline.times_s) if time_s <= at)
        low, high = host.lows[point], host.highs[point]
        assert low is not None
        assert high is not None
        assert low <= value <= high
    assert sorted(timeline.times_s) == list(timeline.times_s)


def test_a_lane_that_begins_late_has_nothing_before() -> None:
    store = TimelineStore()
    for count in range(10):
        late: dict[str, tuple[LaneUnit, float | None]] = {"device": ("bytes", 7.0)}
        store.add(count * 1.0, 1, {"host": ("bytes", 1.0), **(late if count >= 5 else {})})
    device = lane(store.timeline(), "device")
    assert device.lows == (None,) * 5 + (7.0,) * 5


def test_a_moment_shows_the_line_that_ran_last_in_it() -> None:
    store = TimelineStore()
    store.add(0.0, 3, {"host": ("bytes", 1.0)})
    store.add(0.01, 4, {"host": ("bytes", 1.0)})
    assert store.timeline().line_numbers == (4,)
