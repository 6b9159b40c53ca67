"""What is told of a data set's steps: what each gives, and what it keeps."""

from typing import Any

import pytest
from children import run_after_import

CHILD = """
import dataclasses

import numpy as np
import tensorflow as tf

from oommagic.tf.names_now import names_now

def steps(dataset):
    named = names_now({"ds": dataset}, ["ds"])["ds"]
    return [dataclasses.astuple(step)[:4] for step in named.pipeline]

x, y = np.zeros((10, 3)), np.zeros(10, np.int32)
slices = tf.data.Dataset.from_tensor_slices((x, y))
told["kept"] = steps(slices.shuffle(5).cache().batch(4).prefetch(tf.data.AUTOTUNE))
told["mapped"] = steps(
    tf.data.Dataset.range(9)
    .map(lambda i: tf.fill((4,), i), num_parallel_calls=2)
    .batch(2)
    .map(lambda row: {"row": tf.cast(row, tf.float32)})
)
told["open"] = steps(tf.data.Dataset.from_generator(
    lambda: iter([[1], [1, 2]]), output_signature=tf.TensorSpec((None,), tf.int64)
).repeat().take(3))
rows = tf.data.Dataset.from_tensor_slices((np.zeros((10, 16), np.float32), y)).shuffle(5)
for name, dataset in ("rows", rows), ("batches", rows.batch(2)):
    told[name] = names_now({"ds": dataset}, ["ds"])["ds"].pipeline[-1].kept_bytes
told["was run"] = False
def never():
    told["was run"] = True
    yield 1
steps(tf.data.Dataset.from_generator(never, output_signature=tf.TensorSpec((), tf.int64)))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return run_after_import(CHILD)


def test_a_data_set_tells_the_size_of_what_each_step_gives_and_keeps(told: dict[str, Any]) -> None:
    assert told["kept"] == [
        ["tensorslice", 28, 10, None],
        ["shuffle", 28, 10, 5],
        ["cache", 28, 10, None],
        ["batch", 112, 3, 4],
        ["prefetch", 112, 3, -1],
    ]


def test_a_map_s_elements_count_as_it_gives_them(told: dict[str, Any]) -> None:
    assert told["mapped"] == [
        ["range", 8, 9, None],
        ["map", 32, 9, None],
        ["batch", 64, 5, 2],
        ["map", 32, 5, None],
    ]


def test_a_size_that_is_open_is_not_told(told: dict[str, Any]) -> None:
    last = told["open"][-1]
    assert last == ["take", 0, None, None]


def test_a_data_set_is_not_run_to_look_at_it(told: dict[str, Any]) -> None:
    assert told["was run"] is False


def test_a_buffer_of_an_array_s_rows_takes_only_what_is_copied(told: dict[str, Any]) -> None:
    assert told["rows"] == 4
    assert told["batches"] == 2 * (64 + 4)
