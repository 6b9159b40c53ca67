"""The sizes that a plan's steps are tried at: within the time, and told apart from other sides."""

from hypothesis import given
from hypothesis import strategies as st

from oommagic.tf.step_sizes import Pace, first_size, more_at_first, second_run

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
