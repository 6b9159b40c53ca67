"""Numbers in words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oommagic.units import MIB, format_bytes, format_seconds, format_time

_UNITS_S = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_NEXT = {"µs": 1000, "ms": 1000, "s": 60, "min": 60}


def parts(words: str) -> list[tuple[str, str]]:
    """Take `4 min 05 s` apart."""
    return re.findall(r"([\d.]+) (µs|ms|s|min|h)", words)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (999, "999 B"),
        (1000, "0.98 KB"),
        (999 * MIB, "999 MB"),
        (1008 * MIB, "0.98 GB"),
        (1024 * MIB - 1, "1.00 GB"),
        (-1000 * MIB, "-0.98 GB"),
    ],
)
def test_no_part_of_a_gigabyte_looks_like_more_than_one(count: int, words: str) -> None:
    assert format_bytes(count) == words


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        ("2026-11-18T11:40:02+00:00", "2026-11-18 11:40:02 UTC"),
        ("2026-11-18T11:40:02", "2026-11-18 11:40:02"),
        ("some day", "some day"),
    ],
)
def test_a_moment_is_written_as_people_write_it(moment: str, words: str) -> None:
    assert format_time(moment) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 µs"),
        (0.0009996, "1.00 ms"),
        (0.0034, "3.40 ms"),
        (0.009996, "10.0 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (2.154, "2.15 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (245.2, "4 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7199.0, "2 h 00 min"),
        (7380.0, "2 h 03 min"),
    ],
)
def test_a_duration_is_rounded_before_its_unit_is_chosen(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words


@given(st.one_of(st.floats(0, 2), st.floats(0, 1e6)))
def test_no_figure_of_a_duration_reaches_the_next_unit(seconds: float) -> None:
    for number, unit in parts(format_seconds(seconds)):
        assert unit == "h" or float(number) < _NEXT[unit]


@given(st.one_of(st.floats(0, 2), st.floats(0, 1e6)))
def test_a_duration_in_words_is_the_duration_to_its_last_digit(seconds: float) -> None:
    said = parts(format_seconds(seconds))
    number, unit = said[-1]
    last_digit_s = 10.0 ** -len(number.partition(".")[2]) * _UNITS_S[unit]
    told = sum(float(figure) * _UNITS_S[name] for figure, name in said)
    assert abs(told - seconds) <= last_digit_s * 0.5000001


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_longer_duration_is_never_told_as_a_shorter_one(one: float, other: float) -> None:
    def told(seconds: float) -> float:
        return sum(
            float(figure) * _UNITS_S[unit] for figure, unit in parts(format_seconds(seconds))
        )

    shorter, longer = sorted((one, other))
    assert told(shorter) <= told(longer)


@given(st.integers(-(2**63), 2**63))
def test_a_size_has_at_most_four_digits_below_petabytes(count: int) -> None:
    number, _, unit = format_bytes(count).partition(" ")
    digits = [sign for sign in number if sign.isdigit()]
    assert unit == "TB" or len(digits) <= 4


def test_a_size_just_below_ten_has_three_digits_like_its_neighbours() -> None:
    assert format_bytes(10 * MIB - 1) == "10.0 MB"
    assert format_bytes(100 * MIB - 1) == "100 MB"
