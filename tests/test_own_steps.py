"""Which batch fits, told by the report of a cell that trained, from its own steps."""

from array import array
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from children import ARENA, run_after_import
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import failed_training, planned_training, too_large_a_model, unlimited_training

from oommagic.explain.own_steps import CellSteps, forecast_of_cell
from oommagic.forecasts import Limit
from oommagic.recording import Held, OpRole, Tape
from oommagic.show import html, text
from oommagic.units import MIB

CELLS = """
import keras, numpy as np, tensorflow as tf
import oommagic
from keras import layers
from oommagic.magics import open_shell
from oommagic.show import html, text

shell = open_shell()

def profiled(name, cell):
    shell.run_cell("%%oomprofile -q\\n" + cell)
    report = oommagic.last_report()
    plan = report.plan
    told[name] = {
        "outcome": report.outcome.error_type,
        "is there": plan is not None,
        "peak": report.devices[0].peak_bytes,
        "limit": report.devices[0].limit_bytes,
        "text": text.render(report, 100),
        "html": html.render(report),
    }
    if plan is not None:
        (own,) = [row for row in plan.rows if row.batch in plan.ran]
        told[name] |= {
            "title": plan.title,
            "task": plan.task,
            "ran": list(plan.ran),
            "max": plan.max_batch,
            "of": plan.limit_bytes,
            "own": [own.low_bytes, own.peak_bytes, own.high_bytes],
            "notes": list(plan.notes),
            "seconds": plan.elapsed_s,
            "peaks": {row.batch: row.peak_bytes for row in plan.rows},
        }
    return report

shell.run_cell('''
import keras, numpy as np, tensorflow as tf
from keras import layers
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
images, labels = np.zeros((192, 32, 32, 3), "float32"), np.zeros(192, "int32")
model = keras.Sequential([
    keras.Input((32, 32, 3)),
    layers.Conv2D(32, 3, activation="relu"),
    layers.Conv2D(32, 3, activation="relu"),
    layers.MaxPooling2D(),
    layers.Flatten(),
    layers.Dense(64, activation="relu"),
    layers.Dense(10),
])
model.compile("adam", LOGITS)
''').raise_error()
"""

TRAINED = (
    CELLS
    + """
report = profiled("fit", "history = model.fit(images, labels, batch_size=32, verbose=0)")
import tempfile, pathlib
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "report.json"
    report.save(path)
    told["as JSON"] = oommagic.load(path) == report
profiled("one batch at a time", '''
for start in range(0, 160, 40):
    model.train_on_batch(images[start:start + 40], labels[start:start + 40])
''')
profiled("own step", '''
optimizer = keras.optimizers.Adam()
@tf.function
def train_step(batch, wanted):
    with tf.GradientTape() as tape:
        loss = LOGITS(wanted, model(batch, training=True))
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return loss
for start in range(0, 144, 24):
    train_step(images[start:start + 24], labels[start:start + 24])
''')
profiled("predict", "found = model.predict(images, batch_size=32, verbose=0)")
profiled("no step", "total = tf.reduce_sum(tf.ones((1000, 1000)))")
"""
)

COMPILED = (
    CELLS
    + """
profiled("compiled", '''
model.compile("adam", LOGITS, jit_compile=True)
history = model.fit(images, labels, batch_size=32, verbose=0)
''')
"""
)

AT_ONCE = (
    CELLS + 'profiled("at once", "model.fit(images, labels, batch_size=192, verbose=0)")\n'
    "import os, sys; print(json.dumps(told), flush=True); os._exit(0)\n"
)

LATER = (
    CELLS
    + """
profiled("later", '''
kept = []
for step in range(1000):
    model.train_on_batch(images[:16], labels[:16])
    kept.append(tf.ones((MIB,)))
'''.replace("MIB", str(2**20)))
import os, sys; print(json.dumps(told), flush=True); os._exit(0)
"""
)


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    return run_after_import(TRAINED, ARENA)


@pytest.mark.of_tensorflow
@pytest.mark.slow_once
@pytest.mark.parametrize(
    ("cell", "title", "task", "batch"),
    [
        ("fit", "model", "training", 32),
        ("one batch at a time", "model", "training", 40),
        ("own step", "train_step", "step", 24),
    ],
)
def test_a_cell_that_trained_says_which_batch_fits(
    trained: dict[str, Any], cell: str, title: str, task: str, batch: int
) -> None:
    told = trained[cell]
    assert told["is there"]
    assert (told["title"], told["task"], told["ran"]) == (title, task, [batch])
    low, peak, high = told["own"]
    assert low <= peak <= high
    assert peak == pytest.approx(told["peak"], rel=0.25)
    assert told["of"] == told["limit"]
    assert told["max"] > batch
    assert f"Only the cell's own batch ({batch}) was seen" in told["notes"][0]
    assert "Which batch fits? Batch" in told["text"]
    assert "Which batch fits? Batch" in told["html"]


@pytest.mark.of_tensorflow
@pytest.mark.slow_once
def test_a_plan_comes_back_from_a_saved_report(trained: dict[str, Any]) -> None:
    assert trained["as JSON"] is True


@pytest.mark.of_tensorflow
@pytest.mark.slow_once
@pytest.mark.parametrize("cell", ["predict", "no step"])
def test_a_cell_that_did_not_train_says_nothing_of_batches(
    trained: dict[str, Any], cell: str
) -> None:
    assert not trained[cell]["is there"]
    assert "Which batch fits?" not in trained[cell]["text"] + trained[cell]["html"]


@pytest.mark.of_tensorflow
@pytest.mark.slow_once
def test_one_size_of_a_compiled_step_makes_no_plan() -> None:
    told = run_after_import(COMPILED, ARENA)["compiled"]
    assert told["outcome"] == ""
    assert not told["is there"]


@pytest.mark.of_tensorflow
@pytest.mark.slow_once
def test_a_step_that_ran_out_is_no_ground_for_a_plan() -> None:
    told = run_after_import(AT_ONCE, {**ARENA, "TF_CPU_BFC_MEM_LIMIT_IN_MB": "80"})["at once"]
    assert told["outcome"] == "ResourceExhaustedError"
    assert not told["is there"]


@pytest.mark.of_tensorflow
@pytest.mark.slow_once
def test_a_list_that_has_filled_the_device_is_not_taken_for_what_a_batch_needs() -> None:
    told = run_after_import(LATER, ARENA)["later"]
    assert told["outcome"] == "ResourceExhaustedError"
    assert not told["is there"] or told["max"] >= 16


def test_steps_before_the_one_that_failed_are_enough() -> None:
    step = [*LAYERS, *((place, 0, 4, 0) for place, *_ in LAYERS)]
    spans = [(-0.0, 3.5, "step"), (3.9, 7.5, "step")]
    before = forecast_of_cell(_cell(_tape(2 * step, spans)))
    failing = [(10, 9000, 0, 3), (11, 9000, 1, 3), (11, 0, 4, 0), (10, 0, 4, 0)]
    tape = _tape([*step, *step, *failing], [*spans, (7.9, 12.0, "step")])
    after = forecast_of_cell(replace(_cell(tape), has_failed=True))
    assert before is not None
    assert after is not None
    assert after.rows == before.rows


def test_what_is_folded_for_the_next_step_is_no_training() -> None:
    made: list[Event] = [(12, 40, 3, 7)]
    folded: list[Event] = [(10, 1, 1, 2), (11, 1, 1, 2), (11, 0, 4, 0), (10, 0, 4, 0)]
    failing = [(10, 9000, 0, 3), (10, 0, 4, 0)]
    spans = [(-0.0, 0.5, "initialize_variables"), (4.9, 20.0, "step")]
    tape = _tape([*made, *folded, *failing], spans)
    assert forecast_of_cell(replace(_cell(tape), has_failed=True)) is None
    trained = replace(tape, steps=((-0.0, 4.5, "step"), spans[1]))
    assert forecast_of_cell(replace(_cell(trained), has_failed=True)) is not None


def test_steps_within_steps_do_not_cost_the_report() -> None:
    tape = _tape(LAYERS + [(place, 0, 4, 0) for place, *_ in LAYERS], [])
    within = replace(tape, steps=((0.5, 2.5, "inner"), (-0.0, 3.9, "outer")))
    forecast = forecast_of_cell(_cell(within))
    assert forecast is None or forecast.title == "outer"


def test_the_text_is_short_and_fits_the_terminal() -> None:
    report = failed_training()
    with_plan = replace(report, plan=planned_training())
    for columns in (80, 120):
        plain, longer = (text.render(one, columns).splitlines() for one in (report, with_plan))
        assert 5 <= len(longer) - len(plain) <= 14
        assert all(len(line) <= columns for line in longer)


def test_a_plan_without_an_answer_is_not_shown() -> None:
    report = replace(failed_training(), plan=unlimited_training())
    assert "Which batch fits?" not in text.render(report) + html.render(report)


def test_a_model_that_never_fits_is_said() -> None:
    report = replace(failed_training(), plan=too_large_a_model())
    assert "Which batch fits? No batch fits" in text.render(report)


ROLES = (
    OpRole("activations", "eyes"),
    OpRole("gradients", "eyes"),
    OpRole("workspace", "adam"),
    OpRole("weights", "eyes"),
    OpRole("unknown"),
)
SHAPES = (None, (), (8,), (8, 100), (16, 100), (3, 8), (0, 8), (100, 10))

Event = tuple[int, int, int, int]
"""An address, how much is handed out (less than 1: a free), an op and a tensor, by number."""

NUMBERS = st.integers(0, 9), st.integers(-3, 40), st.integers(0, 4), st.integers(0, 7)
LAYERS: list[Event] = [(10, 900, 0, 3), (11, 900, 1, 3)]


@st.composite
def any_tape(draw: st.DrawFn) -> Tape:
    """Draw a tape whose frees may be of what nobody has seen, around steps that may be whole."""
    events: list[Event] = draw(st.lists(st.tuples(*NUMBERS), max_size=9))
    steps = []
    for name in draw(st.lists(st.sampled_from(("one_step_on_data", "step")), max_size=4)):
        began = len(events)
        layers = draw(st.sampled_from((LAYERS, LAYERS, LAYERS[:1])))
        events += [*layers, *draw(st.lists(st.tuples(*NUMBERS), max_size=9))]
        events += [(place, 0, 4, 0) for place, *_ in LAYERS]
        steps.append((began - draw(st.sampled_from((0.5, 0.5, 3.0))), len(events) - 0.5, name))
    return _tape(events, steps)


def _tape(events: list[Event], steps: list[tuple[float, float, str]]) -> Tape:
    sizes = [size * 256 or -256 for _, size, _, _ in events]
    return Tape(
        device="CPU:0",
        before_bytes=4 * MIB,
        times_s=array("d", range(len(events))),
        addresses=array("q", (place * 256 for place, *_ in events)),
        bytes=array("q", sizes),
        requested_bytes=array("q", map(abs, sizes)),
        in_use_bytes=array("q", (4 * MIB + total for total in accumulate(sizes))),
        op_numbers=array("q", (op for _, _, op, _ in events)),
        tensor_numbers=array("q", (tensor for *_, tensor in events)),
        temporary=array("b", bytes(len(events))),
        ops=("a", "b", "c", "d", ""),
        roles=ROLES,
        tensors=tuple((shape, "float32") for shape in SHAPES),
        steps=tuple(steps),
    )


def _cell(tape: Tape, mib: int = 1000) -> CellSteps:
    held = (Held("model", "weights", "CPU:0", 0, 4000, "eyes", (100, 10), "float32"),)
    limit = Limit("this device", mib * MIB)
    return CellSteps(tape, held, limit, is_arena=True, has_failed=False)


@settings(deadline=None, max_examples=150)
@given(tape=any_tape(), limit_mib=st.none() | st.integers(1, 1000), ending=st.booleans())
def test_whatever_is_on_a_tape_no_report_fails_for_want_of_a_plan(
    tape: Tape, limit_mib: int | None, ending: object
) -> None:
    limit = None if limit_mib is None else Limit("this device", limit_mib * MIB)
    cell = replace(_cell(tape), limit=limit, has_failed=bool(ending))
    forecast = forecast_of_cell(cell)
    for row in () if forecast is None else forecast.rows:
        assert row.low_bytes <= row.peak_bytes <= row.high_bytes


def test_the_answer_has_figures_of_its_own_that_fit() -> None:
    tape = _tape(2 * [*LAYERS, *((place, 0, 4, 0) for place, *_ in LAYERS)], [])
    steps = ((-0.0, 3.5, "one_step_on_data"), (3.9, 7.5, "one_step_on_data"))
    for mib in range(8, 200, 7):
        forecast = forecast_of_cell(_cell(replace(tape, steps=steps), mib))
        assert forecast is not None
        (answer,) = [row for row in forecast.rows if row.batch == forecast.max_batch]
        assert answer.high_bytes <= mib * MIB
