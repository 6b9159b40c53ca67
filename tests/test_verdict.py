"""Each cause is told from its evidence, and what only looks like it is not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oommagic.explain.clues import clues_in
from oommagic.explain.facts import Facts, SetLimit
from oommagic.explain.verdict import DEVICE_CAUSES, HOST_CAUSES, verdict_of
from oommagic.recording import Held, TracedLines
from oommagic.report import (
    Cause,
    Composition,
    DeviceMemory,
    DeviceUsage,
    Engine,
    Failure,
    Gpu,
    Holding,
    HostMemory,
    Lane,
    LineUsage,
    Outcome,
    Profile,
    Report,
    Timeline,
    Verdict,
)
from oommagic.units import GIB, MIB

CELL = "model.fit(x, y, batch_size=64)"
LIMIT = 1536 * MIB
ACTIVATIONS = Holding("activations", 640 * MIB, layer="conv2_block1")
WEIGHTS = Holding("weights", 100 * MIB, layer="conv2_block1", owner="model")

# A step that runs out: 1.5 GB on the device, 1.4 GB in use, 500 MB asked for.
OOM = Failure(
    kind="allocation",
    place="device",
    text="OOM when allocating tensor",
    error_type="ResourceExhaustedError",
    device="GPU:0",
    asked_bytes=500 * MIB,
    shape=(64, 112, 112, 64),
    dtype="float32",
    op="gradient_tape/resnet50_1/conv2_block1_conv_1/Conv2D",
    layer="conv2_block1_conv",
    line_number=1,
    line_source=CELL,
    in_use_bytes=1400 * MIB,
    limit_bytes=LIMIT,
)
RECORDED = Facts(
    failure=OOM,
    source=CELL,
    profile=Profile((LineUsage(1, CELL, hits=1),)),
    devices=(DeviceMemory("GPU:0", 0, 1400 * MIB, 1400 * MIB, LIMIT),),
    compositions=(Composition("GPU:0", "failure", 1400 * MIB, (ACTIVATIONS, WEIGHTS), "tape"),),
)


def before(size: int, *held: Held, facts: Facts = RECORDED) -> Facts:
    """Have so much in use when the cell began."""
    device = replace(facts.devices[0], before_bytes=size)
    return replace(facts, devices=(device,), held_before=held, held_after=held)


def failing(facts: Facts = RECORDED, **changes: object) -> Facts:
    return replace(facts, failure=replace(OOM, **changes))  # type: ignore[arg-type]


def held(owner: str, size: int, address: int = 1) -> Held:
    return Held(owner, "weights", "GPU:0", address, size)


def reason(verdict: Verdict, cause: Cause) -> str:
    """Give the reason for which a cause was ruled out."""
    return next((each.reason for each in verdict.ruled_out if each.cause == cause), "")


# ---- The step is too big ------------------------------------------------------------------------


def test_a_step_that_needs_more_than_there_is_is_too_big() -> None:
    verdict = verdict_of(RECORDED)
    assert verdict.sentence == (
        "The step is too big for GPU:0: at batch size 64 it needs at least 1.86 GB at once and "
        "GPU:0 has 1.50 GB; the largest part is the activations of conv2_block1 (640 MB)."
    )
    assert (verdict.cause, verdict.confidence) == ("step too big", "certain")
    assert (verdict.layer, verdict.line_number) == ("conv2_block1_conv", 1)


def test_its_evidence_names_what_failed_and_what_was_in_use() -> None:
    assert verdict_of(RECORDED).evidence == (
        (
            "When it failed, the largest were the activations of conv2_block1 640 MB and the "
            "weights of conv2_block1 100 MB."
        ),
        (
            "It failed at 500 MB (float32 64×112×112×64) for gradient_tape/resnet50_1/"
            "conv2_block1_conv_1/Conv2D in layer conv2_block1_conv, line 1: "
            "model.fit(x, y, batch_size=64)."
        ),
        "1.37 GB of 1.50 GB were in use then on GPU:0.",
    )


def test_one_tensor_larger_than_the_device_is_too_big_whatever_else_is_there() -> None:
    verdict = verdict_of(failing(asked_bytes=4 * GIB, in_use_bytes=None))
    assert verdict.cause == "step too big"
    assert "one tensor alone for conv2_block1_conv takes 4.00 GB" in verdict.sentence
    assert verdict.confidence == "certain"


def test_without_the_size_asked_for_the_sentence_claims_none() -> None:
    verdict = verdict_of(failing(asked_bytes=None, shape=None))
    assert verdict.cause == "step too big"
    assert "it had 1.37 GB of 1.50 GB in use and asked for more" in verdict.sentence
    assert verdict.confidence == "possible"


def test_a_peak_that_was_only_seen_is_less_sure_than_a_figure_of_the_failure() -> None:
    facts = replace(failing(in_use_bytes=None), compositions=())
    assert verdict_of(facts).confidence == "likely"
    assert "in use at the most" in verdict_of(facts).evidence[-1]


def test_the_batch_size_is_named_only_if_the_cell_tells_it() -> None:
    facts = replace(RECORDED, source="model.fit(x, y, batch_size=size_of(x))")
    assert "batch size" not in verdict_of(facts).sentence


# ---- It grows -----------------------------------------------------------------------------------

LOOP = "for x in ds:\n    loss = step(x)\n    losses.append(loss)"


def growing(total: int, hits: int = 300, source: str = LOOP) -> Facts:
    """A loop over whose time the device filled up by so much."""
    points = 60
    figures = tuple(100.0 * MIB + total * at / (points - 1) for at in range(points))
    lines = tuple(
        LineUsage(at, text.strip(), hits=hits, devices={"GPU:0": DeviceUsage(at * MIB, MIB)})
        for at, text in enumerate(source.splitlines(), 1)
    )
    timeline = Timeline(
        tuple(at * 0.05 for at in range(points)),
        tuple(2 for _ in range(points)),
        (Lane("GPU:0", "bytes", figures, figures),),
    )
    failure = replace(OOM, line_number=2, line_source="loss = step(x)")
    return replace(
        RECORDED, failure=failure, source=source, profile=Profile(lines), timeline=timeline
    )


def list_of(owner: str, count: int, size: int) -> tuple[Held, ...]:
    return tuple(Held(f"{owner}[{at}]", "tensors", "GPU:0", at + 1, size) for at in range(count))


def test_a_list_of_losses_that_fills_the_device_is_growth() -> None:
    facts = replace(growing(1200 * MIB), held_after=list_of("losses", 300, 4 * MIB))
    verdict = verdict_of(facts)
    assert verdict.cause == "growth"
    assert verdict.sentence == (
        "It grows by 4.00 MB with each step, by 1.17 GB in 300 steps, until GPU:0 (1.50 GB) was "
        "full: `losses` keeps tensors of each (0 at first, 300 at last)."
    )
    assert (verdict.owner, verdict.line_number) == ("losses", 3)
    assert verdict.line_source == "losses.append(loss)"


def test_a_loop_that_keeps_what_nobody_names_is_growth_of_its_line() -> None:
    verdict = verdict_of(growing(1200 * MIB, source="while more():\n    step()"))
    assert verdict.cause == "growth"
    assert "what line 2 takes is not given back" in verdict.sentence


def test_a_model_built_in_each_iteration_is_growth() -> None:
    verdict = verdict_of(growing(1200 * MIB, source="for i in range(9):\n    m = build_model(i)"))
    assert verdict.cause == "growth"
    assert "`build_model(i)` builds a new model each time" in verdict.sentence


def test_a_function_called_with_python_numbers_is_growth() -> None:
    facts = growing(1200 * MIB, source="for i in range(300):\n    step(i)")
    traced = TracedLines("step", "<cell>", 1, 2, traces=300)
    verdict = verdict_of(replace(facts, traced=(traced,)))
    assert verdict.cause == "growth"
    assert "step was traced 300 times" in verdict.sentence


def test_growth_that_is_not_what_was_missing_is_ruled_out_in_numbers() -> None:
    verdict = verdict_of(growing(200 * MIB))
    assert verdict.cause == "step too big"
    assert reason(verdict, "growth").startswith("GPU:0 rose by 190 MB in 300 steps")
    assert "364 MB were missing" in reason(verdict, "growth")


def test_a_step_that_returns_a_tensor_is_too_big_and_not_a_leak() -> None:
    source = "for x, y in ds:\n    step(x, y)"
    flat = growing(0, source=source)
    verdict = verdict_of(flat)
    assert verdict.cause == "step too big"
    assert reason(verdict, "growth") == "no figure went on rising."


# ---- Left behind --------------------------------------------------------------------------------


def test_an_old_model_that_the_cell_does_not_use_was_left_behind() -> None:
    verdict = verdict_of(before(600 * MIB, held("old_model.kernel", 600 * MIB)))
    assert (verdict.cause, verdict.owner) == ("left behind", "old_model")
    assert verdict.sentence == (
        "`old_model` 600 MB is left from before, and the cell does not use it: without that, "
        "GPU:0 would have had room for the 500 MB that was asked for."
    )


def test_small_change_is_not_named_beside_what_fills_the_device() -> None:
    names = [
        held("losses", 580 * MIB, 1),
        held("weights", 40 * MIB, 2),
        held("counter", 2 * MIB, 3),
    ]
    verdict = verdict_of(before(622 * MIB, *names))
    assert (verdict.cause, verdict.owner) == ("left behind", "losses")
    told = " ".join((verdict.sentence, *verdict.evidence))
    assert "`losses` holds 580 MB and `weights` holds 40.0 MB." in told
    assert "counter" not in told


@pytest.mark.parametrize(
    ("owner", "is_left"),
    [
        ("old_model.kernel", True),
        ("Out[3]", True),
        ("the last error", False),
        ("a copy of x", False),
        ("x in fit, by the last error", False),
    ],
)
def test_without_a_recording_only_what_a_name_holds_is_left_from_before(
    owner: str, *, is_left: bool
) -> None:
    facts = replace(RECORDED, profile=None, held_after=(held(owner, 600 * MIB),))
    assert (verdict_of(facts).cause == "left behind") is is_left


def test_what_the_cell_uses_was_not_left_behind() -> None:
    verdict = verdict_of(before(600 * MIB, held("model.kernel", 600 * MIB)))
    assert verdict.cause == "step too big"
    assert reason(verdict, "left behind") == "the cell uses the 600 MB that were there before."


def test_a_name_reached_through_a_function_is_used() -> None:
    facts = before(600 * MIB, held("encoder", 600 * MIB))
    assert verdict_of(facts).cause == "left behind"
    used = replace(facts, names_used=frozenset({"encoder"}))
    assert verdict_of(used).cause == "step too big"


def test_an_old_model_too_small_to_matter_is_ruled_out_in_numbers() -> None:
    verdict = verdict_of(before(100 * MIB, held("old_model", 100 * MIB)))
    assert verdict.cause == "step too big"
    assert reason(verdict, "left behind") == (
        "what it does not use holds 100 MB, and 364 MB were missing."
    )


def test_a_model_of_an_earlier_attempt_that_lives_on_was_left_behind() -> None:
    source = "model = build()\nmodel.fit(x, y)"
    facts = before(600 * MIB, held("model", 600 * MIB), facts=replace(RECORDED, source=source))
    lives_on = replace(facts, held_after=(held("", 600 * MIB), held("model", 90 * MIB, 2)))
    freed = replace(facts, held_after=(held("model", 90 * MIB, 2),))
    assert verdict_of(lives_on).cause == "left behind"
    assert verdict_of(freed).cause == "step too big"


def test_memory_under_no_known_name_is_blamed_with_less_confidence() -> None:
    verdict = verdict_of(before(600 * MIB))
    assert (verdict.cause, verdict.confidence) == ("left behind", "possible")
    assert "by no name that is known" in verdict.sentence


def test_a_cell_that_fitted_before_makes_what_was_left_certain() -> None:
    facts = before(600 * MIB, held("old_model", 600 * MIB))
    assert verdict_of(facts).confidence == "likely"
    assert verdict_of(replace(facts, earlier=(run_of(CELL, "finished"),))).confidence == "certain"


def test_an_attempt_that_failed_before_is_part_of_the_evidence() -> None:
    facts = before(600 * MIB, held("x in fit, by the last error", 600 * MIB))
    verdict = verdict_of(replace(facts, earlier=(run_of(CELL, "failed"),)))
    assert verdict.cause == "left behind"
    assert any("has failed once before" in line for line in verdict.evidence)


def test_another_cell_that_failed_before_is_part_of_the_evidence_too() -> None:
    facts = replace(before(600 * MIB), earlier=(run_of("model = build()", "failed"),))
    assert any("The cell before this one failed" in line for line in verdict_of(facts).evidence)


def run_of(source: str, outcome: str, left: int = 0, begun: int = 0) -> Report:
    return Report(
        source=source,
        started_at="",
        elapsed_s=1.0,
        outcome=Outcome(outcome),  # type: ignore[arg-type]
        engine=Engine("monitoring", ""),
        profile=Profile(()),
        host=HostMemory(0, 0, 0, 0, "", is_exact=True),
        devices=(DeviceMemory("GPU:0", begun, begun + left, begun + left),),
    )


def test_a_cell_that_leaves_more_with_each_run_grows() -> None:
    runs = tuple(run_of(CELL, "finished", 200 * MIB, 200 * MIB * at) for at in range(3))
    facts = replace(before(600 * MIB), earlier=runs)
    verdict = verdict_of(facts)
    assert verdict.cause == "growth"
    assert "Each run of this cell leaves 200 MB more: 3 runs have left 600 MB" in verdict.sentence


# ---- Another process ----------------------------------------------------------------------------


def shared_with(others: int | None, facts: Facts = RECORDED) -> Facts:
    return replace(facts, gpus=(Gpu(0, "T4", 4 * GIB, used_by_others_bytes=others),))


def test_a_card_half_taken_by_another_process_is_not_ours_alone() -> None:
    verdict = verdict_of(shared_with(2 * GIB))
    assert verdict.cause == "another process"
    assert verdict.sentence == (
        "GPU:0 is not ours alone: other processes hold 2.00 GB of its 4.00 GB; TensorFlow could "
        "take 1.50 GB."
    )


def test_a_neighbour_that_holds_little_is_ruled_out_in_numbers() -> None:
    verdict = verdict_of(shared_with(100 * MIB))
    assert verdict.cause == "step too big"
    assert reason(verdict, "another process") == (
        "other processes hold 100 MB of it, and 364 MB were missing."
    )


def test_a_driver_that_cannot_say_proves_nothing() -> None:
    assert reason(verdict_of(shared_with(None)), "another process") == ""


def test_a_card_that_is_full_though_the_limit_is_not_is_no_fragmentation() -> None:
    room = failing(in_use_bytes=700 * MIB)
    assert verdict_of(room).cause == "fragmentation"
    assert verdict_of(shared_with(3 * GIB, room)).cause == "another process"


# ---- The data set on the device -----------------------------------------------------------------


def with_data(*holdings: Holding, source: str = CELL) -> Facts:
    composition = Composition("GPU:0", "failure", 1400 * MIB, holdings, "tape")
    return replace(RECORDED, source=source, compositions=(composition,))


def test_a_data_set_that_lies_on_the_device_is_named() -> None:
    data = Holding("data", 800 * MIB, owner="x", shape=(4000, 224, 224), dtype="float32")
    verdict = verdict_of(with_data(data, ACTIVATIONS))
    assert (verdict.cause, verdict.owner) == ("data on the device", "x")
    assert verdict.sentence == (
        "The data set itself is on GPU:0: `x` takes 800 MB of 1.50 GB, and the step had no room "
        "beside it."
    )


def test_an_array_that_fit_made_a_tensor_of_is_the_data_set_too() -> None:
    data = Holding("data", 800 * MIB, shape=(4000, 224, 224), dtype="float32")
    assert verdict_of(with_data(data)).cause == "data on the device"


def test_a_batch_is_part_of_the_step() -> None:
    batch = Holding("data", 800 * MIB, shape=(64, 1024, 1024), dtype="float32")
    verdict = verdict_of(with_data(batch))
    assert verdict.cause == "step too big"
    assert "no data set lies on it" in reason(verdict, "data on the device")


def test_a_copy_that_fit_made_of_an_array_is_not_passed_over() -> None:
    copy = Holding("tensors", 80 * MIB, owner="a copy of images")
    told = reason(verdict_of(with_data(copy)), "data on the device")
    assert told.startswith("a copy of images takes 80.0 MB")


def test_an_array_that_was_to_be_copied_as_a_whole_is_the_data_set() -> None:
    source = "ds = tf.data.Dataset.from_tensor_slices(images)"
    facts = replace(
        failing(kind="copy", op="_EagerConst", layer="", asked_bytes=None, shape=None),
        source=source,
        compositions=(),
    )
    verdict = verdict_of(facts)
    assert verdict.cause == "data on the device"
    assert "from_tensor_slices(images)`" in verdict.sentence


def test_an_array_that_had_no_room_is_named_by_its_line() -> None:
    line = "z = x + tf.zeros(1)"
    facts = failing(op="_EagerConst", layer="", shape=(50000, 1000), line_source=line)
    verdict = verdict_of(replace(facts, source=line))
    assert (verdict.cause, verdict.line_source) == ("data on the device", line)
    assert f"where it was copied as a whole by `{line}`" in verdict.sentence


def test_a_batch_that_could_not_be_copied_to_a_full_device_is_not_the_data_set() -> None:
    facts = failing(kind="copy", op="Conv2D", layer="", asked_bytes=None, shape=None)
    assert verdict_of(facts).cause == "step too big"


# ---- Fragmentation ------------------------------------------------------------------------------


def test_enough_memory_in_pieces_is_fragmentation() -> None:
    verdict = verdict_of(failing(in_use_bytes=600 * MIB, largest_free_bytes=300 * MIB))
    assert (verdict.cause, verdict.confidence) == ("fragmentation", "certain")
    assert verdict.sentence == (
        "GPU:0's memory is in pieces: 936 MB are free in all, but no free block is larger than "
        "300 MB, and 500 MB were asked for at once."
    )
    assert reason(verdict, "step too big") == "what it asked for was free in all."


def test_too_little_memory_in_all_is_no_fragmentation() -> None:
    verdict = verdict_of(failing(largest_free_bytes=10 * MIB))
    assert verdict.cause == "step too big"
    assert reason(verdict, "fragmentation") == (
        "136 MB were free in all, less than the 500 MB asked for."
    )


def test_the_first_step_of_a_model_on_a_nearly_full_device_is_too_big_rather_than_in_pieces() -> (
    None
):
    facts = failing(in_use_bytes=1000 * MIB, largest_free_bytes=300 * MIB)
    verdict = verdict_of(facts)
    assert (verdict.cause, verdict.confidence) == ("step too big", "likely")
    assert "asked for 500 MB more, where 536 MB were free, in pieces" in verdict.sentence
    assert "no step has run through yet" in reason(verdict, "fragmentation")


def test_a_step_that_ran_before_on_a_nearly_full_device_finds_it_in_pieces() -> None:
    facts = failing(in_use_bytes=1000 * MIB, largest_free_bytes=300 * MIB)
    again = replace(facts, profile=Profile((LineUsage(1, CELL, hits=7),)))
    assert verdict_of(again).cause == "fragmentation"


def test_a_peak_is_no_proof_of_fragmentation() -> None:
    facts = replace(failing(in_use_bytes=None, largest_free_bytes=None), compositions=())
    small = replace(facts.devices[0], peak_bytes=900 * MIB)
    assert verdict_of(replace(facts, devices=(small,))).cause != "fragmentation"


# ---- A limit that someone set -------------------------------------------------------------------


def limited(hardware: int | None, device: str = "GPU:0") -> Facts:
    limit = SetLimit("the logical device's memory_limit", LIMIT, device, hardware)
    return replace(RECORDED, limits=(limit,))


def test_a_limit_far_below_the_card_is_the_cause() -> None:
    verdict = verdict_of(limited(16 * GIB))
    assert verdict.cause == "a limit"
    assert verdict.sentence == (
        "GPU:0 is held to 1.50 GB by the logical device's memory_limit, though there are 16.0 GB; "
        "it wanted at least 1.86 GB."
    )


def test_a_limit_that_changes_nothing_is_ruled_out() -> None:
    verdict = verdict_of(limited(LIMIT + MIB))
    assert verdict.cause == "step too big"
    assert "it wanted at least 1.86 GB" in reason(verdict, "a limit")


def test_a_training_device_of_that_size_is_no_limit_but_the_device() -> None:
    assert verdict_of(limited(None)).cause == "step too big"


def test_a_limit_on_another_device_does_not_matter() -> None:
    assert verdict_of(limited(16 * GIB, "GPU:1")).cause == "step too big"


# ---- Validation and prediction ------------------------------------------------------------------


def test_validation_within_fit_is_told_from_training() -> None:
    facts = replace(
        failing(op="resnet50_1/conv2_block1_conv_1/Conv2D"),
        stack=("<module>", "fit", "evaluate", "one_step_on_data"),
    )
    verdict = verdict_of(facts)
    assert verdict.cause == "evaluation"
    assert verdict.sentence == (
        "Validation is too big for GPU:0, where an epoch of training had fitted: at batch "
        "size 64 it needs at least 1.86 GB at once and GPU:0 has 1.50 GB."
    )


def test_predict_is_compared_with_the_line_that_trained() -> None:
    source = "model.fit(x, y, batch_size=8)\nmodel.predict(x, batch_size=4096)"
    lines = (
        LineUsage(1, "", hits=1, devices={"GPU:0": DeviceUsage(0, 700 * MIB)}),
        LineUsage(2, "", hits=1, devices={"GPU:0": DeviceUsage(0, LIMIT)}),
    )
    facts = replace(failing(line_number=2, op=""), source=source, profile=Profile(lines))
    verdict = verdict_of(facts)
    assert verdict.cause == "evaluation"
    assert verdict.sentence.startswith(
        "Prediction is bigger than training, whose peak was 700 MB: at batch size 4096 it needs at "
        "least 1.86 GB at once"
    )


def test_a_gradient_that_fails_in_fit_is_no_validation() -> None:
    source = "model.fit(x, y, validation_data=(a, b))"
    verdict = verdict_of(replace(RECORDED, source=source))
    assert verdict.cause == "step too big"
    assert "gradient" in reason(verdict, "evaluation")


# ---- Compiling ----------------------------------------------------------------------------------


def test_scratch_memory_that_cudnn_could_not_get_is_the_autotune_phase() -> None:
    verdict = verdict_of(failing(kind="scratch", asked_bytes=None, shape=None))
    assert verdict.cause == "compiling"
    assert verdict.sentence == (
        "cuDNN found no room for the scratch memory with which it tries its kernels in "
        "conv2_block1_conv: 136 MB of GPU:0's 1.50 GB were free."
    )


def test_what_xla_asks_for_a_step_is_the_step() -> None:
    verdict = verdict_of(failing(kind="compile", asked_bytes=2 * GIB, shape=None))
    assert verdict.cause == "step too big"
    assert "one compiled step alone" in verdict.sentence
    assert "not its compilation" in reason(verdict, "compiling")


def test_xla_that_fails_without_asking_for_a_size_was_compiling() -> None:
    verdict = verdict_of(failing(kind="compile", asked_bytes=None, shape=None))
    assert (verdict.cause, verdict.confidence) == ("compiling", "possible")


# ---- Host memory --------------------------------------------------------------------------------

HOST = HostMemory(2 * GIB, 3 * GIB, 3 * GIB, 0, "", is_exact=True, limit_bytes=8 * GIB)


def on_host(source: str, **changes: object) -> Facts:
    failure = Failure(
        kind="python",
        place="host",
        text="Unable to allocate 74.5 GiB for an array",
        error_type="MemoryError",
        asked_bytes=10 * GIB,
        shape=(20000, 65536),
        dtype="float64",
        line_number=1,
        line_source=source,
    )
    failure = replace(failure, **changes)  # type: ignore[arg-type]
    return Facts(failure=failure, source=source, profile=Profile(()), host=HOST)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("y = to_categorical(y, 65536)", "one number for each class and sample"),
        ("x = np.array(rows)", "an array that copies what it is made of"),
        ("x = x.astype('float64')", "an array of float64"),
        ("ds = Dataset.from_tensor_slices(x)", "from_tensor_slices copies the whole array"),
        ("x = a + b", "an array of float64"),
    ],
)
def test_a_line_that_asks_for_too_large_an_array_is_named(source: str, words: str) -> None:
    verdict = verdict_of(on_host(source))
    assert (verdict.cause, verdict.confidence) == ("host memory", "certain")
    assert words in verdict.sentence
    assert "10.0 GB (float64 20000×65536)" in verdict.sentence
    assert "as float32 it would take 5.00 GB" in verdict.evidence[0]


@pytest.mark.parametrize("call", ["shuffle(50000)", "cache()"])
def test_a_buffer_of_the_data_set_is_blamed_for_the_line_that_reads_it(call: str) -> None:
    source = f"ds = ds.{call}\nmodel.fit(ds)"
    facts = on_host(source, kind="dataset", asked_bytes=MIB, dtype="float32", line_number=2)
    verdict = verdict_of(facts)
    assert verdict.cause == "host memory"
    assert f"`ds.{call}`" in verdict.sentence
    assert "Line 1 keeps" in verdict.evidence[0]


def test_a_limit_of_the_process_is_told_from_the_machines_memory() -> None:
    limit = SetLimit("ulimit -v", 4 * GIB, hardware_bytes=64 * GIB)
    small = on_host("x = np.zeros(n)", asked_bytes=2 * GIB)
    verdict = verdict_of(replace(small, limits=(limit,)))
    assert (verdict.cause, verdict.confidence) == ("a limit", "certain")
    assert "Host memory is held to 4.00 GB by ulimit -v" in verdict.sentence


def test_a_buffer_that_fills_comes_before_the_limit_that_made_it_sooner() -> None:
    limit = SetLimit("the container's limit", 4 * GIB, hardware_bytes=64 * GIB)
    source = "for batch in ds.shuffle(50000):\n    pass"
    full = replace(HOST, peak_bytes=4 * GIB, limit_bytes=4 * GIB)
    asked = {"kind": "allocation", "op": "Fill", "asked_bytes": MIB, "dtype": "float32"}
    facts = on_host(source, **asked)
    verdict = verdict_of(replace(facts, host=full, limits=(limit,)))
    assert (verdict.cause, verdict.owner) == ("host memory", "ds")
    assert "and the container's limit is 4.00 GB" in verdict.sentence
    in_a_step = on_host(source, **asked, layer="dense")
    assert verdict_of(replace(in_a_step, host=full, limits=(limit,))).cause == "a limit"


def test_a_limit_on_what_is_reserved_is_not_compared_with_what_is_in_use() -> None:
    source = "x = np.zeros(n)"
    few = replace(HOST, peak_bytes=GIB, limit_bytes=4 * GIB, limit_counts_reserved=True)
    limit = SetLimit("this process's limit", 4 * GIB, hardware_bytes=64 * GIB)
    facts = replace(on_host(source, asked_bytes=GIB), host=few, limits=(limit,))
    verdict = verdict_of(facts)
    assert (verdict.cause, verdict.confidence) == ("a limit", "likely")


def test_a_limit_that_the_machine_could_not_make_up_for_is_ruled_out() -> None:
    limit = SetLimit("ulimit -v", 4 * GIB, hardware_bytes=8 * GIB)
    verdict = verdict_of(replace(on_host("x = np.array(y)"), limits=(limit,)))
    assert verdict.cause == "host memory"
    assert reason(verdict, "a limit").startswith("it wanted at least 13.0 GB")


# ---- Little is known ----------------------------------------------------------------------------


def test_an_error_alone_says_what_it_asked_for_and_how_to_know_more() -> None:
    bare = Failure("allocation", "device", "OOM", device="GPU:0", asked_bytes=98 * MIB)
    verdict = verdict_of(Facts(failure=bare))
    assert (verdict.cause, verdict.confidence) == ("unknown", "possible")
    assert verdict.sentence == (
        "GPU:0 had no room for 98.0 MB; how much was in use and the limit are not known."
    )
    assert "%%oomprofile" in verdict.evidence[0]


def test_an_error_in_a_layer_may_be_a_step_that_is_too_big() -> None:
    verdict = verdict_of(Facts(failure=replace(OOM, in_use_bytes=None, limit_bytes=None)))
    assert (verdict.cause, verdict.confidence) == ("step too big", "possible")
    assert "may be too big" in verdict.sentence
    assert "1.50 GB" not in verdict.sentence


def test_a_bare_memory_error_is_told_for_what_it_is() -> None:
    verdict = verdict_of(Facts(failure=Failure("python", "host", "MemoryError")))
    assert verdict.cause in {"host memory", "unknown"}
    assert verdict.confidence == "possible"


def test_a_kernel_that_was_not_watched_still_shows_what_names_hold_now() -> None:
    late = Facts(
        failure=replace(OOM, in_use_bytes=None),
        source=CELL,
        devices=(DeviceMemory("GPU:0", 0, 700 * MIB, 1400 * MIB, LIMIT),),
        held_after=(held("old_model", 600 * MIB), held("model", 90 * MIB, 2), held("", MIB, 3)),
    )
    verdict = verdict_of(late)
    assert (verdict.cause, verdict.owner) == ("left behind", "old_model")
    assert verdict.confidence == "likely"


def test_what_a_comprehension_had_made_was_freed_as_it_failed() -> None:
    source = "kept = [tf.ones(n) for _ in range(40)]"
    freed = Facts(
        failure=replace(OOM, in_use_bytes=None, asked_bytes=400 * MIB, op="Fill", layer=""),
        source=source,
        devices=(DeviceMemory("GPU:0", 7 * MIB, 7 * MIB, 1400 * MIB, LIMIT),),
        is_as_it_failed=True,
    )
    assert verdict_of(freed).cause == "step too big"
    alone = replace(freed, source="kept = tf.ones(n)")
    assert verdict_of(alone).cause == "fragmentation"


def test_the_little_that_was_missing_is_not_what_filled_the_device() -> None:
    full = failing(asked_bytes=100 * MIB, in_use_bytes=LIMIT - 96 * MIB, op="Fill", layer="")
    verdict = verdict_of(before(8 * MIB, held("a", 8 * MIB), facts=full))
    assert verdict.cause == "step too big"
    assert reason(verdict, "left behind") == "what it does not use holds only 8.00 MB of 1.50 GB."


def test_the_last_of_a_full_device_is_not_in_pieces_unless_the_same_has_fitted() -> None:
    full = failing(
        asked_bytes=4 * MIB,
        in_use_bytes=LIMIT - 4 * MIB,
        largest_free_bytes=MIB,
        op="Fill",
        layer="",
    )
    verdict = verdict_of(full)
    assert verdict.cause == "step too big"
    assert "of a device that is nearly full" in reason(verdict, "fragmentation")
    again = replace(full, earlier=(run_of(CELL, "finished"),))
    assert verdict_of(again).cause == "fragmentation"


def test_a_prediction_that_training_is_given_did_not_run_when_training_failed() -> None:
    source = "model.fit(x, teacher.predict(x), batch_size=64)"
    facts = replace(RECORDED, source=source, stack=("<module>", "fit", "train_step"))
    assert verdict_of(facts).cause == "step too big"
    assert verdict_of(replace(facts, stack=("<module>", "predict"))).cause == "evaluation"


@pytest.mark.parametrize(
    ("source", "size"),
    [
        ("bs = 32\nmodel.fit(x, y, batch_size=bs)", 32),
        ("bs = 32\nfor bs in (64, 4096):\n    model.fit(x, y, batch_size=bs)", None),
        ("bs = 32\ndef train(bs):\n    model.fit(x, y, batch_size=bs)", None),
        ("from sizes import bs\nmodel.fit(x, y, batch_size=bs)", None),
        ("bs = 32\ndef bs(): pass\nmodel.fit(x, y, batch_size=bs)", None),
        ("bs = 32\ntry: f()\nexcept E as bs: pass\nmodel.fit(x, y, batch_size=bs)", None),
        ("val = v.batch(64)\nmodel.fit(x, y, batch_size=BS)", None),
        ("val = v.batch(64)\nmodel.fit(x, y)", None),
        ("train = t.batch(64)\nmodel.fit(train)", 64),
    ],
)
def test_a_batch_size_is_one_that_the_source_surely_tells(source: str, size: int | None) -> None:
    assert clues_in(source).batch_size(source.count("\n") + 1) == size


def test_after_an_op_of_the_cells_own_what_is_in_use_now_was_in_use_then() -> None:
    late = Facts(
        failure=replace(OOM, in_use_bytes=None, asked_bytes=400 * MIB, op="Fill", layer=""),
        source="big = tf.zeros(n)",
        devices=(DeviceMemory("GPU:0", 700 * MIB, 700 * MIB, 1400 * MIB, LIMIT),),
        held_after=(held("kept", 700 * MIB),),
        is_as_it_failed=True,
    )
    verdict = verdict_of(late)
    assert (verdict.cause, verdict.confidence) == ("fragmentation", "likely")
    assert verdict.sentence == (
        "GPU:0's memory is in pieces: 836 MB are free in all, but not in one piece, and 400 MB "
        "were asked for at once."
    )
    assert "700 MB of 1.50 GB are in use now on GPU:0." in verdict.evidence
    full = replace(late, devices=(replace(late.devices[0], after_bytes=1400 * MIB),))
    assert verdict_of(full).cause == "left behind"


def test_what_names_hold_after_an_error_is_not_taken_for_what_was_in_use_then() -> None:
    now = Composition("GPU:0", "failure", 700 * MIB, (WEIGHTS,), "names")
    late = Facts(
        failure=replace(OOM, in_use_bytes=None, filename="/t/ipykernel_55/395.py"),
        source=CELL,
        devices=(DeviceMemory("GPU:0", 700 * MIB, 700 * MIB, 1400 * MIB, LIMIT),),
        compositions=(now,),
    )
    verdict = verdict_of(late)
    assert (verdict.cause, verdict.confidence) == ("step too big", "likely")
    assert (verdict.line_number, verdict.line_source) == (1, CELL)
    assert "most of it" not in verdict.sentence
    assert not any("ipykernel" in line for line in verdict.evidence)


# ---- Nothing ran out ----------------------------------------------------------------------------

CALM = replace(
    RECORDED,
    failure=None,
    profile=Profile(
        (
            LineUsage(1, "model = build()", hits=1, devices={"GPU:0": DeviceUsage(0, 90 * MIB)}),
            LineUsage(7, "model.fit(...)", hits=1, devices={"GPU:0": DeviceUsage(0, 1200 * MIB)}),
        )
    ),
    devices=(DeviceMemory("GPU:0", 0, 90 * MIB, 1200 * MIB, LIMIT),),
    compositions=(),
)


def test_a_run_that_did_not_fail_says_its_peak_and_its_line() -> None:
    verdict = verdict_of(CALM)
    assert verdict.sentence == (
        "Nothing ran out; the peak of GPU:0 was 1.17 GB of 1.50 GB (78 %) at line 7: model.fit(...)"
    )
    assert (verdict.cause, verdict.line_number) == ("none", 7)


def test_a_loop_is_not_named_for_what_its_body_took() -> None:
    same = {"GPU:0": DeviceUsage(0, 1200 * MIB)}
    lines = (
        LineUsage(1, "for x in ds:", hits=9, devices=same),
        LineUsage(2, "    step(x)", hits=8, devices=same),
    )
    facts = replace(CALM, source="for x in ds:\n    step(x)", profile=Profile(lines))
    assert verdict_of(facts).line_number == 2


def test_a_run_on_the_host_alone_says_the_hosts_peak() -> None:
    lines = (LineUsage(2, "x = load()", hits=1, host_peak_bytes=3 * GIB),)
    verdict = verdict_of(Facts(profile=Profile(lines), host=HOST))
    assert verdict.sentence == (
        "Nothing ran out; the peak of host memory was 3.00 GB of 8.00 GB (38 %) at line 2: "
        "x = load()"
    )


def test_what_grew_without_running_out_is_told_with_what_is_left() -> None:
    facts = replace(
        growing(300 * MIB),
        failure=None,
        devices=CALM.devices,
        held_after=list_of("losses", 300, MIB),
    )
    verdict = verdict_of(facts)
    assert verdict.cause == "none"
    assert verdict.evidence == (
        "It grows: `losses` grew from 0 to 300 tensors, 300 MB. There is room for 336 more steps.",
    )


def test_a_function_traced_again_and_again_is_told_before_it_runs_out() -> None:
    often, seldom = (TracedLines("step", "<cell>", 1, 2, traces=count) for count in (40, 3))
    calm = replace(CALM, names_used=frozenset({"step"}))
    assert "step was traced 40 times" in verdict_of(replace(calm, traced=(often,))).evidence[0]
    assert verdict_of(replace(calm, traced=(seldom,))).evidence == ()
    assert verdict_of(replace(CALM, traced=(often,))).evidence == ()


def test_nothing_known_is_said_to_be_nothing_known() -> None:
    assert verdict_of(Facts()).confidence == "possible"


# ---- When several causes would explain it -------------------------------------------------------


def everything() -> Facts:
    """Growth, an old model, a neighbour, a limit and a data set, each enough by itself."""
    facts = growing(500 * MIB)
    data = Holding("data", 500 * MIB, owner="ds", shape=(4000, 224), dtype="float32")
    composition = Composition("GPU:0", "failure", 1400 * MIB, (data, ACTIVATIONS), "tape")
    facts = before(450 * MIB, held("old_model", 450 * MIB), facts=facts)
    return replace(
        shared_with(2 * GIB, facts),
        compositions=(composition,),
        limits=limited(16 * GIB).limits,
        stack=("fit", "evaluate"),
    )


def test_growth_comes_first_and_the_others_are_said_to_explain_it_too() -> None:
    verdict = verdict_of(everything())
    assert verdict.cause == "growth"
    second = [each.cause for each in verdict.ruled_out if "comes second" in each.reason]
    assert second == [
        "left behind",
        "another process",
        "a limit",
        "data on the device",
        "evaluation",
    ]


def test_each_cause_gives_way_to_the_next_in_the_order_of_the_table() -> None:
    facts = everything()
    calm = replace(facts, timeline=Timeline())
    alone = before(0, facts=calm)
    unshared = replace(alone, gpus=())
    unlimited = replace(unshared, limits=())
    without_data = replace(unlimited, compositions=RECORDED.compositions)
    training = replace(without_data, stack=())
    steps = (calm, alone, unshared, unlimited, without_data, training)
    assert [verdict_of(each).cause for each in steps] == [
        "left behind",
        "another process",
        "a limit",
        "data on the device",
        "evaluation",
        "step too big",
    ]


def test_a_step_too_big_by_itself_is_blamed_whatever_was_left_behind() -> None:
    facts = before(300 * MIB, held("old_model", 300 * MIB))
    verdict = verdict_of(replace(facts, failure=replace(OOM, asked_bytes=1400 * MIB)))
    assert verdict.cause == "step too big"
    assert "needs at least 2.44 GB" in verdict.sentence


# ---- Whatever the facts -------------------------------------------------------------------------

SIZES = st.one_of(st.none(), st.integers(0, 64 * GIB))


@given(
    kind=st.sampled_from(["allocation", "copy", "scratch", "compile", "dataset", "python"]),
    place=st.sampled_from(["device", "host"]),
    device=st.sampled_from(["", "GPU:0", "CPU:0"]),
    sizes=st.tuples(SIZES, SIZES, SIZES, SIZES),
    op=st.sampled_from(["", "m_1/dense_1/MatMul", "_EagerConst"]),
    shape=st.one_of(st.none(), st.lists(st.integers(0, 9999), max_size=4).map(tuple)),
    source=st.sampled_from(["", CELL, LOOP, "def broken(", "ds = ds.shuffle(9).cache()"]),
    is_recorded=st.booleans(),
)
def test_any_facts_have_a_verdict_in_one_sentence(  # noqa: PLR0913, PLR0917
    kind: str,
    place: str,
    device: str,
    sizes: tuple[int | None, int | None, int | None, int | None],
    op: str,
    shape: tuple[int, ...] | None,
    source: str,
    is_recorded: bool,  # noqa: FBT001
) -> None:
    asked, in_use, limit, largest = sizes
    failure = Failure(
        kind=kind,  # type: ignore[arg-type]
        place=place,  # type: ignore[arg-type]
        text="",
        device=device,
        asked_bytes=asked,
        in_use_bytes=in_use,
        limit_bytes=limit,
        largest_free_bytes=largest,
        op=op,
        shape=shape,
        line_number=1,
    )
    facts = (
        replace(RECORDED, failure=failure, source=source)
        if is_recorded
        else Facts(failure=failure, source=source)
    )
    verdict = verdict_of(facts)
    assert verdict.sentence[0].isupper() or verdict.sentence[0] in "`cX0123456789"
    assert verdict.sentence.endswith(".")
    assert "None" not in verdict.sentence
    assert verdict.cause not in {each.cause for each in verdict.ruled_out}


def test_each_judge_says_in_one_line_what_it_judges() -> None:
    for judge in (*DEVICE_CAUSES, *HOST_CAUSES):
        assert judge.__doc__
