"""The replayed allocator hands out what TensorFlow's own does, and never more than there is."""

from typing import Any

import pytest
from children import ARENA, run_after_import
from hypothesis import given
from hypothesis import strategies as st

from oommagic.explain.bfc import Allocator
from oommagic.units import MIB

GRAIN = 256
LIMIT = 64 * MIB

RUN = """
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(1)
import keras
from oommagic.tf.steps import Making

with Making() as making:
    model = keras.Sequential([
        keras.Input((16, 16, 3)),
        keras.layers.Conv2D(8, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ])
    model.compile("adam", "mse")
    for batch in (16, 64, 16):
        model.train_on_batch(tf.ones((batch, 16, 16, 3)), tf.ones((batch, 10)))
tape = making.tape
told["before"] = tape.before_bytes
told["events"] = list(zip(tape.addresses, tape.bytes, tape.requested_bytes))
told["in use"] = list(tape.in_use_bytes)
"""


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return run_after_import(RUN, ARENA)


@pytest.mark.of_tensorflow
def test_a_recorded_training_run_is_replayed_to_the_byte(recorded: dict[str, Any]) -> None:
    assert recorded["before"] == 0
    assert len(recorded["events"]) > 1000
    allocator = Allocator(512 * MIB, grows=True)
    addresses: dict[int, int] = {}
    in_use = []
    for address, size, requested in recorded["events"]:
        if size > 0:
            found = allocator.allocate(requested)
            assert found is not None
            addresses[address] = found
        else:
            allocator.free(addresses.pop(address))
        in_use.append(allocator.in_use_bytes)
    assert in_use == recorded["in use"]


Program = list[tuple[int, int]]

programs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8 * MIB)), min_size=1, max_size=200)


def run(program: Program, allocator: Allocator) -> dict[int, int]:
    """Allocate, and every fourth time on average free the oldest; give what is left by address."""
    live: dict[int, int] = {}
    for choice, size in program:
        if choice == 0 and live:
            oldest = next(iter(live))
            del live[oldest]
            allocator.free(oldest)
            continue
        address = allocator.allocate(size)
        if address is not None:
            live[address] = size
    return live


@given(programs, st.booleans())
def test_chunks_are_large_enough_and_never_overlap(program: Program, grows: bool) -> None:  # noqa: FBT001 (drawn by Hypothesis)
    allocator = Allocator(LIMIT, grows=grows)
    live = run(program, allocator)
    end = -1
    for address in sorted(live):
        assert address >= end
        assert allocator.size_of(address) >= live[address]
        assert allocator.size_of(address) % GRAIN == 0
        end = address + allocator.size_of(address)


@given(programs, st.booleans())
def test_the_limit_holds_and_the_sum_is_that_of_the_chunks(program: Program, grows: bool) -> None:  # noqa: FBT001 (drawn by Hypothesis)
    allocator = Allocator(LIMIT, grows=grows)
    live = run(program, allocator)
    assert allocator.in_use_bytes == sum(map(allocator.size_of, live))
    assert allocator.in_use_bytes <= LIMIT


@given(programs)
def test_what_is_freed_joins_up_again(program: Program) -> None:
    allocator = Allocator(LIMIT, grows=False)
    for address in run(program, allocator):
        allocator.free(address)
    assert allocator.in_use_bytes == 0
    assert allocator.allocate(LIMIT) is not None


@given(programs, st.booleans())
def test_a_copy_goes_its_own_way(program: Program, grows: bool) -> None:  # noqa: FBT001 (drawn by Hypothesis)
    allocator = Allocator(LIMIT, grows=grows)
    live = run(program, allocator)
    in_use = allocator.in_use_bytes
    other = allocator.copy()
    for address in live:
        other.free(address)
    assert other.in_use_bytes == 0
    assert allocator.in_use_bytes == in_use


def test_a_chunk_is_handed_out_whole_where_little_would_be_left() -> None:
    allocator = Allocator(2 * MIB, grows=True)
    first, _ = allocator.allocate(1_000_000), allocator.allocate(GRAIN)
    assert first is not None
    allocator.free(first)
    again = allocator.allocate(600_000)
    assert again == first
    assert allocator.size_of(first) == 1_000_192


def test_one_large_block_finds_no_room_in_two_regions() -> None:
    allocator = Allocator(8 * MIB, grows=True)
    small = allocator.allocate(MIB)
    assert small is not None
    allocator.free(small)
    assert allocator.allocate(7 * MIB) is None
    assert Allocator(8 * MIB, grows=False).allocate(7 * MIB) is not None
