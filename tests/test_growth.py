"""What grows is found by its figures, and what only looks like it is not."""

import random
from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oommagic.explain.facts import Facts
from oommagic.explain.growth import Growth, growths
from oommagic.explain.growth.in_tapes import floors_after_steps
from oommagic.explain.growth.over_time import steady_rise
from oommagic.explain.wording import growth_sentence, told_growth
from oommagic.recording import Held, OpRole, Tape, TracedLines
from oommagic.report import (
    DeviceMemory,
    DeviceUsage,
    Engine,
    Failure,
    HoldingKind,
    HostMemory,
    Lane,
    LineUsage,
    Outcome,
    Profile,
    Report,
    Timeline,
)
from oommagic.units import MIB

LOOP = """\
losses = []
for x in ds:
    loss = train_step(x)
    losses.append(loss)
"""
LOOP_OF_ITS_OWN = "kept = []\nfor x in ds:\n    kept.append(step(x))"
FIT = "model.fit(x, y, epochs=9)"
EMPTY_HOST = HostMemory(0, 0, 0, 0, "", is_exact=True)


def chance_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 (figures, not secrets)


# ---- A figure over time -------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32),
    points=st.integers(96, 400),
    rate=st.floats(0.5, 1e6),
    tooth=st.floats(0, 50),
)
def test_a_figure_that_goes_on_rising_is_found_under_the_saw_tooth_of_its_steps(
    seed: int, points: int, rate: float, tooth: float
) -> None:
    chance = chance_of(seed)
    steps = (tooth * chance.random() if at % 4 else 0.0 for at in range(points))
    rise = steady_rise([rate * (at + step) for at, step in enumerate(steps)], least=rate)
    assert rise is not None
    assert 0.8 * rate * points < rise.last - rise.first <= rate * points


@given(seed=st.integers(0, 2**32), points=st.integers(24, 400), level=st.floats(0, 1e9))
def test_noise_without_a_trend_does_not_grow(seed: int, points: int, level: float) -> None:
    chance = chance_of(seed)
    assert steady_rise([level + chance.gauss(0, 1) for _ in range(points)], least=0.0) is None


@given(
    period=st.integers(2, 60),
    teeth=st.integers(2, 40),
    height=st.floats(1, 1e9),
    floor=st.floats(0, 1e9),
)
def test_a_saw_tooth_that_returns_to_its_floor_does_not_grow(
    period: int, teeth: int, height: float, floor: float
) -> None:
    tooth = [floor + height * at / period for at in range(period)]
    assert steady_rise(tooth * teeth, least=height / 1000) is None


@given(
    warm_up=st.integers(1, 60),
    rest=st.integers(1, 4),
    height=st.floats(1, 1e9),
    seed=st.integers(0, 2**32),
)
def test_a_plateau_after_warming_up_is_not_growth(
    warm_up: int, rest: int, height: float, seed: int
) -> None:
    chance = chance_of(seed)
    rising = [height * at / warm_up for at in range(warm_up)]
    flat = [height + chance.random() * height / 1000 for _ in range(max(8, warm_up * rest))]
    assert steady_rise(rising + flat, least=height / 100) is None


@pytest.mark.parametrize("jumps", [1, 2, 3])
def test_memory_taken_once_or_twice_or_three_times_is_not_growth(jumps: int) -> None:
    values = [float(at * (jumps + 1) // 60) for at in range(60)]
    assert steady_rise(values, least=0.5) is None


def test_a_staircase_of_epochs_is_growth() -> None:
    assert steady_rise([float(at // 10) for at in range(80)], least=1.0) is not None


def test_a_rise_that_was_read_amid_its_steps_is_growth() -> None:
    # In MB, as a staged run's ticker has read them: a batch was there, or not.
    values = [
        2.0, 8.0, 8.0, 6.1, 10.1, 10.0, 6.2, 12.0, 8.1, 12.0, 12.0, 15.9, 19.9, 24.1, 30.0,
        32.0, 39.8, 36.0, 43.7, 38.0, 40.0, 42.0, 46.0, 46.0, 46.0, 48.0, 57.4, 52.6,
    ]  # fmt: skip
    assert steady_rise(values, least=1.0) is not None


@given(st.lists(st.floats(0, 1e12), max_size=200))
def test_no_figures_upset_the_search(values: list[float]) -> None:
    rise = steady_rise(values, least=1.0)
    assert rise is None or rise.last > rise.first


# ---- A run's lanes ------------------------------------------------------------------------------


def timeline(values: Sequence[int], lines: Sequence[int], name: str = "CPU:0") -> Timeline:
    """One lane with a point every 50 ms."""
    figures = tuple(float(value) for value in values)
    times = tuple(at * 0.05 for at in range(len(figures)))
    return Timeline(times, tuple(lines), (Lane(name, "bytes", figures, figures),))


def loop_lines(hits: int, taken: int) -> tuple[LineUsage, ...]:
    texts = LOOP.splitlines()
    return (
        LineUsage(1, texts[0], hits=1),
        LineUsage(2, texts[1], hits=hits),
        LineUsage(3, texts[2], hits=hits, devices={"CPU:0": DeviceUsage(taken, 2 * taken)}),
        LineUsage(4, texts[3], hits=hits),
    )


def device(before: int = 0, after: int = 0, peak: int = 0) -> DeviceMemory:
    return DeviceMemory("CPU:0", before, after, peak, 512 * MIB)


def growing_loop(values: Sequence[int], failure: Failure | None = None) -> Facts:
    lines = [3 if at % 2 else 2 for at in range(len(values))]
    return Facts(
        failure=failure,
        source=LOOP,
        profile=Profile(loop_lines(100, 200 * MIB)),
        devices=(device(),),
        timeline=timeline(values, lines),
    )


def only(found: Sequence[Growth]) -> Growth:
    assert len(found) == 1
    return found[0]


def test_a_loop_that_keeps_its_tensors_grows_by_so_much_a_step() -> None:
    growth = only(growths(growing_loop([at * 2 * MIB for at in range(101)])))
    assert (growth.place, growth.per, growth.repeats) == ("CPU:0", "step", 100)
    assert growth.rate_bytes == pytest.approx(2 * MIB, rel=0.1)
    assert growth.line_number == 3


def test_a_loop_that_names_epochs_grows_by_the_epoch() -> None:
    facts = growing_loop([at * 2 * MIB for at in range(101)])
    source = LOOP.replace("for x in ds", "for epoch in many")
    again = Facts(
        source=source, profile=facts.profile, devices=facts.devices, timeline=facts.timeline
    )
    assert only(growths(again)).per == "epoch"


def test_the_ten_seconds_in_which_tensorflow_waits_for_memory_hide_no_growth() -> None:
    waiting = [at * 2 * MIB for at in range(40)] + [80 * MIB] * 200 + [10 * MIB] * 2
    failure = Failure("allocation", "device", "OOM", device="CPU:0")
    assert growths(growing_loop(waiting)) == ()
    assert only(growths(growing_loop(waiting, failure))).total_bytes > 60 * MIB


def test_a_device_that_stays_full_while_one_op_after_the_other_waits_hides_no_growth() -> None:
    failure = Failure("allocation", "device", "OOM", device="CPU:0")
    waiting = [at * 5 * MIB for at in range(100)] + [511 * MIB] * 600 + [512 * MIB] * 300
    assert only(growths(growing_loop(waiting, failure))).total_bytes > 400 * MIB


def test_a_plateau_below_its_first_peak_is_no_growth_though_the_run_failed() -> None:
    failure = Failure("allocation", "device", "OOM", device="CPU:0")
    levels = [at * 10 * MIB for at in range(20)] + [(150 + at % 7) * MIB for at in range(100)]
    assert growths(growing_loop(levels, failure)) == ()


def test_what_runs_outside_the_cell_after_the_wait_hides_no_growth_either() -> None:
    failure = Failure("allocation", "device", "OOM", device="CPU:0")
    facts = growing_loop([at * 2 * MIB for at in range(40)] + [80 * MIB] * 100, failure)
    values = [*facts.timeline.lanes[0].lows, 70.0 * MIB]
    ended = timeline([round(value or 0) for value in values], [*facts.timeline.line_numbers, 0])
    both = Facts(failure, LOOP, profile=facts.profile, devices=facts.devices, timeline=ended)
    assert only(growths(both)).line_number == 3


def test_a_loop_whose_cache_fills_and_stays_does_not_grow() -> None:
    values = [min(at, 30) * 4 * MIB for at in range(120)]
    assert growths(growing_loop(values)) == ()


def test_lines_that_each_take_their_part_once_are_no_growth() -> None:
    source = "\n".join(f"a{at} = make({at})" for at in range(40))
    lines = tuple(LineUsage(at + 1, f"a{at}", hits=1) for at in range(40))
    facts = Facts(
        source=source,
        profile=Profile(lines),
        devices=(device(),),
        timeline=timeline([at * 8 * MIB for at in range(80)], [1 + at // 2 for at in range(80)]),
    )
    assert growths(facts) == ()


def test_one_call_that_lasts_grows_by_the_second() -> None:
    facts = Facts(
        source=FIT,
        profile=Profile((LineUsage(1, FIT, hits=1),)),
        devices=(device(),),
        timeline=timeline([at * 2 * MIB for at in range(200)], [1] * 200),
    )
    growth = only(growths(facts))
    assert (growth.per, growth.line_number, growth.repeats) == ("second", 1, 10)


@pytest.mark.parametrize(("began_s", "grown"), [(1.0, 0), (9.0, 1)])
def test_what_one_long_step_takes_is_no_growth_but_what_was_there_before_it_is(
    began_s: float, grown: int
) -> None:
    """A call takes 2 MB each moment for ten seconds; a step of it is on the tape until the end."""
    run = taped(1, keeps=False)
    run.steps = [(began_s, 20.0, "train_step")]
    facts = Facts(
        source=FIT,
        profile=Profile((LineUsage(1, FIT, hits=1),)),
        devices=(device(),),
        timeline=timeline([at * 2 * MIB for at in range(200)], [1] * 200),
        tapes=(run.tape(),),
    )
    assert len(growths(facts)) == grown


def test_host_memory_that_wanders_by_a_few_megabytes_is_no_growth() -> None:
    facts = growing_loop([])
    wandering = timeline([at * MIB // 8 for at in range(100)], [3] * 100, "host")
    steep = timeline([at * MIB for at in range(100)], [3] * 100, "host")
    found = [
        growths(Facts(source=LOOP, profile=facts.profile, devices=facts.devices, timeline=lane))
        for lane in (wandering, steep)
    ]
    assert [len(each) for each in found] == [0, 1]


def test_a_lane_of_temperatures_never_grows() -> None:
    facts = growing_loop([at * 2 * MIB for at in range(101)])
    lane = facts.timeline.lanes[0]
    warm = Timeline(
        facts.timeline.times_s,
        facts.timeline.line_numbers,
        (Lane("GPU 0 temperature", "celsius", lane.lows, lane.highs),),
    )
    assert growths(Facts(source=LOOP, profile=facts.profile, timeline=warm)) == ()


# ---- A tape's steps -----------------------------------------------------------------------------


class Taped:
    """A tape under construction: takes and gives back memory, a thousandth of a second each."""

    def __init__(self) -> None:
        self.events: list[tuple[float, int, int, int, int]] = []
        self.steps: list[tuple[float, float, str]] = []
        self.in_use = 0
        self.now = 0.0

    def take(self, address: int, size: int, op: int = 0) -> None:
        self.in_use += size
        self._add(address, size, op)

    def give_back(self, address: int, size: int) -> None:
        self.in_use -= size
        self._add(address, -size, 0)

    def _add(self, address: int, size: int, op: int) -> None:
        self.now += 0.001
        self.events.append((self.now, address, size, self.in_use, op))

    def begin(self) -> float:
        self.now += 0.001
        return self.now

    def end(self, began: float, name: str = "train_step") -> None:
        self.now += 0.001
        self.steps.append((began, self.now, name))

    def tape(self, kind: HoldingKind = "activations") -> Tape:
        columns = list(zip(*self.events, strict=True))
        return Tape(
            device="CPU:0",
            before_bytes=0,
            times_s=array("d", columns[0]),
            addresses=array("q", columns[1]),
            bytes=array("q", columns[2]),
            requested_bytes=array("q", columns[2]),
            in_use_bytes=array("q", columns[3]),
            op_numbers=array("l", columns[4]),
            tensor_numbers=array("l", [0] * len(self.events)),
            temporary=array("b", [0] * len(self.events)),
            ops=("model/dense_1/MatMul", "adam/Square"),
            roles=(OpRole(kind, "dense"), OpRole("optimizer slots", "adam")),
            tensors=(((), "float32"),),
            steps=tuple(self.steps),
        )


def taped(steps: int, *, keeps: bool, returns: bool = False) -> Taped:
    """Steps that each take and free 100 MB; one that `keeps` holds on to 4 MB of each."""
    run = Taped()
    for step in range(steps):
        began = run.begin()
        if step == 0:
            run.take(1, 50 * MIB, op=1)  # slots, once
        run.take(2, 100 * MIB)
        if keeps or returns:
            run.take(1000 + step, 4 * MIB)
        run.give_back(2, 100 * MIB)
        run.end(began)
        if returns and step:
            run.give_back(1000 + step - 1, 4 * MIB)
    return run


def test_a_step_that_keeps_something_grows_from_step_to_step() -> None:
    growth = only(growths(Facts(tapes=(taped(6, keeps=True).tape(),))))
    assert (growth.per, growth.repeats, growth.rate_bytes) == ("step", 4, 4 * MIB)
    assert (growth.op, growth.layer) == ("model/dense_1/MatMul", "dense")


def test_a_tensor_that_a_train_step_returns_is_not_growth() -> None:
    tape = taped(6, keeps=False, returns=True).tape()
    assert len(set(floors_after_steps(tape))) == 1
    assert growths(Facts(tapes=(tape,))) == ()


def test_what_the_first_step_takes_for_all_is_not_growth() -> None:
    assert growths(Facts(tapes=(taped(6, keeps=False).tape(),))) == ()


def test_two_steps_are_too_few_to_call_it_growth() -> None:
    assert growths(Facts(tapes=(taped(2, keeps=True).tape(),))) == ()


def test_the_name_that_holds_what_the_steps_kept_is_told() -> None:
    held = tuple(
        Held(f"losses[{step}]", "tensors", "CPU:0", 1000 + step, 4 * MIB) for step in range(6)
    )
    growth = only(growths(Facts(tapes=(taped(6, keeps=True).tape(),), held_after=held)))
    assert growth.owner == "losses"


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(-100, 100), st.booleans()),
        min_size=1,
        max_size=60,
    )
)
def test_no_tape_upsets_the_search(events: list[tuple[int, int, bool]]) -> None:
    run = Taped()
    began = run.begin()
    for address, size, ends in events:
        run.in_use += size
        run._add(address, size, address % 2)
        if ends:
            run.end(began)
            began = run.begin()
    assert all(growth.total_bytes > 0 for growth in growths(Facts(tapes=(run.tape(),))))


# ---- What names hold ----------------------------------------------------------------------------


def tensors(owner: str, count: int, size: int = MIB, kind: HoldingKind = "tensors") -> list[Held]:
    """Give a list's tensors, each at its own address."""
    start = sum(map(ord, owner)) << 32
    return [Held(f"{owner}[{at}]", kind, "CPU:0", start + at * size, size) for at in range(count)]


def in_names(before: list[Held], after: list[Held], source: str = LOOP) -> tuple[Growth, ...]:
    return growths(Facts(source=source, held_before=tuple(before), held_after=tuple(after)))


def test_a_list_to_which_a_loop_appends_tensors_grows() -> None:
    growth = only(in_names([], tensors("losses", 500)))
    assert (growth.owner, growth.count_before, growth.count_after) == ("losses", 0, 500)
    assert (growth.line_number, growth.line_source) == (4, "losses.append(loss)")


@pytest.mark.parametrize(
    "source",
    [
        "kept = {}\nfor i in range(500):\n    kept[i] = step(i)",
        "kept: dict[int, object] = dict()\nfor i, x in enumerate(ds):\n    kept[i] = step(x)",
        "kept = {}; i = 0\nfor x in ds:\n    kept[i] = step(x); i += 1",
        "kept = {}\nfor e in range(9):\n  for i in range(9): kept[e, i] = step(i)",
        "for e in range(9):\n  kept = {}\n  for i in range(500): kept[i] = step(i)",
        "def run():\n  kept = defaultdict(list)\n  for i in range(9): kept[i] = step(i)",
        "kept = {}\ndef run():\n  for i in range(9): kept[i] = step(i)\nrun()",
        "kept = [None] * 500\nfor i in range(500):\n    kept[i] = step(i)",
        "kept = {}\nfor x in ds:\n    kept[len(kept)] = step(x)",
        "for i in range(9):\n    kept[i] = step(i)",
        "for e in range(9):\n  kept.clear()\n  for i in range(500): kept[i] = step(i)",
        "kept = {}\nfor i in range(9):\n    kept[i] = step(i)\nkept.pop(0)",
    ],
)
def test_a_dictionary_that_a_loop_fills_grows(source: str) -> None:
    growth = only(in_names([], tensors("kept", 500), source))
    assert (growth.owner, growth.count_after) == ("kept", 500)
    assert "kept[" in growth.line_source


@pytest.mark.parametrize(
    "source",
    [
        "kept = [tf.zeros(n) for _ in range(4)]\nfor t in range(100):\n    kept[t % 4] = step(t)",
        "kept = [zeros()] * 4\ndef run():\n  for i in range(4): kept[i] = step(i)",
        "def run(kept):\n  for i in range(4): kept[i] = step(i)",
        "kept = {}\nfor i in range(99):\n    kept[i] = step(i)\n    kept.pop(i - 4, None)",
        "kept = {}\nfor i in range(99):\n    kept[i] = step(i)\n    del kept[i - 4]",
        "for i in range(99):\n    kept[i] = step(i)\n    while len(kept) > 4: kept.popitem()",
        "for i in range(99):\n    kept[i] = step(i)\n    if len(kept) > 4: kept.clear()",
        "kept = {}\nfor x in ds:\n    kept['h'] = cell(x)\n    kept['c'] = gate(x)",
        "kept = {}\nfor t in range(100):\n    kept[t % 4] = step(t)",
        "kept = {}\nfor t in range(100):\n    i = t % 4\n    kept[i] = step(t)",
        "kept = {}\nfor t in range(100):\n    t = t % 4\n    kept[t] = step(t)",
        "kept = {}\nfor t in range(100):\n  for i in range(4): kept[i] = step(t)",
        "kept = {'a': 1}\nfor i in range(100):\n    kept[i] = step(i)",
        "kept = {}\nkept = load()\nfor i in range(100):\n    kept[i] = step(i)",
        "for i in range(100):\n    kept = {}\n    kept[i] = step(i)",
        "kept = {}\ni = 3\nkept[i] = step(i)",
    ],
)
def test_what_is_put_in_place_of_something_else_is_no_growth(source: str) -> None:
    assert in_names([], tensors("kept", 4), source) == ()


def test_what_was_there_before_is_not_told_where_it_is_not_known() -> None:
    source = "for x in ds:\n    kept.append(step(x))"
    old, new = (
        only(in_names([], tensors("kept", 106), text)) for text in (source, LOOP_OF_ITS_OWN)
    )
    assert not old.is_since_known
    assert new.is_since_known
    assert told_growth(old) == "`kept` has 106 tensors, 106 MB"
    assert "keeps tensors of each step, 106 by now" in growth_sentence(old, "CPU:0", 128 * MIB)


def test_of_two_lines_that_fill_a_list_the_one_that_takes_more_is_named() -> None:
    source = "for x in ds:\n    kept.append(loss(x))\n    kept.append(ones(3000, 4000))"
    usages = (0, MIB, 500 * MIB)
    lines = tuple(
        LineUsage(at, "", hits=9, devices={"CPU:0": DeviceUsage(size, size)})
        for at, size in enumerate(usages, 1)
    )
    held_after = tuple(tensors("kept", 500))
    facts = Facts(source=source, profile=Profile(lines), held_after=held_after)
    assert only(growths(facts)).line_number == 3


def test_a_list_that_was_there_and_got_longer_grows_wherever_that_is_written() -> None:
    growth = only(in_names(tensors("kept", 3), tensors("kept", 500), source="train()"))
    assert (growth.owner, growth.count_before, growth.count_after) == ("kept", 3, 500)


def test_a_list_of_batches_made_at_once_is_not_growth() -> None:
    source = "batches = [tf.constant(x) for x in parts]"
    assert in_names([], tensors("batches", 50), source) == ()


def test_a_model_that_gets_its_optimizer_slots_is_not_growth() -> None:
    before = [Held("model", "weights", "CPU:0", at, MIB) for at in range(1, 11)]
    slots = [Held("model.optimizer", "optimizer slots", "CPU:0", at, MIB) for at in range(11, 31)]
    assert in_names(before, before + slots) == ()


def test_a_list_of_models_grows_by_models() -> None:
    source = "for i in range(9):\n    models.append(build_model())"
    after = [
        Held(f"models[{at}]", "weights", "CPU:0", 10 * at + part + 1, MIB)
        for at in range(9)
        for part in range(4)
    ]
    growth = only(in_names([], after, source))
    assert (growth.what, growth.count_after, growth.per) == ("models", 9, "iteration")


def test_the_rate_comes_from_the_figures_and_the_name_from_the_list() -> None:
    facts = growing_loop([at * 2 * MIB for at in range(101)])
    both = Facts(
        source=LOOP,
        profile=facts.profile,
        devices=facts.devices,
        timeline=facts.timeline,
        held_after=tuple(tensors("losses", 100, 2 * MIB)),
    )
    growth = only(growths(both))
    assert (growth.owner, growth.line_number) == ("losses", 4)
    assert growth.rate_bytes == pytest.approx(2 * MIB, rel=0.1)


def test_a_short_list_is_not_blamed_for_what_is_far_larger() -> None:
    facts = growing_loop([at * 2 * MIB for at in range(101)])
    both = Facts(
        source=LOOP,
        profile=facts.profile,
        devices=facts.devices,
        timeline=facts.timeline,
        held_after=tuple(tensors("losses", 100, 256)),
    )
    growth = only(growths(both))
    assert (growth.owner, growth.line_number) == ("", 3)


# ---- What makes it grow -------------------------------------------------------------------------


def grown_in(source: str, traced: tuple[TracedLines, ...] = ()) -> Growth:
    lines = tuple(
        LineUsage(at, text, hits=30, devices={"CPU:0": DeviceUsage(at * MIB, MIB)})
        for at, text in enumerate(source.splitlines(), 1)
    )
    facts = Facts(
        source=source,
        profile=Profile(lines),
        devices=(device(),),
        timeline=timeline([at * 2 * MIB for at in range(100)], [1 + at % 2 for at in range(100)]),
        traced=traced,
    )
    return only(growths(facts))


def test_a_model_built_in_the_loop_is_what_grows() -> None:
    growth = grown_in("for i in range(30):\n    model = build_model()")
    assert (growth.what, growth.maker, growth.line_number) == ("models", "build_model()", 2)


def test_a_function_of_the_cell_that_builds_a_model_is_known_by_what_it_does() -> None:
    source = "for i in range(30):\n    m = net(i)\ndef net(i):\n    return keras.Sequential([])"
    assert grown_in(source).what == "models"


def test_a_function_traced_for_each_number_is_what_grows() -> None:
    traced = (TracedLines("step", "<cell>", 1, 2, traces=30),)
    growth = grown_in("for i in range(30):\n    step(i)", traced)
    assert (growth.what, growth.maker, growth.count_after) == ("graphs", "step", 30)


def test_a_function_that_the_cell_does_not_call_is_not_to_blame() -> None:
    traced = (TracedLines("scale", "<cell>", 1, 2, traces=30),)
    assert grown_in("for i in range(30):\n    step(i)", traced).what == ""


def test_what_unrolls_within_a_tape_is_one_step_and_no_growth() -> None:
    source = "with tf.GradientTape() as tape:\n    for t in range(30):\n        h = tf.tanh(h @ w)"
    rising = timeline([at * 2 * MIB for at in range(100)], [2 + at % 2 for at in range(100)])
    lines = tuple(LineUsage(at, text, hits=30) for at, text in enumerate(source.splitlines(), 1))
    facts = Facts(source=source, profile=Profile(lines), devices=(device(),), timeline=rising)
    assert growths(facts) == ()
    assert growths(replace(facts, source=source.replace("tf.GradientTape()", "scope()"))) != ()
    assert in_names([], tensors("states", 30), f"{source}\n        states.append(h)") == ()


def test_what_a_model_takes_before_its_first_step_fails_is_no_growth() -> None:
    leaps = [0] * 20 + [40 * MIB] * 20 + [100 * MIB] * 20
    steps = [100 * MIB + at * 4 * MIB for at in range(20)]
    tape = replace(taped(1, keeps=False).tape(), steps=((3.0, 15.0, "step"),))
    facts = Facts(
        source=FIT,
        profile=Profile((LineUsage(1, FIT, hits=1),)),
        devices=(device(),),
        timeline=timeline(leaps + steps, [1] * 80),
    )
    assert growths(facts) != ()
    assert growths(replace(facts, tapes=(tape,))) == ()


@pytest.mark.parametrize(("before", "is_growth"), [(1, False), (2, False), (3, True)])
def test_what_rises_until_one_of_the_first_steps_fails_is_no_growth(
    before: int,
    is_growth: bool,  # noqa: FBT001 (the other half of the case)
) -> None:
    short = [(0.1 * at, 0.1 * at + 0.05, "step") for at in range(before)]
    tape = replace(taped(1, keeps=False).tape(), steps=(*short, (4.5, 15.0, "step")))
    facts = Facts(
        source=FIT,
        profile=Profile((LineUsage(1, FIT, hits=1),)),
        devices=(device(),),
        timeline=timeline([at * 2 * MIB for at in range(100)], [1] * 100),
        tapes=(tape,),
    )
    assert bool(growths(facts)) == is_growth


def test_a_function_with_a_few_graphs_is_not_to_blame() -> None:
    traced = (TracedLines("step", "<cell>", 1, 2, traces=3),)
    assert grown_in("for i in range(30):\n    step(i)", traced).what == ""


def test_a_shuffle_buffer_that_fills_is_told_apart() -> None:
    growth = grown_in("for x in ds.shuffle(1000):\n    step(x)")
    assert (growth.what, growth.owner, growth.maker) == ("buffer", "ds", "ds.shuffle(1000)")


# ---- From run to run ----------------------------------------------------------------------------


def run_of(source: str, before: int, after: int) -> Report:
    return Report(
        source=source,
        started_at="",
        elapsed_s=1.0,
        outcome=Outcome("finished"),
        engine=Engine("monitoring", ""),
        profile=Profile(
            (LineUsage(1, source, hits=1, devices={"CPU:0": DeviceUsage(after - before, after)}),)
        ),
        host=EMPTY_HOST,
        devices=(device(before, after, after),),
    )


def after_runs(*left: int, now: int) -> tuple[Growth, ...]:
    earlier, before = [], 0
    for each in left:
        earlier.append(run_of(FIT, before, before + each))
        before += each
    failure = Failure("allocation", "device", "OOM", device="CPU:0")
    return growths(
        Facts(
            failure=failure,
            source=FIT,
            profile=Profile(()),
            devices=(device(now, now, now),),
            earlier=tuple(earlier),
        )
    )


def test_a_cell_that_leaves_as_much_each_time_grows_from_run_to_run() -> None:
    growth = only(after_runs(100 * MIB, 100 * MIB, 100 * MIB, now=300 * MIB))
    assert (growth.per, growth.repeats, growth.rate_bytes) == ("run", 3, 100 * MIB)
    assert growth.line_source == FIT


def test_what_the_first_run_alone_has_left_is_not_growth() -> None:
    assert after_runs(100 * MIB, 0, 0, now=100 * MIB) == ()


def test_one_earlier_run_is_too_few() -> None:
    assert after_runs(100 * MIB, now=100 * MIB) == ()


def test_what_earlier_runs_left_and_was_freed_since_is_not_growth() -> None:
    assert after_runs(100 * MIB, 100 * MIB, 100 * MIB, now=10 * MIB) == ()
