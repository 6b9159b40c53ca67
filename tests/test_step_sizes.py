"""The sizes that a plan's steps are tried at: within the time, and told apart from other sides."""

from hypothesis import given
from hypothesis import strategies as st

from oommagic.tf.step_sizes import Pace, first_size, more_at_first, next_sizes

_seconds = st.floats(0.0001, 20)
_paces = st.builds(
    Pace, st.sampled_from([5, 7, 11, 13]), _seconds, _seconds, _seconds, st.just(10**6)
)
_sides = st.frozensets(st.integers(0, 5000), max_size=8)


@given(_paces, st.floats(-5, 60), _sides)
def test_what_is_chosen_fits_into_the_time_and_the_memory(
    pace: Pace, left_s: float, sides: frozenset[int]
) -> None:
    chosen = next_sizes(pace, left_s, sides)
    cost_s = sum(
        count * (pace.step_s * size / pace.batch + pace.fixed_s)
        + (pace.size_s if size != pace.batch else 0)
        for size, count in chosen
    )
    assert cost_s <= max(left_s, 0) * 1.000001
    sizes = [size for size, _ in chosen]
    assert sizes == sorted(set(sizes))
    assert len(sizes) <= 4
    assert all(side == 0 or side % size for size in sizes[1:] for side in sides)


@given(_paces, st.integers(0, 2000))
def test_no_size_takes_more_memory_than_there_is(pace: Pace, most: int) -> None:
    limited = Pace(pace.batch, 0.001, 0.001, 0.0, most)
    assert all(size <= max(most, pace.batch) for size, _ in next_sizes(limited, 30, frozenset()))


def test_a_quick_step_runs_at_four_sizes_and_takes_little_time() -> None:
    chosen = next_sizes(Pace(7, 0.005, 0.02, 0.0, 10**6), 20.0, frozenset({28, 10}))
    assert [count for _, count in chosen] == [2, 2, 2, 4]
    assert chosen[-1][0] > 60


def test_a_slow_step_still_runs_at_two_sizes() -> None:
    assert len(next_sizes(Pace(5, 1.2, 0.1, 0.0, 10**6), 9.0, frozenset())) >= 2


@given(_paces, st.floats(-5, 60))
def test_where_time_is_short_the_first_size_runs_a_few_times_more(
    pace: Pace, left_s: float
) -> None:
    ((size, count),) = more_at_first(pace, left_s)
    assert size == pace.batch
    assert 1 <= count <= 3
    assert count == 1 or count * (pace.step_s + pace.fixed_s) <= left_s


@given(_sides)
def test_the_first_size_stands_out_where_any_small_prime_does(sides: frozenset[int]) -> None:
    first = first_size(sides)
    others = [size for size in (7, 5, 11, 13) if all(side == 0 or side % size for side in sides)]
    assert first == (others[0] if others else 7)
