"""The sizes that a plan's steps are tried at: within the time, and told apart from other sides."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from oommagic.tf.step_sizes import (
    Pace,
    first_size,
    more_at_first,
    second_run,
    size_between,
    size_to_tell,
)
from oommagic.units import MIB

_seconds = st.floats(0.0001, 20)
_paces = st.builds(
    Pace, st.sampled_from([7, 11, 17, 61]), _seconds, _seconds, _seconds, st.just(10**6)
)
_sides = st.frozensets(st.integers(0, 5000), max_size=8)


@given(_paces, st.floats(-5, 60), _sides)
def test_a_second_size_fits_into_the_time_and_stands_out(
    pace: Pace, left_s: float, sides: frozenset[int]
) -> None:
    chosen = second_run(pace, left_s, sides)
    if chosen is not None:
        size, count = chosen
        each_s = pace.step_s * size / pace.batch + pace.fixed_s
        assert count * each_s + pace.size_s <= left_s * 1.000001
        assert size >= 1.5 * pace.batch
        assert count >= 2
        assert all(side == 0 or side % size for side in sides)


@given(_paces, st.integers(0, 2000))
def test_no_size_takes_more_memory_than_there_is(pace: Pace, most: int) -> None:
    limited = Pace(pace.batch, 0.001, 0.001, 0.0, most)
    chosen = second_run(limited, 30, frozenset())
    assert chosen is None or chosen[0] <= most


def test_a_quick_step_runs_often_at_a_large_size() -> None:
    chosen = second_run(Pace(7, 0.005, 0.02, 0.0, 10**6), 20.0, frozenset({28, 10}))
    assert chosen is not None
    size, count = chosen
    assert size > 100
    assert count == 8


def test_a_step_that_fits_with_few_samples_alone_still_runs_at_a_second_size() -> None:
    assert second_run(Pace(2, 0.1, 0.02, 0.0, 6), 20.0, frozenset({3, 64})) == (5, 4)


def test_a_slow_step_still_runs_at_a_second_size() -> None:
    chosen = second_run(Pace(7, 1.2, 0.1, 0.0, 10**6), 9.0, frozenset())
    assert chosen is not None
    assert chosen[0] > 7


@given(_paces, st.floats(-5, 60))
def test_the_first_size_runs_a_few_times_more_as_long_as_that_is_quick(
    pace: Pace, left_s: float
) -> None:
    count = more_at_first(pace, left_s)
    assert 1 <= count <= 5
    assert count == 1 or count * (pace.step_s + pace.fixed_s) <= min(left_s, 1)


@given(_sides, st.integers(0, 10**9))
def test_the_first_size_stands_out_where_any_small_prime_does(
    sides: frozenset[int], sample_bytes: int
) -> None:
    first = first_size(sides, sample_bytes)
    standing_out = [n for n in (7, 11, 17, 29, 41, 61) if all(not s or s % n for s in sides)]
    assert first in (standing_out or [7, 11, 17, 29, 41, 61])


def test_a_model_whose_layers_give_out_little_begins_with_a_large_size() -> None:
    assert first_size(frozenset(), 10_000) == 61
    assert first_size(frozenset(), 10_000_000) == 7
    assert first_size(frozenset(), 0) == 11


@given(st.integers(1, 500), st.integers(1, 500), _sides)
def test_a_size_between_lies_between_and_stands_out(
    small: int, more: int, sides: frozenset[int]
) -> None:
    size = size_between(small, small + more, sides)
    if size is not None:
        assert small < size < small + more
        assert all(side % size for side in sides if side)


def test_nothing_lies_between_neighbours() -> None:
    assert size_between(11, 12, frozenset()) is None


def told_by(bytes_at: Callable[[int], int], held_bytes: int = 0) -> list[int]:
    """Ask for sizes until it is sure enough what all others take."""
    known = {41: bytes_at(41)}
    while (size := size_to_tell(known, held_bytes)) is not None:
        assert size not in known
        known[size] = bytes_at(size)
    return list(known)


def test_xla_is_asked_at_few_sizes_where_its_memory_grows_in_a_line() -> None:
    assert told_by(lambda size: size * MIB) == [41, 256, 64, 16, 4]


def test_beside_a_size_that_is_known_xla_is_not_asked() -> None:
    assert size_to_tell({61: 116 * MIB, 256: 232 * MIB}, 0) == 16


def test_where_it_grows_by_little_it_is_asked_at_a_large_size_too() -> None:
    assert 4096 in set(told_by(lambda size: 50 * MIB + size * 1000))


def test_what_is_little_beside_what_stays_is_not_asked_for_again() -> None:
    grows = {size: 10 * MIB + size * 1000 for size in range(1, 5000)}
    assert len(told_by(grows.__getitem__, held_bytes=10_000 * MIB)) < len(
        told_by(grows.__getitem__)
    )


def test_a_step_that_takes_nothing_needs_no_more_sizes() -> None:
    assert told_by(lambda _: 0) == [41, 256, 64, 16]


def test_where_its_memory_bends_it_is_asked_near_the_bend() -> None:
    assert 128 in set(told_by(lambda size: max(100, size) * MIB))
