"""Plans by themselves, from tapes that are written down here."""

from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oommagic.errors import PlanError
from oommagic.explain.fitting import size_to_tell
from oommagic.explain.orders import Orders
from oommagic.explain.plan import Plan
from oommagic.explain.rehearsal import Device, Rehearsal
from oommagic.explain.scaling import Allocation, Law, Script, Scripts
from oommagic.forecasts import Limit
from oommagic.planning import proven_batch
from oommagic.recording import CompiledSize, Held, OpRole, StepTapes, Tape, TapedStep
from oommagic.report import BatchTrial, Holding
from oommagic.units import MIB

PLAIN, SCRATCH = "model/layer/Relu", "model/conv/Conv3D"


def step(batch: int, *allocations: tuple[str, int]) -> TapedStep:
    """Write down a step that allocates these in turn, and then frees them all."""
    sizes = [size for _, size in allocations]
    count = len(sizes)
    in_use = [sum(sizes[: n + 1]) for n in range(count)]
    in_use += [sum(sizes[n + 1 :]) for n in range(count)]
    ops = tuple(dict.fromkeys(op for op, _ in allocations))
    numbers = [ops.index(op) for op, _ in allocations]
    tape = Tape(
        device="GPU:0",
        before_bytes=0,
        times_s=array("d", range(2 * count)),
        addresses=array("q", [n << 40 for n in range(count)] * 2),
        bytes=array("q", [*sizes, *(-size for size in sizes)]),
        requested_bytes=array("q", [*sizes, *([0] * count)]),
        in_use_bytes=array("q", in_use),
        op_numbers=array("q", numbers * 2),
        tensor_numbers=array("q", [0] * (2 * count)),
        temporary=array("q", [0] * (2 * count)),
        ops=ops,
        roles=tuple(OpRole("workspace" if op == SCRATCH else "activations") for op in ops),
        tensors=((None, ""),),
    )
    return TapedStep(batch, tape, 0.1)


def tapes(*steps: TapedStep) -> StepTapes:
    return StepTapes(
        title="model",
        task="training",
        device="GPU:0",
        limit_bytes=None,
        is_arena=False,
        made=None,
        steps=steps,
    )


def growing(batch: int) -> TapedStep:
    return step(batch, (PLAIN, batch * MIB))


WEIGHTS = Held("model", "weights", "GPU:0", 100 << 40, 64 * MIB)


def with_weights(step: TapedStep) -> TapedStep:
    """Let weights lie beside a step."""
    in_use = array("q", [size + WEIGHTS.bytes for size in step.tape.in_use_bytes])
    tape = replace(step.tape, before_bytes=WEIGHTS.bytes, in_use_bytes=in_use)
    return replace(step, tape=tape)


@pytest.fixture
def plan() -> Plan:
    steps = (*(growing(11) for _ in range(3)), *(growing(31) for _ in range(3)))
    return Plan(tapes(*steps), Limit("the limit", 100 * MIB))


def trial(batch: int, outcome: Literal["fits", "ran out", "died"]) -> BatchTrial:
    return BatchTrial(batch, 100 * MIB, outcome)


def test_what_grows_by_a_line_is_told_on_it(plan: Plan) -> None:
    assert plan.peak_bytes(64) == pytest.approx(64 * MIB, rel=0.01)
    assert 80 < plan.max_batch() < 98
    assert plan.range_bytes(plan.max_batch())[1] <= 100 * MIB


def test_what_holds_all_samples_against_all_grows_with_the_square_of_the_batch() -> None:
    def paired(batch: int) -> TapedStep:
        made = step(batch, (PLAIN, batch * batch * 1024))
        return replace(made, tape=replace(made.tape, tensors=(((batch, batch), "float32"),)))

    made = Plan(tapes(*(paired(batch) for batch in (11, 11, 11, 31, 31, 31))))
    assert made.peak_bytes(1024) == pytest.approx(1024 * MIB, rel=0.01)
    assert made.max_batch(1024 * MIB) < 1024


def test_each_size_has_one_row_whose_peak_lies_in_its_range(plan: Plan) -> None:
    rows = plan.forecast.rows
    assert [row.batch for row in rows] == sorted({row.batch for row in rows})
    assert all(row.low_bytes <= row.peak_bytes <= row.high_bytes for row in rows)
    assert rows[-1].batch > rows[0].batch


def test_a_single_sample_that_ran_out_is_not_told_by_the_figure_that_was_wrong(plan: Plan) -> None:
    plan.prove(replace(trial(1, "ran out"), message="OOM when allocating a tensor."))
    with pytest.raises(PlanError, match=r"batch 1 ran out of memory\. OOM when"):
        proven_batch(plan)


def test_weights_that_do_not_fit_are_the_reason_why_none_does() -> None:
    large = replace(tapes(growing(11), growing(11)), held=(WEIGHTS,))
    large = replace(large, steps=tuple(map(with_weights, large.steps)))
    with pytest.raises(PlanError, match=r"the weights alone take 64\.0 MB"):
        proven_batch(Plan(large, Limit("the limit", 32 * MIB)))


@pytest.mark.parametrize("ask", [Plan.peak_bytes, Plan.range_bytes, Plan.composition])
@pytest.mark.parametrize(("batch", "said"), [(0, "at least one sample"), (10**10, "plan ends at")])
def test_of_sizes_outside_the_plan_it_is_said_that_nothing_is_known(
    plan: Plan, ask: Callable[[Plan, int], object], batch: int, said: str
) -> None:
    with pytest.raises(PlanError, match=said):
        ask(plan, batch)


def test_a_batch_that_ran_out_is_no_longer_said_to_fit(plan: Plan) -> None:
    plan.prove(trial(90, "ran out"), trial(83, "ran out"))
    assert plan.max_batch() == 82


def test_the_largest_batch_that_ran_is_the_one_that_fits(plan: Plan) -> None:
    plan.prove(trial(90, "ran out"), trial(83, "fits"))
    assert plan.max_batch() == 83


def test_a_child_that_died_proves_nothing(plan: Plan) -> None:
    before = plan.max_batch()
    plan.prove(trial(before, "died"))
    assert plan.max_batch() == before


def test_a_workspace_that_one_size_has_and_the_next_has_not_is_in_the_range() -> None:
    small = [step(11, (PLAIN, 11 * MIB)) for _ in range(3)]
    large = [step(31, (PLAIN, 31 * MIB), (SCRATCH, 64 * MIB)) for _ in range(3)]
    made = Plan(tapes(*small, *large))
    low, high = made.range_bytes(16)
    assert low < 16 * MIB
    assert high > (16 + 64) * MIB


def test_a_smaller_batch_is_not_said_to_take_more_at_the_most() -> None:
    made = Plan(tapes(*(growing(size) for size in (29, 29, 29, 61, 61, 61))))
    highs = [row.high_bytes for row in made.forecast.rows]
    assert highs == sorted(highs)


def test_a_step_that_allocates_nothing_that_counts_has_a_plan_all_the_same() -> None:
    crumbs = [step(batch, (PLAIN, 16)) for batch in (11, 11, 31, 31)]
    assert Plan(tapes(*crumbs)).peak_bytes(1000) < MIB * 8


WAITING, RUNNING = "gradient/first/Filter", "gradient/second/Filter"


def raced(batch: int) -> TapedStep:
    """Write down a step in which two ops have their scratch memory at the same time."""
    sizes = [batch * MIB, batch * MIB, -batch * MIB, -batch * MIB]
    in_use = [sum(sizes[: n + 1]) for n in range(4)]
    tape = Tape(
        device="GPU:0",
        before_bytes=0,
        times_s=array("d", range(4)),
        addresses=array("q", [1 << 40, 2 << 40, 1 << 40, 2 << 40]),
        bytes=array("q", sizes),
        requested_bytes=array("q", [batch * MIB] * 2 + [0] * 2),
        in_use_bytes=array("q", in_use),
        op_numbers=array("q", [0, 1, 0, 1]),
        tensor_numbers=array("q", [0] * 4),
        temporary=array("q", [1] * 4),
        ops=(RUNNING, WAITING),
        roles=(OpRole("workspace"), OpRole("workspace")),
        tensors=((None, ""),),
    )
    return TapedStep(batch, tape, 0.1)


def of_raced(needs: Mapping[str, frozenset[str]]) -> StepTapes:
    return replace(tapes(*(raced(batch) for batch in (11, 11, 11, 31, 31, 31))), needs=needs)


APART = {RUNNING: frozenset[str](), WAITING: frozenset[str]()}
BEHIND = {RUNNING: frozenset({WAITING}), WAITING: frozenset[str]()}


def largest_of_raced(needs: Mapping[str, frozenset[str]]) -> int:
    return Plan(of_raced(needs), Limit("the limit", 100 * MIB)).max_batch()


def test_an_op_waits_for_the_memory_of_one_that_runs_beside_it() -> None:
    assert 90 < largest_of_raced(APART) < 100


def test_no_op_waits_for_one_that_needs_it_first() -> None:
    assert 44 < largest_of_raced(BEHIND) <= 50


def test_without_the_graph_no_op_is_taken_to_wait() -> None:
    assert 44 < largest_of_raced({}) <= 50


def test_up_to_the_largest_that_fits_no_more_is_told_than_the_device_has() -> None:
    fitted = Plan(of_raced(APART), Limit("the limit", 100 * MIB))
    assert fitted.range_bytes(fitted.max_batch())[1] <= 100 * MIB
    assert fitted.composition(fitted.max_batch()).total_bytes <= 100 * MIB
    assert Plan(of_raced(APART)).peak_bytes(fitted.max_batch()) > 150 * MIB


FLAT_AND_THEN_GROWING = {11: 20 * MIB, 64: 20 * MIB, 256: 24 * MIB}


@pytest.fixture
def compiled_plan() -> Plan:
    steps = [step(11, (PLAIN, FLAT_AND_THEN_GROWING[11])) for _ in range(3)]
    told = tuple(CompiledSize(*each) for each in FLAT_AND_THEN_GROWING.items())
    return Plan(replace(tapes(*steps), compiled=told), Limit("the limit", 100 * MIB))


def test_a_compiled_step_is_not_taken_to_grow_as_slowly_as_it_began(compiled_plan: Plan) -> None:
    """By the last two sizes alone 3,900 would fit."""
    assert 256 < compiled_plan.max_batch() <= 256 * 100 // 24


LIMIT = Limit("the limit", 100 * MIB)
BytesAt = Callable[[int], int]


def told_of(law: BytesAt, *sizes: int) -> StepTapes:
    """Give a compiled step of which XLA has told these sizes."""
    steps = [step(11, (PLAIN, law(11))) for _ in range(3)]
    return replace(tapes(*steps), compiled=tuple(CompiledSize(n, law(n)) for n in (11, *sizes)))


def told_as_asked(law: BytesAt) -> StepTapes:
    """Let XLA tell each size that is chosen to find the largest that fits."""
    told = told_of(law, 256)
    for _ in range(6):
        size = size_to_tell(told, LIMIT.bytes)
        if size is None:
            break
        told = replace(told, compiled=(*told.compiled, CompiledSize(size, law(size))))
    return told


def bending(bend: int) -> BytesAt:
    """Take little more for each sample up to a batch size, and much for each beyond."""
    return lambda batch: 20 * MIB + batch * 20_000 + max(batch - bend, 0) * 400_000


@given(bend=st.integers(1, 400))
def test_xla_is_asked_near_the_limit_until_the_largest_that_fits_is_known(bend: int) -> None:
    law = bending(bend)
    largest = max(n for n in range(1, 1000) if law(n) <= LIMIT.bytes)
    said = Plan(told_as_asked(law), LIMIT).max_batch()
    assert law(said) <= LIMIT.bytes
    assert said >= 0.9 * largest


def test_where_xla_asks_for_far_more_than_on_the_line_that_batch_is_not_promised() -> None:
    def jumping(batch: int) -> int:
        return batch * MIB // 4 + (40 * MIB if batch > 250 else 0)

    assert 230 <= Plan(told_as_asked(jumping), LIMIT).max_batch() <= 250


def test_for_another_limit_xla_is_asked_once_more() -> None:
    law, asked = bending(100), list[int]()

    def more_told(told: StepTapes, limit_bytes: int) -> list[CompiledSize]:
        size = size_to_tell(told, limit_bytes)
        asked.append(limit_bytes)
        return [] if size is None else [CompiledSize(size, law(size))]

    made = Plan(told_of(law, 16, 64, 256), more_told=more_told)
    first = [made.max_batch(LIMIT.bytes) for _ in range(2)]
    assert asked[0] == LIMIT.bytes
    assert law(first[0]) <= LIMIT.bytes
    assert made.max_batch(30 * MIB) < first[1]
    assert law(made.max_batch(30 * MIB)) <= 30 * MIB


def test_of_a_limit_xla_is_not_asked_again_where_it_could_not_tell_more() -> None:
    asked = list[int]()

    def nothing_told(_: StepTapes, limit_bytes: int) -> list[CompiledSize]:
        asked.append(limit_bytes)
        return []

    made = Plan(told_of(bending(100), 16, 64, 256), more_told=nothing_told)
    assert len({made.max_batch(LIMIT.bytes) for _ in range(3)}) == 1
    assert asked == [LIMIT.bytes]


def test_below_the_sizes_that_xla_told_no_batch_takes_more_than_they_do() -> None:
    """Two neighbours of which the larger takes less say nothing of far smaller ones."""
    law = {11: 20 * MIB, 13: 16 * MIB, 256: 60 * MIB}.__getitem__
    made = Plan(told_of(law, 13, 256))
    assert made.peak_bytes(1) <= 22 * MIB
    assert made.range_bytes(1)[1] <= 24 * MIB


def test_a_plan_says_what_it_was_made_from(plan: Plan, compiled_plan: Plan) -> None:
    assert plan.forecast.how == (
        "From every allocation of 6 real steps at batch 11 and 31, each scaled to the batch, and "
        "TensorFlow's allocator replayed."
    )
    assert "3 real steps at batch 11, each" in compiled_plan.forecast.how
    assert "what XLA asks for at batch 11, 64 and 256, and" in compiled_plan.forecast.how


def test_between_the_sizes_that_xla_told_the_range_is_wider(compiled_plan: Plan) -> None:
    def width(batch: int) -> int:
        low, high = compiled_plan.range_bytes(batch)
        return high - low

    assert width(64) < width(80) / 1.1


def told_by_xla(batch: int) -> CompiledSize:
    held = (
        Holding("activations", batch * MIB, "eyes", "eyes/Relu"),
        Holding("gradients", 16 * MIB, "head", "head/MatMul"),
        Holding("weights", 3 * MIB, "head", "AssignSubVariableOp"),
        Holding("rounding", MIB),
    )
    return CompiledSize(batch, sum(one.bytes for one in held), held)


@pytest.fixture(scope="module")
def opened_plan() -> Plan:
    told = [told_by_xla(batch) for batch in (11, 64, 256)]
    steps = [step(11, (PLAIN, told[0].temporary_bytes)) for _ in range(3)]
    weighed = tuple(map(with_weights, steps))
    return Plan(replace(tapes(*weighed), held=(WEIGHTS,), compiled=tuple(told)))


@pytest.mark.parametrize("batch", [1, 11, 100, 256, 1024])
def test_what_lies_in_a_compiled_steps_piece_is_told_by_layer_and_kind(
    opened_plan: Plan, batch: int
) -> None:
    composition = opened_plan.composition(batch)
    held = {(one.kind, one.layer): one.bytes for one in composition.holdings}
    assert sum(held.values()) == composition.total_bytes
    assert held["activations", "eyes"] == pytest.approx(batch * MIB, rel=0.001)
    assert held["gradients", "head"] == pytest.approx(16 * MIB, rel=0.001)


def test_copies_of_weights_in_a_compiled_steps_piece_are_no_weights(opened_plan: Plan) -> None:
    row = next(row for row in opened_plan.forecast.rows if row.batch == 64)
    assert row.kinds["weights"] == pytest.approx(WEIGHTS.bytes, rel=0.01)
    assert row.kinds["workspace"] == pytest.approx(3 * MIB, rel=0.01)
    assert sum(row.kinds.values()) == row.peak_bytes


def test_a_piece_that_was_read_at_one_size_alone_is_told_as_there() -> None:
    told = (told_by_xla(11), replace(told_by_xla(64), held=()))
    steps = [step(11, (PLAIN, told[0].temporary_bytes)) for _ in range(3)]
    composition = Plan(replace(tapes(*steps), compiled=told)).composition(64)
    held = {(one.kind, one.layer): one.bytes for one in composition.holdings}
    assert held["activations", "eyes"] == pytest.approx(84 * MIB * 11 / 31, rel=0.001)
    assert sum(held.values()) == composition.total_bytes


def test_what_filled_a_device_is_told_where_an_op_had_to_wait_for_room() -> None:
    allocations = tuple(
        Allocation(Law(size), op, OpRole("activations", op), ((1,), "float32"))
        for op, size in (("first", 40 * MIB), ("second", 220 * MIB))
    )
    script = Script(8, allocations, (0, 1, ~0, ~1), ())  # the first is freed after the second came
    scripts = Scripts(before=(), made=None, prepared=None, first=script, others={})
    device = Device(240 * MIB, grows=False)
    rehearsal = Rehearsal(scripts, 8, device, Orders({"first": (), "second": ()}, processors=2))
    fullest = rehearsal.fullest()
    assert rehearsal.peaks == [fullest.total_bytes]
    assert [held.allocation.op for held in fullest.held] == ["second"]


def test_a_run_may_begin_with_another_step_beside_what_the_first_one_left() -> None:
    allocations = tuple(
        Allocation(Law(size), op, OpRole("activations"), ((1,), "float32"))
        for op, size in (("slots", 4 * MIB), ("scratch", 60 * MIB), ("layer", 8 * MIB))
    )
    first = Script(8, allocations, (0, 1, ~1, 2, ~2), ())
    other = Script(8, allocations[2:], (0, ~0), ())
    scripts = Scripts(before=(), made=None, prepared=None, first=first, others={8: (other,)})
    device = Device(200 * MIB, grows=False)
    assert max(Rehearsal(scripts, 8, device).peaks) == 64 * MIB
    otherwise = Rehearsal(scripts.begun_otherwise(), 8, device)
    assert otherwise.settled_bytes == 4 * MIB
    assert max(otherwise.peaks) == 12 * MIB
