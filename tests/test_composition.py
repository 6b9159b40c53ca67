"""Who held what at the peak: figures that add up to the byte, and names that are true."""

import random
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from children import ARENA, run_after_import
from hypothesis import given
from hypothesis import strategies as st

from oommagic.explain.composition import (
    composition_at_failure,
    composition_at_peak,
    composition_of_names,
)
from oommagic.recording import Held, Left, NamesThen, OpRole, Tape
from oommagic.report import Composition, Failure, HoldingKind
from oommagic.units import KIB, MIB

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.both_ends]

DEVICE = "CPU:0"
_LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
SLOT = 1 << 20
"""The simulated allocator hands out places as far apart as this, the lowest free one first."""

RUN_OUT = Failure("allocation", "device", "OOM when allocating")


@dataclass
class Piece:
    """A piece of memory that somebody asked for."""

    address: int
    bytes: int
    requested: int
    number: int
    was_before: bool
    began: int
    ended: int | None = None


@dataclass
class Allocator:
    """An allocator that keeps a tape, and knows what all its memory is."""

    live: dict[int, Piece] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    events: list[tuple[int, int, int, int]] = field(default_factory=list)
    before_bytes: int = 0

    def take(self, requested: int, slack: int = 0, op: int = 0, *, taped: bool = True) -> Piece:
        """Hand out a chunk: a multiple of 256 bytes, sometimes larger than need be."""
        address = next(a for a in range(SLOT, 1 << 60, SLOT) if a not in self.live)
        size = -(-requested // 256) * 256 + slack * 256
        piece = Piece(address, size, requested, len(self.pieces), not taped, len(self.events))
        self.live[address] = piece
        self.pieces.append(piece)
        if taped:
            self.events.append((address, size, requested, op))
        else:
            self.before_bytes += size
        return piece

    def give_back(self, piece: Piece) -> None:
        """Free it, on the tape."""
        del self.live[piece.address]
        piece.ended = len(self.events)
        self.events.append((piece.address, -piece.bytes, piece.requested, 0))

    def tape(self, *, is_whole: bool = True, times_s: Sequence[float] | None = None) -> Tape:
        """Give the tape so far."""
        return tape_of(self.events, self.before_bytes, is_whole=is_whole, times_s=times_s)


OPS = ("", "functional_1/dense_1/Relu", "sgd/Mul", "MatMul")
ROLES = (
    OpRole("data"),
    OpRole("activations", "dense"),
    OpRole("workspace", "sgd"),
    OpRole("activations"),
)
_DATA, _LAYER, _UPDATE, _EAGER = range(4)


def tape_of(
    events: Sequence[tuple[int, int, int, int]],
    before_bytes: int = 0,
    *,
    is_whole: bool = True,
    times_s: Sequence[float] | None = None,
    steps: tuple[tuple[float, float, str], ...] = (),
) -> Tape:
    """Make a tape of addresses, bytes handed out, bytes asked for, and ops."""
    in_use = array("q")
    for _, size, _, _ in events:
        in_use.append((in_use[-1] if in_use else before_bytes) + size)
    return Tape(
        device=DEVICE,
        before_bytes=before_bytes,
        times_s=array("d", times_s or [number / 1e3 for number in range(len(events))]),
        addresses=array("q", [address for address, _, _, _ in events]),
        bytes=array("q", [size for _, size, _, _ in events]),
        requested_bytes=array("q", [requested for _, _, requested, _ in events]),
        in_use_bytes=in_use,
        op_numbers=array("q", [op for _, _, _, op in events]),
        tensor_numbers=array("q", [0] * len(events)),
        temporary=array("b", [0] * len(events)),
        ops=OPS,
        roles=ROLES,
        tensors=((None, "float32"),),
        steps=steps,
        is_whole=is_whole,
    )


def held(piece: Piece, kind: HoldingKind = "tensors", owner: str = "") -> Held:
    """Let a name hold it."""
    return Held(owner or f"name{piece.number}", kind, DEVICE, piece.address, piece.requested)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Allocator, list[Held], list[Held]]:
    """Draw any run: what was there before, what came and went, and names for some of it."""
    allocator = Allocator()
    sizes = st.integers(1, 40 * KIB)
    for requested in draw(st.lists(sizes, max_size=6)):
        allocator.take(requested, taped=False)
    named = draw(st.sets(st.integers(0, 60)))
    before = [held(piece) for piece in allocator.pieces if piece.number in named]
    for action, requested in draw(st.lists(st.tuples(st.integers(0, 9), sizes), max_size=60)):
        living = list(allocator.live.values())
        if action < 4 and living:
            allocator.give_back(living[requested % len(living)])
        else:
            allocator.take(requested, slack=max(0, action - 7), op=requested % 4)
    after = [held(piece) for piece in allocator.live.values() if piece.number in named]
    return allocator, before, after


def adds_up(composition: Composition, in_use_bytes: int) -> bool:
    sizes = [holding.bytes for holding in composition.holdings]
    return composition.total_bytes == in_use_bytes == sum(sizes) and all(s > 0 for s in sizes)


def bytes_by_owner(composition: Composition) -> Counter[str]:
    found: Counter[str] = Counter()
    for holding in composition.holdings:
        if holding.owner and holding.kind != "rounding":
            found[holding.owner] += holding.bytes
    return found


@given(runs())
def test_holdings_add_up_to_the_allocator_s_figure_at_every_moment(
    run: tuple[Allocator, list[Held], list[Held]],
) -> None:
    allocator, before, after = run
    for moment in range(len(allocator.events) + 1):
        tape = tape_of(allocator.events[:moment], allocator.before_bytes)
        in_use = tape.in_use_bytes[-1] if moment else tape.before_bytes
        failure = replace(RUN_OUT, in_use_bytes=in_use)
        assert adds_up(composition_at_failure(tape, before, after, failure), in_use)
        highest = max(tape.in_use_bytes, default=0)
        assert adds_up(composition_at_peak(tape, before, after), max(highest, tape.before_bytes))


@given(runs())
def test_each_name_owns_what_it_held_at_the_peak_and_nothing_else(
    run: tuple[Allocator, list[Held], list[Held]],
) -> None:
    allocator, before, after = run
    tape = allocator.tape()
    highest = max(tape.in_use_bytes, default=0)
    peak = tape.in_use_bytes.index(highest) if highest > tape.before_bytes else -1
    names = {one.owner for one in (*before, *after)}
    truth = {
        f"name{piece.number}": piece.requested
        for piece in allocator.pieces
        if (piece.was_before or piece.began <= peak)
        and (piece.ended is None or (piece.was_before and piece.ended > peak))
        and f"name{piece.number}" in names
    }
    assert bytes_by_owner(composition_at_peak(tape, before, after)) == truth


@given(runs(), st.randoms(use_true_random=False))
def test_the_order_of_names_does_not_matter(
    run: tuple[Allocator, list[Held], list[Held]], chance: random.Random
) -> None:
    allocator, before, after = run
    expected = composition_at_peak(allocator.tape(), before, after)
    chance.shuffle(before)
    chance.shuffle(after)
    shuffled = composition_at_peak(allocator.tape(), before, after)
    assert sorted(map(repr, shuffled.holdings)) == sorted(map(repr, expected.holdings))


@given(runs(), st.sets(st.integers(0, 59)))
def test_a_tape_with_missing_events_still_adds_up(
    run: tuple[Allocator, list[Held], list[Held]], lost: set[int]
) -> None:
    allocator, before, after = run
    tape = allocator.tape()
    kept = [number for number in range(len(tape.bytes)) if number not in lost]
    torn = replace(
        tape_of([allocator.events[number] for number in kept], allocator.before_bytes),
        in_use_bytes=array("q", [tape.in_use_bytes[number] for number in kept]),
    )
    highest = max([tape.before_bytes, *torn.in_use_bytes])
    assert adds_up(composition_at_peak(torn, before, after), highest)


@given(st.lists(st.integers(0, 64 * KIB), max_size=20), st.integers(0, MIB))
def test_without_a_tape_names_take_what_there_is_and_the_rest_is_unknown(
    sizes: list[int], in_use: int
) -> None:
    names = [
        Held(f"name{number}", "tensors", DEVICE, SLOT * (number + 1), size)
        for number, size in enumerate(sizes)
    ]
    composition = composition_of_names(DEVICE, in_use, names)
    assert composition.source == "names"
    assert adds_up(composition, in_use)
    if sum(sizes) <= in_use:
        assert bytes_by_owner(composition) == {f"name{n}": s for n, s in enumerate(sizes) if s}


def test_what_the_allocator_gave_unasked_is_rounding_of_the_same_layer() -> None:
    allocator = Allocator()
    allocator.take(1000, slack=4, op=_LAYER)
    composition = composition_at_peak(allocator.tape(), [], [])
    assert {(one.kind, one.layer, one.bytes) for one in composition.holdings} == {
        ("activations", "dense", 1000),
        ("rounding", "dense", 24 + 4 * 256),
    }


def test_a_reused_address_does_not_pass_on_a_name() -> None:
    allocator = Allocator()
    first = allocator.take(4096, op=_EAGER)
    filler = allocator.take(8192, op=_EAGER)
    allocator.give_back(first)
    allocator.give_back(filler)
    second = allocator.take(4096, op=_EAGER)
    assert second.address == first.address
    composition = composition_at_peak(allocator.tape(), [], [held(second)])
    assert not bytes_by_owner(composition)


def test_after_the_tape_an_address_counts_only_with_the_same_size() -> None:
    allocator = Allocator()
    piece = allocator.take(4096, op=_EAGER)
    smaller = replace(held(piece), bytes=2048)
    cut = allocator.tape(is_whole=False)
    assert not bytes_by_owner(composition_at_peak(cut, [], [smaller]))
    assert bytes_by_owner(composition_at_peak(cut, [], [held(piece)])) == {"name0": 4096}
    assert bytes_by_owner(composition_at_peak(allocator.tape(), [], [smaller])) == {"name0": 4096}


def test_a_name_without_an_address_counts_once_and_only_if_it_was_there_before() -> None:
    allocator = Allocator()
    allocator.take(4096, taped=False)
    text = Held("texts", "tensors", DEVICE, 0, 1024)
    allocator.take(256, op=_EAGER)
    tape = allocator.tape()
    assert bytes_by_owner(composition_at_peak(tape, [text], [text])) == {"texts": 1024}
    assert not bytes_by_owner(composition_at_peak(tape, [], [text]))


def test_a_tape_goes_by_what_names_held_when_it_began_and_ended() -> None:
    allocator = Allocator()
    old = allocator.take(8192, taped=False)
    losses = allocator.take(2048, taped=False)
    new = allocator.take(8192, op=_UPDATE)
    allocator.give_back(old)
    still = held(losses, owner="losses[0]")
    tape = replace(
        allocator.tape(is_whole=False),
        names_before=NamesThen((held(old, "weights", "model"), still), 0.0),
        names_after=NamesThen((held(new, "weights", "model"), still), 9.0),
    )
    # By the end of the run they lie elsewhere.
    later = [Held("model", "weights", DEVICE, 99 * SLOT, 8192)]
    composition = composition_at_peak(tape, [], later)
    assert bytes_by_owner(composition) == {"model": 2 * 8192, "losses[0]": 2048}
    assert "unknown" not in {one.kind for one in composition.holdings}


def test_what_lives_without_a_name_is_told_by_its_op() -> None:
    allocator = Allocator()
    piece = allocator.take(4096, op=_DATA)
    composition = composition_at_peak(allocator.tape(), [], [replace(held(piece), owner="")])
    assert [one.kind for one in composition.holdings] == ["data"]


def _begun_within_a_step(*lost: tuple[int, int]) -> Allocator:
    """Take, before the tape, what a step has begun with, and then run two whole ones."""
    allocator = Allocator()
    for piece in [allocator.take(requested, taped=False) for _, requested in lost]:
        allocator.give_back(piece)
    for _ in range(2):
        for piece in [allocator.take(requested, op=op) for op, requested in lost]:
            allocator.give_back(piece)
    return allocator


def test_what_a_step_began_with_before_the_tape_is_what_later_steps_begin_with() -> None:
    events = 5
    allocator = _begun_within_a_step((_LAYER, 64 * KIB))
    tape = allocator.tape(times_s=range(1, events + 1))
    steps = ((0.0, 1.5, "step"), (1.6, 3.5, "step"), (3.6, 5.5, "step"))
    found = composition_at_peak(replace(tape, steps=steps), [], [])
    assert [(one.kind, one.layer) for one in found.holdings] == [("activations", "dense")]
    others = ((0.0, 1.5, "step"), (1.6, 3.5, "other"), (3.6, 5.5, "other"))
    found = composition_at_peak(replace(tape, steps=others), [], [])
    assert [one.kind for one in found.holdings] == ["unknown"]


def test_what_two_ops_of_a_step_may_have_asked_for_is_not_known() -> None:
    allocator = _begun_within_a_step((_LAYER, 64 * KIB), (_UPDATE, 64 * KIB))
    tape = allocator.tape(times_s=range(1, 11))
    steps = ((0.0, 2.5, "step"), (2.6, 6.5, "step"), (6.6, 10.5, "step"))
    found = composition_at_peak(replace(tape, steps=steps), [], [])
    assert [one.kind for one in found.holdings] == ["unknown"]


def test_what_has_the_size_of_data_alone_is_data() -> None:
    for op, kind in ((_DATA, "data"), (_EAGER, "unknown")):
        allocator = _begun_within_a_step((op, 64 * KIB))
        found = composition_at_peak(allocator.tape(), [], [])
        assert [one.kind for one in found.holdings] == [kind]


def test_what_an_earlier_run_saw_tells_how_large_a_chunk_is_and_not_whose() -> None:
    allocator = Allocator()
    rows = allocator.take(64 * KIB, slack=100, taped=False)
    gone = allocator.take(32 * KIB, taped=False)
    allocator.take(4096, op=_LAYER)
    seen = [
        Left(one.address, one.bytes, one.requested, "Op", OpRole("data", "old"), None, "", 0.0)
        for one in (rows, gone)
    ]
    tape = replace(allocator.tape(), left=tuple(replace(one, is_of_this_run=False) for one in seen))
    composition = composition_at_peak(tape, [held(rows, "data", "dataset")], [])
    assert {(one.kind, one.owner or one.layer, one.bytes) for one in composition.holdings} == {
        ("data", "dataset", 64 * KIB),
        ("rounding", "dataset", 100 * 256),
        ("activations", "dense", 4096),
        ("unknown", "", 32 * KIB),
    }


def test_a_batch_is_told_as_rows_of_the_one_data_set_that_has_such() -> None:
    allocator = Allocator()
    rows = allocator.take(64 * KIB, taped=False)
    allocator.take(16 * KIB, op=_DATA)
    allocator.take(5000, op=_DATA)
    known = Held("dataset[0]", "data", DEVICE, rows.address, 64 * KIB, "", (16, 1024), "float32")
    composition = composition_at_peak(allocator.tape(), [known], [])
    found = {(one.owner, one.shape) for one in composition.holdings if one.kind == "data"}
    assert found == {("dataset[0]", (16, 1024)), ("dataset", (4, 1024)), ("", None)}
    alike = replace(known, owner="other", address=rows.address + SLOT * 9)
    composition = composition_at_peak(allocator.tape(), [known, alike], [])
    assert "dataset" not in {one.owner for one in composition.holdings}


def test_a_slice_names_the_memory_that_it_lies_in() -> None:
    allocator = Allocator()
    piece = allocator.take(64 * KIB, op=_EAGER)
    part = Held("tail", "tensors", DEVICE, piece.address + 32 * KIB, 32 * KIB)
    composition = composition_at_peak(allocator.tape(), [], [part])
    assert bytes_by_owner(composition) == {"tail": 64 * KIB}


def test_a_slot_that_moves_in_each_step_is_named_in_all_of_them() -> None:
    allocator = Allocator()
    slot = allocator.take(4096, op=_UPDATE)
    for _ in range(3):
        renewed = allocator.take(4096, op=_UPDATE)
        allocator.give_back(slot)
        slot = renewed
    after = [held(slot, "optimizer slots", "optimizer")]
    composition = composition_at_peak(allocator.tape(), [], after)
    assert bytes_by_owner(composition) == {"optimizer": 2 * 4096}
    assert composition.holdings[0].count == 2


def test_two_slots_from_one_op_are_not_guessed_apart() -> None:
    allocator = Allocator()
    first, second, third = (allocator.take(4096, op=_UPDATE) for _ in range(3))
    allocator.give_back(third)
    after = [held(first, "optimizer slots", "a"), held(second, "optimizer slots", "b")]
    composition = composition_at_peak(allocator.tape(), [], after)
    assert bytes_by_owner(composition) == {"a": 4096, "b": 4096}
    assert any(one.op == "Mul" and one.bytes == 4096 for one in composition.holdings)


def test_many_items_of_a_list_are_told_as_the_list_and_one_as_itself() -> None:
    allocator = Allocator()
    losses = [allocator.take(512, op=_EAGER) for _ in range(5)]
    lone = allocator.take(4096, op=_EAGER)
    after = [held(piece, owner=f"losses[{place}]") for place, piece in enumerate(losses)]
    composition = composition_at_peak(
        allocator.tape(), [], [*after, held(lone, owner="kept['x'][3]")]
    )
    found = {(one.owner, one.count) for one in composition.holdings}
    assert found == {("losses", 5), ("kept['x'][3]", 1)}


def test_a_peak_before_the_first_event_is_what_was_there() -> None:
    allocator = Allocator()
    model, other = (allocator.take(1000, taped=False) for _ in range(2))
    allocator.give_back(model)
    composition = composition_at_peak(allocator.tape(), [held(model, "weights", "model")], [])
    assert {(one.kind, one.bytes) for one in composition.holdings} == {
        ("weights", 1000),
        ("rounding", 24),
        ("unknown", other.bytes),
    }


def test_a_peak_that_the_tape_missed_is_told() -> None:
    allocator = Allocator()
    allocator.take(2 * MIB, op=_LAYER)
    steps = tuple((float(step), step + 0.5, "one_step") for step in range(3))
    tape = replace(allocator.tape(is_whole=False), steps=steps)
    assert composition_at_peak(tape, [], [], 2 * MIB).note == ""
    for more_bytes, told in ((3 * MIB, "3.00 MB"), (6 * KIB, "6.00 KB")):
        assert composition_at_peak(tape, [], [], 2 * MIB + more_bytes).note == (
            "At the highest point of the 3 steps that were recorded: 2.00 MB. "
            f"The peak of the whole run was {told} higher, when nothing was recorded."
        )
    late = composition_at_failure(tape, [], [], RUN_OUT)
    assert late.moment == "recorded"
    assert late.note == (
        "At the highest point of the 3 steps that were recorded: 2.00 MB. "
        "It ran out later, when nothing was recorded."
    )


def test_the_failing_moment_is_where_the_allocator_waited() -> None:
    allocator = Allocator()
    early = allocator.take(9000, op=_LAYER)
    allocator.give_back(early)
    kept = allocator.take(5000, op=_LAYER)
    allocator.give_back(kept)
    tape = allocator.tape(times_s=[0.0, 0.1, 0.2, 10.3])
    for on_tape in (tape, replace(tape, is_whole=False)):
        composition = composition_at_failure(on_tape, [], [], RUN_OUT)
        assert (composition.moment, composition.total_bytes) == ("failure", 5120)
    told = replace(RUN_OUT, in_use_bytes=9216)
    assert composition_at_failure(tape, [], [], told).total_bytes == 9216


def test_a_hundred_thousand_pieces_are_told_in_a_few_hundred_and_soon() -> None:
    events = [(SLOT * (n + 1), 256 * (1 + n % 700), 200, n % 4) for n in range(100_000)]
    for _ in range(4):
        events += [(address, -size, 200, 0) for address, size, _, _ in events[:100_000]]
        events += events[:100_000]
    tape = tape_of(events)
    after = [Held(f"n{n}", "tensors", DEVICE, SLOT * (n + 1), 200) for n in range(20_000)]
    began = time.process_time()
    composition = composition_at_peak(tape, [], after)
    assert time.process_time() - began < 4.0
    assert adds_up(composition, max(tape.in_use_bytes))
    assert len(composition.holdings) < 450
    assert sum(one.count for one in composition.holdings if one.kind != "rounding") == 100_000


# ---- Real models, on the arena, each in a child process ----------------------------------------

_BEFORE = """
import numpy as np
import tensorflow as tf
import keras
from keras import layers
from tensorflow.config.experimental import get_memory_info, reset_memory_stats
from oommagic.explain.composition import composition_at_failure, composition_at_peak
from oommagic.tf.inventory import held_by
from oommagic.tf.tape import Taping
from oommagic.tf.tape_bounds import Limits

keras.utils.set_random_seed(3)
tf.zeros(())
"""
_BEGIN = """
before = held_by(globals())
reset_memory_stats("CPU:0")
taping = Taping(Limits(steps=99, eager_s=99.0, events=10_000_000))
taping.begin()
"""
_END = """
peak = get_memory_info("CPU:0")["peak"]
(tape,) = taping.end()
after = held_by(globals())
composition = composition_at_peak(tape, before, after, peak)
holdings = composition.holdings
named = sum(one.bytes for one in holdings if one.layer or one.owner)
told |= {
    "peak": peak,
    "total": composition.total_bytes,
    "sum": sum(one.bytes for one in holdings),
    "named": named / composition.total_bytes,
    "held": [[one.kind, one.layer, one.owner, one.count, one.shape] for one in holdings],
    "note": composition.note,
}
"""

_CNN = """
model = keras.Sequential([
    keras.Input((64, 64, 3)),
    layers.Conv2D(16, 3, activation="relu", name="first"),
    layers.MaxPooling2D(),
    layers.Conv2D(32, 3, activation="relu", name="second"),
    layers.Flatten(),
    layers.Dense(10, name="head"),
])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
images = np.zeros((48, 64, 64, 3), "float32")
dataset = tf.data.Dataset.from_tensor_slices((images, np.zeros(48, "int32"))).batch(16)
"""
_RECURRENT = """
model = keras.Sequential([
    layers.Embedding(5000, 64), layers.LSTM(48), layers.Dense(1, activation="sigmoid")
])
model.compile("rmsprop", "binary_crossentropy")
x = np.zeros((48, 40), "int32")
y = np.zeros(48)
"""
_TRANSFORMER = """
inputs = keras.Input((32,), dtype="int32")
x = layers.Embedding(2000, 64)(inputs)
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(256, "gelu")(x)))
model = keras.Model(inputs, layers.Dense(2000)(x))
model.compile("adamw", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x = y = np.zeros((48, 32), "int32")
"""
_FIT = "model.fit(x, y, batch_size=16, verbose=0)"
_TWO_OPTIMIZERS = """
generator = keras.Sequential([
    keras.Input((32,)), layers.Dense(7 * 7 * 32), layers.Reshape((7, 7, 32)),
    layers.Conv2DTranspose(16, 4, strides=2, padding="same", activation="relu"),
    layers.Conv2DTranspose(1, 4, strides=2, padding="same"),
], name="generator")
critic = keras.Sequential([
    keras.Input((28, 28, 1)), layers.Conv2D(32, 3, strides=2), layers.LeakyReLU(),
    layers.Conv2D(64, 3, strides=2), layers.Flatten(), layers.Dense(1),
], name="critic")
makes, judges = keras.optimizers.Adam(), keras.optimizers.RMSprop()

@tf.function
def step(real):
    with tf.GradientTape() as of_maker, tf.GradientTape() as of_judge:
        fake = generator(tf.random.normal((64, 32)), training=True)
        gap = tf.reduce_mean(critic(fake) - critic(real))
        loss = -gap
    weights = generator.trainable_variables
    makes.apply_gradients(zip(of_maker.gradient(loss, weights), weights))
    weights = critic.trainable_variables
    judges.apply_gradients(zip(of_judge.gradient(gap, weights), weights))
    return gap
"""
_LOOP = """
gaps = []
for real in tf.data.Dataset.from_tensors(np.zeros((64, 28, 28, 1), "float32")).repeat(3):
    gaps.append(step(real))
"""


@dataclass(frozen=True)
class Composed:
    """What is asked of a real composition: the share that is named, and who held what."""

    named: float
    held: dict[str, set[tuple[str, str]]]


def composed(*sources: str) -> Composed:
    told = run_after_import("\n".join((_BEFORE, *sources, _END)), {**ARENA, _LIMIT: "2000"})
    assert told["total"] == told["peak"] == told["sum"], told["note"]
    held_by_kind: dict[str, set[tuple[str, str]]] = {}
    for kind, layer, owner, _, _ in told["held"]:
        held_by_kind.setdefault(kind, set()).add((layer, owner))
    return Composed(told["named"], held_by_kind)


def test_a_step_of_a_model_made_before_the_cell_is_told_to_the_byte_by_layer() -> None:
    found = composed(_CNN, _BEGIN, "model.fit(dataset, verbose=0)")
    assert found.named > 0.95
    assert ("second", "model") in found.held["weights"]
    assert ("head", "model.optimizer") in found.held["optimizer slots"]
    # Which ops race decides whether the peak comes before the layer's gradient or with it.
    assert ("first", "") in found.held["activations"] | found.held["gradients"]
    assert ("", "dataset") in found.held["data"]


@pytest.mark.long
@pytest.mark.parametrize(
    "model", [_RECURRENT, _TRANSFORMER], ids=["embedding and LSTM", "transformer"]
)
def test_a_model_made_in_the_cell_is_told_to_the_byte(model: str) -> None:
    found = composed(_BEGIN, model, _FIT)
    assert found.named > 0.95
    assert ("embedding", "model") in found.held["weights"]


@pytest.mark.long
def test_two_optimizers_of_a_loop_are_told_apart() -> None:
    found = composed(_TWO_OPTIMIZERS, _BEGIN, _LOOP)
    assert found.named > 0.95
    assert {owner for _, owner in found.held["optimizer slots"]} >= {"makes", "judges"}
    assert {owner for _, owner in found.held["weights"]} >= {"generator", "critic"}


def test_what_filled_the_device_when_it_ran_out_is_told() -> None:
    cell = """
kept = []
try:
    while True:
        kept.append(tf.ones((4, 1024, 1024)))
except tf.errors.ResourceExhaustedError as error:
    ran_out = error
    in_use = get_memory_info("CPU:0")["current"]
del kept[5:]
"""
    end = """
(tape,) = taping.end()
composition = composition_at_failure(tape, before, held_by(globals()), None)
told["total"], told["in_use"] = composition.total_bytes, in_use
told["moment"] = composition.moment
told["held"] = [[one.owner, one.op, one.count] for one in composition.holdings]
"""
    told = run_after_import(_BEFORE + _BEGIN + cell + end, {**ARENA, _LIMIT: "200"})
    assert told["total"] == told["in_use"]
    assert told["moment"] == "failure"
    assert ["kept", "", 5] in told["held"]
    assert any(owner == "" and count > 1 for owner, _, count in told["held"])
