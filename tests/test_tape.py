"""The tape, on the real allocator of real TensorFlow processes."""

from typing import Any

import pytest
from children import run_after_import
from taping import NOTHING_LEFT, tape

from oommagic.tf import context
from oommagic.tf.function_calls import FunctionCalls
from oommagic.tf.tape import Taping

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.both_ends]


def test_the_tape_of_a_fit_adds_up_at_every_event_and_peaks_where_the_allocator_does() -> None:
    told = tape("""
with Taped(steps=100, eager_s=60) as run:
    make_model().fit(x, y, batch_size=16, verbose=0)
told["tapes"], told["peak"], told["left"] = run.facts(), memory()["peak"], left_behind()
told["notes"] = run.taping.notes
""")
    (facts,) = told["tapes"]
    assert facts["wrong"] == 0
    assert facts["peak"] == told["peak"]
    assert facts["steps"][-4:] == ["multi_step_on_iterator"] * 4
    assert facts["in_order"]
    assert facts["is_whole"]
    assert {"sequential/eyes", "sequential/head"} <= set(facts["layers"]) or {
        "eyes",
        "head",
    } <= set(facts["layers"])
    assert {"weights", "gradients", "activations", "optimizer slots"} <= set(facts["kinds"])
    assert [[16, 14, 14, 8], "float32"] in facts["tensors"]
    assert all(note.startswith("Saving the record of allocations took") for note in told["notes"])
    assert told["left"] == NOTHING_LEFT


def test_a_custom_loop_is_on_the_tape_as_far_as_its_first_steps() -> None:
    told = tape("""
weights = tf.Variable(tf.random.uniform((16 * 16 * 3, 10)))
@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        scores = tf.reshape(x, (-1, 16 * 16 * 3)) @ weights
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores))
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss
with Taped(steps=2, eager_s=60) as run:
    for _ in range(2):
        step(x, y)
    peak = memory()["peak"]
    # The rest waits until the tape has ended, so that it cannot be on it.
    while run.taping.is_recording:
        time.sleep(0.01)
    for _ in range(50):
        step(x, y)
told["tapes"], told["peak"], told["left"] = run.facts(), peak, left_behind()
""")
    (facts,) = told["tapes"]
    assert facts["wrong"] == 0
    assert facts["peak"] == told["peak"]
    assert facts["steps"] == ["step", "step"]
    assert facts["within"][-1]  # the first may have begun before the recording
    assert not facts["is_whole"]
    assert told["left"] == NOTHING_LEFT


@pytest.mark.parametrize("call", ["predict(x, verbose=0)", "evaluate(x, y, verbose=0)"])
def test_predict_and_evaluate_are_on_the_tape_too(call: str) -> None:
    told = tape(f"""
model = make_model()
tf.config.experimental.reset_memory_stats("CPU:0")
with Taped(eager_s=60) as run:
    model.{call}
told["tapes"], told["peak"] = run.facts(), memory()["peak"]
""")
    (facts,) = told["tapes"]
    assert facts["wrong"] == 0
    assert facts["peak"] == told["peak"]
    assert facts["steps"]


def test_a_function_that_comes_late_and_needs_more_is_on_the_tape() -> None:
    told = tape("""
@tf.function
def small(x):
    return x + 1.0
@tf.function
def large(x):
    return tf.reduce_sum(tf.exp(tf.tile(x, (50, 1, 1, 1))))
with Taped(steps=1, eager_s=60) as run:
    small(x)
    while run.taping.is_recording:
        time.sleep(0.01)
    small(x)
    tf.config.experimental.reset_memory_stats("CPU:0")
    large(x)
told["tapes"], told["peak"] = run.facts(), memory()["peak"]
""")
    (facts,) = told["tapes"]
    assert facts["steps"] == ["large"]
    assert facts["peak"] == told["peak"]


def test_a_function_that_needs_more_later_on_is_on_the_tape_again() -> None:
    told = tape("""
@tf.function(input_signature=[tf.TensorSpec((None, 16, 16, 3))])
def step(x):
    return tf.reduce_sum(tf.exp(tf.tile(x, (20, 1, 1, 1))))
with Taped(steps=1, eager_s=60) as run:
    step(x[:4])
    while run.taping.is_recording:
        time.sleep(0.01)
    step(x)
    while run.taping._known:
        time.sleep(0.01)
    tf.config.experimental.reset_memory_stats("CPU:0")
    step(x)
told["tapes"], told["peak"] = run.facts(), memory()["peak"]
""")
    (facts,) = told["tapes"]
    assert facts["peak"] == told["peak"]


def test_eager_code_is_on_the_tape_for_a_moment() -> None:
    told = tape("""
with Taped() as run:
    began = time.perf_counter()
    while time.perf_counter() - began < 3:
        tf.square(x)
told["tapes"], told["span"] = run.facts(), run.tapes[0].times_s[-1] - run.tapes[0].times_s[0]
""")
    (facts,) = told["tapes"]
    assert facts["wrong"] == 0
    assert facts["events"] > 10
    assert not facts["is_whole"]
    assert told["span"] < 1.5


@pytest.mark.long
def test_a_step_that_allocates_too_often_ends_the_tape_and_says_so() -> None:
    told = tape("""
@tf.function
def loop(x):
    return tf.while_loop(lambda i, x: i < 400000, lambda i, x: (i + 1, tf.sin(x)), [0, x])
loop(x)
with Taped(events=2000) as run:
    loop(x)
told["tapes"], told["notes"], told["left"] = run.facts(), run.taping.notes, left_behind()
""")
    (facts,) = told["tapes"]
    assert facts["wrong"] == 0
    assert not facts["is_whole"]
    assert "ended within a step" in told["notes"][0]
    assert told["left"] == NOTHING_LEFT


def test_preparing_a_large_graph_stays_off_the_tape_and_its_first_steps_are_on_it() -> None:
    told = tape("""
import keras
tf.config.experimental.reset_memory_stats("CPU:0")
with Taped(eager_s=60) as run:
    model = keras.applications.MobileNetV2(weights=None, input_shape=(64, 64, 3), classes=10)
    model.compile("sgd", "sparse_categorical_crossentropy")
    images, classes = tf.random.uniform((24, 64, 64, 3)), tf.zeros((24,), tf.int32)
    model.fit(images, classes, batch_size=8, verbose=0)
told["tapes"], told["peak"], told["notes"] = run.facts(), memory()["peak"], run.taping.notes
""")
    (facts,) = told["tapes"]
    assert facts["wrong"] == 0
    # The recording begins again while the graph is prepared. Where the first step begins in that
    # very moment it is cut off, and the peak is that of the others: ops race, so it is not equal.
    # What is there before them is a tenth.
    assert 0.6 * told["peak"] <= facts["peak"] <= told["peak"]
    assert facts["events"] < 30_000
    assert not any("ended within a step" in note for note in told["notes"])


def test_devices_that_are_made_while_the_cell_runs_are_taped_from_then_on() -> None:
    told = run_after_import(
        """
import threading, time
import tensorflow as tf
from oommagic.tf.tape import Taping
taping = Taping()
taping.begin()
tf.ones(3)
taping.tick()
tf.ones((1000, 1000))
(tape,) = taping.end()
told["sizes"] = list(tape.bytes)
""",
        {"TF_CPU_ALLOCATOR_USE_BFC": "true"},
    )
    assert max(told["sizes"]) >= 4_000_000


def test_a_cpu_without_a_training_device_is_left_alone() -> None:
    told = run_after_import(
        """
import tensorflow as tf
from oommagic.tf import context
from oommagic.tf.tape import Taping
tf.ones(3)
taping = Taping()
before = dict(vars(context.current_context()))
taping.begin()
told["changed"] = [k for k, v in vars(context.current_context()).items() if before.get(k) is not v]
taping.tick()
told["tapes"], told["notes"] = list(taping.end()), taping.notes
"""
    )
    assert told == {"changed": [], "tapes": [], "notes": []}


def test_the_program_s_own_profiler_wins_and_has_its_own_recording() -> None:
    told = tape("""
folder = tempfile.mkdtemp()
with Taped() as run:
    tf.square(x)
    tf.profiler.experimental.start(folder)
    told["during"] = left_behind()
    tf.square(x)
    tf.profiler.experimental.stop()
told["files"] = len(glob.glob(folder + "/**/*.xplane.pb", recursive=True))
told["tapes"], told["notes"], told["left"] = run.facts(), run.taping.notes, left_behind()
""")
    assert told["during"]["on the context"] == []
    assert told["files"] == 1
    assert told["tapes"][0]["events"] > 0
    assert not told["tapes"][0]["is_whole"]
    assert "started by the program itself" in told["notes"][0]
    assert told["left"] == NOTHING_LEFT


def test_a_profiler_that_runs_already_is_left_alone() -> None:
    told = tape("""
with tf.profiler.experimental.Profile(tempfile.mkdtemp()):
    with Taped() as run:
        make_model().fit(x, y, verbose=0)
told["tapes"], told["notes"], told["left"] = run.facts(), run.taping.notes, left_behind()
""")
    assert told["tapes"] == []
    assert "started by the program itself" in told["notes"][0]
    assert told["left"] == NOTHING_LEFT


def test_trace_on_gets_its_profiler() -> None:
    told = tape("""
folder = tempfile.mkdtemp()
with Taped() as run:
    tf.summary.trace_on(profiler=True, profiler_outdir=folder)
    tf.square(x)
    profiler_v2.stop()
told["files"] = len(glob.glob(folder + "/**/*.xplane.pb", recursive=True))
told["notes"], told["left"] = run.taping.notes, left_behind()
""")
    assert told["files"] == 1
    assert "started by the program itself" in told["notes"][0]
    assert told["left"] == NOTHING_LEFT


def test_a_tensorboard_callback_gets_its_profiler() -> None:
    told = tape("""
folder = tempfile.mkdtemp()
import keras
with Taped() as run:
    callback = keras.callbacks.TensorBoard(folder, profile_batch=(2, 3))
    make_model().fit(x, y, batch_size=16, verbose=0, callbacks=[callback])
told["files"] = len(glob.glob(folder + "/**/*.xplane.pb", recursive=True))
told["notes"], told["left"] = run.taping.notes, left_behind()
""")
    assert told["files"] == 1
    assert "started by the program itself" in told["notes"][0]
    assert told["left"]["on the context"] == []
    assert told["left"]["lock"] == "lock"


def test_a_step_that_began_before_its_recording_did_is_left_out_where_others_follow() -> None:
    told = tape("""
def begin_again(value):
    if "begun" not in told:
        told["begun"] = True
        run.taping._record_again(run.taping._progress)
    return value

@tf.function
def step(x):
    large = tf.tile(x, (20, 1, 1, 1))
    seen = tf.numpy_function(begin_again, [tf.reduce_sum(large)], tf.float32)
    return tf.reduce_sum(tf.exp(large * seen))

with Taped(steps=3, eager_s=60) as run:
    for _ in range(3):
        step(x)
(last,) = run.tapes
told["steps"], told["before"] = len(last.steps), last.before_bytes
told["peak"], told["large"] = max(last.in_use_bytes), 20 * int(tf.size(x)) * 4
""")
    assert told["begun"]
    assert told["steps"] == 2
    assert told["before"] < told["large"] < told["peak"]


def test_calls_are_counted_when_nothing_is_recorded_any_more() -> None:
    told = tape("""
step = tf.function(lambda x: tf.reduce_sum(x))
step(x)
with Taped(steps=1, recordings=1) as run:
    step(x)
    while run.taping.is_recording:
        time.sleep(0.01)
    for _ in range(5):
        step(x)
told["steps"], told["calls"] = len(run.tapes[0].steps), run.taping.calls_begun
told["left"] = left_behind()
""")
    assert (told["steps"], told["calls"]) == (1, 6)
    assert told["left"] == NOTHING_LEFT


def test_a_tick_while_the_last_recording_ends_lets_calls_be_counted_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Context:
        def call_function(self) -> None:
            pass

    here: Any = Context()
    taping = Taping()

    def ends_meanwhile() -> object:
        taping._record_no_more()
        return here

    monkeypatch.setattr(context, "current_context", ends_meanwhile)
    calls = FunctionCalls(here, lambda _name: None, lambda _name, _began, _ended: None)
    calls.start()
    taping._context, taping._calls, taping._phase = here, calls, "armed"
    taping.tick()
    assert calls.stands_in
    taping.stop()
    assert taping.has_counted_calls
    assert not calls.stands_in


def test_errors_and_interrupts_leave_nothing_behind_and_show_no_line_of_ours() -> None:
    told = tape("""
@tf.function
def failing(x):
    tf.debugging.assert_less(tf.reduce_sum(x), -1.0)
    return x
def fail():
    try:
        failing(x)
    except tf.errors.InvalidArgumentError:
        return [line for line in traceback.format_exc().splitlines() if "File" in line]
told["plain"] = fail()
with Taped() as run:
    told["taped"] = fail()
told["steps"] = run.facts()[0]["steps"]
told["left"] = left_behind()
try:
    with Taped(steps=10**9) as run:
        _thread.interrupt_main()
        while True:
            tf.square(x)
except KeyboardInterrupt:
    told["left after the interrupt"] = left_behind()
""")
    assert told["taped"] == told["plain"]
    assert told["steps"] == ["failing"]
    assert told["left"] == NOTHING_LEFT
    assert told["left after the interrupt"] == NOTHING_LEFT


def test_what_tensorflow_logs_of_its_profiler_does_not_show_but_all_else_does() -> None:
    told = run_after_import(
        """
import os, tempfile
import tensorflow as tf
from oommagic.tf.tape import Taping
x = tf.random.uniform((10,))
tf.square(x)
kept, file = os.dup(2), tempfile.TemporaryFile()
os.dup2(file.fileno(), 2)
taping = Taping()
taping.begin()
os.write(2, b"mine\\n")
tf.square(x)
told["tapes"] = len(taping.end())
os.dup2(kept, 2)
file.seek(0)
told["shown"] = file.read().decode()
""",
        {
            "TF_CPU_ALLOCATOR_USE_BFC": "true",
            "TF_CPP_MIN_LOG_LEVEL": "0",
        },
    )
    assert told == {"tapes": 1, "shown": "mine\n"}


@pytest.mark.slow_once
def test_an_interrupt_at_any_moment_leaves_nothing_behind() -> None:
    told = tape("""
import signal
from oommagic.measure.interrupts import InterruptsPassedOn
from oommagic.tf.function_calls import AT_END_OF_CALL
passing_on = InterruptsPassedOn(AT_END_OF_CALL)  # as around every profiled cell
passing_on.start()
signal.signal(signal.SIGALRM, signal.default_int_handler)
step = tf.function(lambda x: tf.reduce_sum(tf.square(x)))
step(x)
def files():
    return len(os.listdir("/proc/self/fd"))
before, screen = files(), os.fstat(2).st_ino
told["interrupted"], told["left"] = 0, []
for moment in range(40):
    taping = Taping()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003 + moment * 0.0005)
        taping.begin()
        step(x)
        taping.end()
        time.sleep(1)
    except KeyboardInterrupt:
        told["interrupted"] += 1
    taping.close()
    told["left"].append([left_behind(), files() - before, os.fstat(2).st_ino == screen])
passing_on.stop()
with Taped() as run:
    step(x)
told["steps"] = run.facts()[0]["steps"]
""")
    assert told["interrupted"] == 40
    assert [left for left in told["left"] if left != [NOTHING_LEFT, 0, True]] == []
    assert len(told["steps"]) == 1


def test_a_tape_ends_when_the_program_makes_the_devices_anew() -> None:
    told = tape("""
from tensorflow.python.eager import context as tensorflow_s
with Taped(steps=100, eager_s=100) as run:
    tf.square(x)
    told["before"] = run.taping.is_recording
    tensorflow_s._reset_context()
    tf.ones((10,))
    deadline = time.monotonic() + 10
    while run.taping.is_recording and time.monotonic() < deadline:
        time.sleep(0.01)
    told["after"] = run.taping.is_recording
told["tapes"], told["left"] = len(run.tapes), left_behind()
""")
    assert told["before"]
    assert not told["after"]
    assert told["tapes"] == 1
    assert told["left"] == NOTHING_LEFT
