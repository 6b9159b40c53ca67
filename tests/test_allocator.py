"""TensorFlow's own figures, read at every line, without spoiling what the user reads."""

from collections.abc import Iterator
from typing import Any

import pytest
from children import ARENA, Conversation, run_python, talk_to_python
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.of_tensorflow

MB = 1024 * 1024

WATCHED_RUN = """
import sys
import traceback
from timeit import repeat
from oommagic.tf.allocator import Allocators

def cost_us(call):
    return min(repeat(call, number=20000, repeat=5)) / 20000 * 1e6

watch = Allocators()
told["before_import"] = [watch.find(), watch.status(), watch.tracing_graph(), watch.version()]
told["find_us_without_tf"] = cost_us(watch.find)
told["tensorflow_imported_by_us"] = "tensorflow" in sys.modules

import tensorflow as tf
from tensorflow.config.experimental import get_memory_info, reset_memory_stats
from tensorflow.python.eager import context
told["before_devices"] = [watch.find(), watch.status()]
# Refused by TensorFlow if looking had made the devices.
one = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [one, one])

kept = tf.zeros([2, 1024, 1024])
told["after_devices"] = [watch.find(), list(watch.names), watch.status()]
told["limit"] = [watch.limit_bytes(name) for name in watch.names]
told["first"] = watch.read()
told["quiet"] = watch.read()
told["allocator"] = get_memory_info("CPU:0")["current"]

passing = tf.zeros([20, 1024, 1024])
del passing
told["peeked"] = watch.peek()
told["passed"] = watch.read()
told["then"] = watch.read()
told["user_sees"] = get_memory_info("CPU:0")["peak"]
told["in_other_words"] = [get_memory_info(name)["peak"] for name in ("/cpu:0", "/device:CPU:0",
    "/job:localhost/replica:0/task:0/device:CPU:0")]

passing = tf.zeros([30, 1024, 1024])
del passing
reset_memory_stats("CPU:0")
told["user_after_reset"] = get_memory_info("CPU:0")["peak"]
told["line_with_reset"] = watch.read()

for call in (get_memory_info, reset_memory_stats):
    try:
        call("GPU:7")
    except ValueError as error:
        told.setdefault("errors", []).append(str(error))
        shown = "".join(traceback.format_exception(error))
        told.setdefault("tracebacks_with_us", []).append("oommagic" in shown)

told["read_us"] = cost_us(watch.read)
told["find_us"] = cost_us(watch.find)
told["peek_us"] = cost_us(watch.peek)

traced = []
@tf.function
def step(x):
    traced.append(watch.tracing_graph())
    with tf.init_scope():
        traced.append(watch.tracing_graph())
    return x + 1
step(kept)
told["tracing"] = [watch.tracing_graph(), *traced, watch.tracing_graph()]
told["tracing_us"] = cost_us(watch.tracing_graph)
told["version"] = [watch.version(), tf.__version__]

passing = tf.zeros([25, 1024, 1024])
del passing
during = watch.read()[0][1]
watch.close()
standing_in = vars(context.context())
told["after_close"] = [get_memory_info("CPU:0")["peak"], during, "get_memory_info" in standing_in]
told["name_after_close"] = [list(watch.names), watch.status(), watch.find()]
reset_memory_stats("CPU:0")
told["after_users_reset"] = [get_memory_info("CPU:0"), "get_memory_info" in standing_in]

unneeded = Allocators()
unneeded.find()
unneeded.read()
unneeded.close()
told["left_without_need"] = "get_memory_info" in standing_in

outgrown = Allocators()
outgrown.find()
passing = tf.zeros([10, 1024, 1024])
del passing
outgrown.read()
outgrown.close()
needed = "get_memory_info" in standing_in
passing = tf.zeros([15, 1024, 1024])
del passing
told["outgrown"] = [needed, get_memory_info("CPU:0")["peak"], "get_memory_info" in standing_in]

again = Allocators()
again.find()
del kept
context._reset_context()
told["after_context_reset"] = [again.find(), list(again.names), again.read()]
kept = tf.zeros([1024, 1024])
told["new_context"] = [again.find(), list(again.names), len(again.read())]
again.close()
"""


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    return run_python(WATCHED_RUN, ARENA)


def test_without_tensorflow_nothing_is_found_and_nothing_imported(run: dict[str, Any]) -> None:
    not_imported = "TensorFlow was not imported: device memory is not shown."
    assert run["before_import"] == [False, not_imported, False, {}]
    assert run["tensorflow_imported_by_us"] is False


def test_looking_leaves_the_devices_for_the_user_to_configure(run: dict[str, Any]) -> None:
    found, status = run["before_devices"]
    assert not found
    assert status.startswith("TensorFlow has not made its devices yet")


def test_two_processors_share_one_training_device_and_are_counted_once(run: dict[str, Any]) -> None:
    assert run["after_devices"][:2] == [True, ["CPU:0"]]
    assert run["after_devices"][2].endswith("CPU:0.")
    assert run["limit"] == [256 * MB]


def test_a_reading_is_the_allocators_figure(run: dict[str, Any]) -> None:
    current, peak = run["first"][0]
    assert current == run["allocator"] >= 8 * MB
    assert peak >= current
    assert run["quiet"] == [[current, current]]


def test_what_passes_within_a_line_is_in_its_peak_alone(run: dict[str, Any]) -> None:
    current, peak = run["passed"][0]
    assert run["peeked"] == [current]
    assert peak - current >= 80 * MB
    assert run["then"] == [[current, current]]


def test_the_user_still_reads_the_peak_of_the_whole_run(run: dict[str, Any]) -> None:
    assert run["user_sees"] == run["passed"][0][1]
    assert run["in_other_words"] == [run["user_sees"]] * 3


def test_the_users_reset_works_and_does_not_hide_the_line(run: dict[str, Any]) -> None:
    current, peak = run["line_with_reset"][0]
    assert run["user_after_reset"] == current
    assert peak - current >= 120 * MB


def test_an_unknown_device_is_tensorflows_own_error(run: dict[str, Any]) -> None:
    assert run["errors"] == ["No matching devices found for 'GPU:7'"] * 2
    assert run["tracebacks_with_us"] == [False, False]


def test_tracing_a_graph_is_told_from_running(run: dict[str, Any]) -> None:
    assert run["tracing"] == [False, True, False, False]


def test_versions_are_those_that_are_imported(run: dict[str, Any]) -> None:
    versions, tensorflow = run["version"]
    assert versions["tensorflow"] == tensorflow


def test_the_peak_stays_right_after_the_run_until_the_user_resets_it(run: dict[str, Any]) -> None:
    seen, during, stands_in = run["after_close"]
    assert seen >= during
    assert stands_in
    info, stands_in = run["after_users_reset"]
    assert info["peak"] == info["current"]
    assert not stands_in


def test_names_and_status_remain_after_the_run(run: dict[str, Any]) -> None:
    names, status, found = run["name_after_close"]
    assert names == ["CPU:0"]
    assert "CPU:0" in status
    assert not found


def test_nothing_stays_where_no_peak_was_lowered(run: dict[str, Any]) -> None:
    assert run["left_without_need"] is False


def test_the_correction_goes_when_the_allocator_passes_it(run: dict[str, Any]) -> None:
    needed, peak, stands_in = run["outgrown"]
    assert needed
    assert peak >= 60 * MB
    assert not stands_in


def test_a_new_context_is_noticed(run: dict[str, Any]) -> None:
    assert run["after_context_reset"] == [False, [], []]
    assert run["new_context"] == [True, ["CPU:0"], 1]


def test_a_reading_costs_little(run: dict[str, Any]) -> None:
    # Several times what was measured on a quiet machine: this one may be busy.
    assert run["find_us_without_tf"] < 1
    assert run["find_us"] < 1
    assert run["read_us"] < 5
    assert run["peek_us"] < 5


def test_nothing_but_the_arenas_room_knows_the_devices_name() -> None:
    told = run_python(
        """
import tensorflow as tf
from oommagic.tf import arena, context
from oommagic.tf.allocator import Allocators
arena._DEVICE = "CPU:1"
one = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [one, one])
info, reset = tf.config.experimental.get_memory_info, tf.config.experimental.reset_memory_stats
with tf.device("CPU:1"):
    kept = tf.zeros([1024, 1024])
    watch = Allocators()
    told["found"] = [watch.find(), list(watch.names), watch.limit_bytes("CPU:1")]
    watch.read()
    passing = tf.zeros([20, 1024, 1024])
    del passing
    told["line"] = watch.read()[0]
    told["user"] = info("CPU:1")["peak"]
    # What the library says of each device; of a GPU it is its allocator's limit.
    handle = context.handle_of(context.current_context())
    told["made_with"] = sorted(context.memory_limits(handle))
    reset("CPU:1")
    told["after_reset"] = info("CPU:1")["peak"]
    told["current"] = watch.read()[0][0]
watch.close()
""",
        ARENA,
    )
    assert told["found"] == [True, ["CPU:1"], 256 * MB]
    assert told["made_with"] == [
        f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in (0, 1)
    ]
    assert told["line"][1] - told["line"][0] >= 80 * MB
    assert told["user"] == told["line"][1]
    assert told["after_reset"] == told["current"]


PLAIN = """
import tensorflow as tf
from oommagic.tf import arena
from oommagic.tf.allocator import Allocators
from tensorflow.python.eager import context
kept = tf.zeros([1024, 1024])
watch = Allocators()
told["found"] = [watch.find(), watch.names, watch.read(), watch.limit_bytes("CPU:0")]
told["status"] = watch.status()
watch.close()

arena.trusts = lambda name: True
refused = Allocators()
told["trusted_all_the_same"] = [refused.find(), refused.status()]
refused.close()
told["stands_in"] = "get_memory_info" in vars(context.context())
"""


def test_a_plain_processor_is_not_shown_whatever_onednn_counts() -> None:
    told = run_python(PLAIN, {"TF_ENABLE_ONEDNN_OPTS": "1"})
    assert told["found"] == [False, [], [], None]
    assert told["status"].startswith("TensorFlow has no GPU here and no training device: run")


def test_an_allocator_that_keeps_no_peak_is_said_and_left_alone() -> None:
    told = run_python(PLAIN, {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_GPU_ALLOCATOR": "odd"})
    assert told["found"] == [False, [], [], None]
    found, status = told["trusted_all_the_same"]
    assert not found
    assert status.startswith("TensorFlow's allocator (TF_GPU_ALLOCATOR=odd) keeps no peak")
    assert not told["stands_in"]


# The same random program in a child that nobody watches, and in one where runs open, read, nest
# and close at random: what the program itself reads must be the same.
PROGRAM = """
import os
import tensorflow as tf
from oommagic.tf.allocator import Allocators
info, reset = tf.config.experimental.get_memory_info, tf.config.experimental.reset_memory_stats
watched = os.environ["WATCHED"] == "yes"
held, runs = {}, []
tf.zeros([1])

def watch(verb):
    if verb == "open":
        runs.append([Allocators(), []])
        runs[-1][0].find()
        runs[-1][0].read()
    for run, peaks in runs:
        peaks.append(run.read()[0][1])
    if verb == "close" and runs:
        runs.pop(len(runs) // 2)[0].close()

def answer(steps):
    readings = []
    for verb, number in steps:
        if verb == "hold":
            held[number] = tf.zeros([number + 1, 64, 1024])
        elif verb == "drop":
            held.pop(number, None)
        elif verb == "pass":
            tf.zeros([4 * number + 1, 64, 1024])
        elif verb == "reset":
            reset("CPU:0")
        elif verb == "ask":
            readings.append(info("CPU:0"))
        elif watched:
            watch(verb)
    return [*readings, info("CPU:0")]
"""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "drop", "pass", "reset", "ask", "open", "read", "read", "close"]),
        st.integers(0, 7),
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def twins() -> Iterator[tuple[Conversation, Conversation]]:
    with (
        talk_to_python(PROGRAM, {**ARENA, "WATCHED": "no"}) as alone,
        talk_to_python(PROGRAM, {**ARENA, "WATCHED": "yes"}) as watched,
    ):
        yield alone, watched


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_a_program_reads_the_same_figures_watched_or_not(
    twins: tuple[Conversation, Conversation], steps: list[tuple[str, int]]
) -> None:
    alone, watched = twins
    assert watched.ask(steps) == alone.ask(steps)
