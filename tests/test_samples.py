"""A few rows of the user's data, and batches of any size made of them; NumPy alone."""

import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oommagic.errors import PlanError
from oommagic.tf.samples import Sample, from_arrays, from_function, leaves

_Pair = namedtuple("_Pair", "x y")  # noqa: PYI024 (users write these)


def _arrays(batch: Any) -> list[Any]:
    return list(leaves(batch))


@given(st.integers(1, 40), st.integers(1, 300), st.sampled_from(["tuple", "list", "dict", "pair"]))
def test_a_batch_of_any_size_has_the_users_structure_and_values(
    length: int, count: int, structure: str
) -> None:
    x: Any = np.random.default_rng(0).random((length, 4))
    y: Any = np.arange(length) % 3
    batch = {"tuple": (x, y), "list": [x, y], "dict": {"x": x, "y": y}, "pair": _Pair(x, y)}
    sample = from_arrays(batch[structure])
    made = sample.batch(count)
    assert type(made) is type(batch[structure])
    made_x, made_y = _arrays(made)
    assert made_x.shape == (count, 4)
    assert (made_x.dtype, made_y.dtype) == (x.dtype, y.dtype)
    assert {tuple(row) for row in made_x} <= {tuple(row) for row in x}
    assert set(made_y) <= set(y)
    assert sum(sample.row_bytes) == 4 * 8 + y.itemsize


def test_no_more_than_a_few_rows_are_held_and_none_of_the_users_memory() -> None:
    x = np.zeros((10_000, 100))
    sample = from_arrays((x, x[:, 0]))
    assert len(pickle.dumps(sample)) < 10_000
    assert not any(np.shares_memory(part.values, x) for part in leaves(sample.content))


def test_one_row_is_enough_where_rows_are_large() -> None:
    sample = from_arrays(np.zeros((4, 3, 1024, 1024), "float64"))
    assert sample.content.values.shape == (1, 3, 1024, 1024)
    assert sample.batch(2).shape == (2, 3, 1024, 1024)


def test_what_is_no_array_stays_as_it_is_and_a_number_in_an_array_too() -> None:
    made = from_arrays((np.zeros((6, 2)), "adam", None, np.float32(0.5), np.array(3))).batch(5)
    assert made[0].shape == (5, 2)
    assert made[1:3] == ("adam", None)
    assert (made[3], made[4]) == (0.5, 3)


def test_an_array_that_only_looks_like_one_is_read_by_its_first_rows_alone() -> None:
    class OnDisk:
        shape = (1_000_000, 3)
        read = 0

        def __getitem__(self, rows: slice) -> Any:
            type(self).read += len(range(*rows.indices(self.shape[0])))
            return np.ones((len(range(*rows.indices(self.shape[0]))), 3))

        def __array__(self) -> Any:
            raise AssertionError("all of it was read")

    assert from_arrays(OnDisk()).batch(20).shape == (20, 3)
    assert OnDisk.read <= 20


def test_a_function_is_asked_for_two_sizes_and_tells_what_grows() -> None:
    asked = []

    def make_batch(n: int) -> Any:
        asked.append(n)
        noise, frames = np.zeros((2 * n, 7)), np.zeros((10, n, 3))
        return {"images": np.ones((n, 4)), "noise": noise, "frames": frames}, np.zeros(3), 0.1

    sample = from_function(make_batch)
    inputs, fixed, rate = sample.batch(11)
    assert {name: array.shape for name, array in inputs.items()} == {
        "images": (11, 4),
        "noise": (22, 7),
        "frames": (10, 11, 3),
    }
    assert (fixed.shape, rate) == ((3,), 0.1)
    assert len(asked) == 2
    assert max(asked) < 8
    assert sum(sample.row_bytes) == 8 * (4 + 2 * 7 + 10 * 3)


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        ((np.zeros((8, 2)), np.zeros(7)), "different lengths (7 and 8)"),
        (np.zeros((0, 3)), "no rows"),
        ((), "no array"),
        ([1.0, 2.0], "no array"),
        ("data", "no array"),
        (np.float32(1), "no array"),
    ],
)
def test_a_batch_that_is_none_is_a_clear_sentence(batch: Any, sentence: str) -> None:
    with pytest.raises(PlanError) as raised:
        from_arrays(batch)
    assert sentence in str(raised.value)
    assert str(raised.value).endswith(".")


@pytest.mark.parametrize(
    ("make_batch", "sentence"),
    [
        (lambda _: np.zeros((32, 4)), "as many samples as it is asked for"),
        (lambda n: np.zeros((n, n)), "one side of it must grow"),
        (lambda n: np.zeros((n + 1, 4)), "one side of it must grow"),
        (lambda n: (np.zeros(n),) * n, "something else for each size"),
        (lambda n: np.zeros((1,) * n), "one side of it must grow"),
    ],
)
def test_a_function_that_makes_no_batches_is_a_clear_sentence(
    make_batch: Any, sentence: str
) -> None:
    with pytest.raises(PlanError, match=sentence):
        from_function(make_batch)


def test_a_sample_travels() -> None:
    sample = from_arrays((np.arange(6), {"a": np.array([b"x"] * 6, dtype=object)}))
    arrived: Sample = pickle.loads(pickle.dumps(sample))  # noqa: S301 (our own)
    assert list(arrived.batch(7)[0]) == [0, 1, 2, 3, 4, 5, 0]
    assert list(arrived.batch(2)[1]["a"]) == [b"x", b"x"]


def test_the_sides_that_the_batch_must_stand_out_from_are_told() -> None:
    assert from_arrays((np.zeros((8, 28, 21)), np.zeros((8, 10)))).fixed_sides() == {28, 21, 10}
