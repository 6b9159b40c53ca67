"""Gathering the evidence never stands in the way of the cell or of its report."""

import sys
import time
from contextlib import nullcontext
from types import ModuleType

import pytest
from children import ARENA, run_after_import
from staging import SMALL_HOST

from oommagic.measure.evidence import Witness
from oommagic.measure.settrace import _Resume

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.both_ends]

_STEP = """
import os, tempfile
import tensorflow as tf
import oommagic
x = tf.ones((64, 64))
step = tf.function(lambda x: tf.reduce_sum(x @ x))
step(x)
"""


def test_without_a_folder_to_write_to_there_is_a_report_that_says_what_is_missing() -> None:
    told = run_after_import(
        _STEP
        + """
tempfile.tempdir = os.path.join(os.getcwd(), "this folder does not exist")
with oommagic.profile() as run:
    step(x)
told["kind"], told["notes"] = run.report.outcome.kind, run.report.notes
told["variable"] = os.system("test -z \\"$TF_BFC_MEMORY_DUMP\\"")
""",
        ARENA,
    )
    assert told["kind"] == "finished"
    assert "What TensorFlow's profiler recorded could not be written." in told["notes"]
    assert told["variable"] == 0


def test_names_of_classes_of_any_making_do_not_cost_the_report() -> None:
    told = run_after_import(
        _STEP
        + """
from tensorflow import Variable
from keras.layers import Layer

class Maker(type):
    def __eq__(cls, other):  # and so without a hash
        raise AssertionError

class Made(metaclass=Maker):
    pass

made = Made()
with oommagic.profile() as run:
    step(x)
told["owners"] = [one.owner for one in run.report.compositions[0].holdings]
""",
        ARENA,
    )
    assert "x" in told["owners"]


def test_an_interrupt_while_the_tape_is_read_is_said_in_one_line_and_leaves_nothing() -> None:
    told = run_after_import(
        _STEP
        + """
import contextlib, glob, io, signal, time
from oommagic.magics import open_shell
shell = open_shell()
hoard = [[[] for _ in range(20_000)] for _ in range(9)]  # to look through it takes a while
shell.user_ns.update(step=step, x=x, signal=signal, hoard=hoard)
signal.signal(signal.SIGALRM, signal.default_int_handler)
cell = "%%oomprofile -q\\nstep(x)\\nsignal.setitimer(signal.ITIMER_REAL, 0.03)\\nNone"
shown = io.StringIO()
with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
    shell.run_cell(cell)
told["shown"] = shown.getvalue()
told["folders"] = glob.glob(f"{tempfile.gettempdir()}/oommagic-{os.getpid()}-*")
told["variable"] = os.system("test -z \\"$TF_BFC_MEMORY_DUMP\\"")
""",
        ARENA,
    )
    assert "interrupted before the report was shown" in told["shown"]
    assert "Traceback" not in told["shown"]
    assert told["folders"] == []
    assert told["variable"] == 0


def test_a_pause_that_an_interrupt_kept_from_beginning_ends_without_a_word() -> None:
    begun_by_half = _Resume.__new__(_Resume)
    begun_by_half.__del__()  # Python would print an error of it


def test_an_interrupt_at_any_moment_reaches_the_program_and_leaves_nothing() -> None:
    told = run_after_import(
        _STEP
        + """
import contextlib, glob, io, signal, sys, time
signal.signal(signal.SIGALRM, signal.default_int_handler)
def state():
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "screen": os.fstat(2).st_ino,
        "folders": glob.glob(f"{tempfile.gettempdir()}/oommagic-{os.getpid()}-*"),
        "hook": sys.unraisablehook is sys.__unraisablehook__,
        "variable": os.system("test -z \\"$TF_BFC_MEMORY_DUMP\\""),
    }
with oommagic.profile():
    step(x)
before, said = state(), io.StringIO()
told["left"], told["interrupted"] = [], 0
for moment in range(40):
    try:
        with contextlib.redirect_stderr(said), oommagic.profile():
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + moment * 0.0005)
            for _ in range(30):
                step(x)
            time.sleep(1)
    except KeyboardInterrupt:
        told["interrupted"] += 1
    told["left"] += [state()] if state() != before else []
told["said"] = said.getvalue()
with oommagic.profile() as run:
    step(x)
told["taped"] = [each.source for each in run.report.compositions]
""",
        ARENA,
    )
    assert told == {"left": [], "interrupted": 40, "said": "", "taped": ["tape"]}


def test_while_a_run_lasts_an_error_is_what_it_is_without_one() -> None:
    told = run_after_import(
        _STEP
        + """
import copy, inspect, pickle
Error = tf.errors.ResourceExhaustedError
class Own(Error):
    def __init__(self, words):
        super().__init__(None, None, words)
        self.words = words
    def __str__(self):
        return self.words.upper()
class Failing(Error):
    def __str__(self):
        raise ZeroDivisionError
def what_it_is():
    words = "OOM when allocating tensor with shape[9] and type float on CPU:0 by allocator bfc"
    made = Error({"node": 1}, None, words, {"why": 2})
    twins = [pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)]
    return [
        *[[str(one), one.message, one.node_def, type(one) is Error] for one in twins],
        str(Own("small")), Failing(None, None, "").message, str(inspect.signature(Error)),
    ]
told["without"] = what_it_is()
with oommagic.profile() as run:
    told["within"] = what_it_is()
told["noticed"] = run.report.verdict.cause if run.report.verdict else ""
""",
        ARENA,
    )
    assert told["within"] == told["without"]
    assert told["noticed"]


def test_memory_that_ran_out_is_the_matter_though_another_error_came_of_it() -> None:
    told = run_after_import(
        _STEP
        + """
words = "OOM when allocating tensor with shape[9] and type float on CPU:0 by allocator GPU_0_bfc"
try:
    with oommagic.profile() as run:
        try:
            raise tf.errors.ResourceExhaustedError(None, None, words)
        except tf.errors.ResourceExhaustedError:
            pass
        print(result)
except NameError as error:
    told["outcome"] = run.report.outcome.error_type
told["failure"] = run.report.verdict.failure.asked_bytes
told["line"] = run.report.verdict.line_source
""",
        ARENA,
    )
    assert told["outcome"] == "NameError"
    assert told["failure"] == 36
    assert told["line"] in {"", "raise tf.errors.ResourceExhaustedError(None, None, words)"}


def test_what_the_last_error_about_memory_still_holds_has_a_name_in_the_next_run() -> None:
    told = run_after_import(
        _STEP
        + """
from oommagic.magics import open_shell
shell = open_shell()
words = "OOM when allocating tensor with shape[9] and type float on CPU:0 by allocator GPU_0_bfc"
shell.push({"tf": tf, "step": step, "x": x, "words": words})
shell.run_cell('''
def fails():
    hoard = tf.zeros((1024, 1024))
    raise tf.errors.ResourceExhaustedError(None, None, words)
fails()
''')
shell.run_cell("%%oomprofile -q\\nfor _ in range(9):\\n    step(x)")
(found,) = oommagic.last_report().compositions
told["owners"] = {one.owner: one.bytes for one in found.holdings if one.kind != "rounding"}
""",
        ARENA,
    )
    assert told["owners"]["hoard in fails, by the last error"] == 4 << 20


def test_what_goes_wrong_once_steps_have_run_again_is_not_for_want_of_memory() -> None:
    told = run_after_import(
        _STEP
        + """
words = "OOM when allocating tensor with shape[9] and type float on CPU:0 by allocator GPU_0_bfc"
def is_explained(*and_then):
    try:
        with oommagic.profile() as run:
            try:
                raise tf.errors.ResourceExhaustedError(None, None, words)
            except tf.errors.ResourceExhaustedError:
                pass
            for do in and_then:
                do()
    except (NameError, KeyboardInterrupt):
        pass
    return run.report.verdict is not None and run.report.verdict.failure is not None
def train_on():
    step(x)
def use_result():
    print(result)
def interrupt():
    raise KeyboardInterrupt
told["at once"] = is_explained(use_result)
told["later"] = is_explained(train_on, use_result)
told["an interrupt"] = is_explained(interrupt)
told["an end"] = is_explained(train_on)
""",
        ARENA,
    )
    assert told == {"at once": True, "later": False, "an interrupt": False, "an end": True}


class ExhaustedError(Exception):
    """Has TensorFlow's words, as its own error does, whose place it takes."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self._message = message


@pytest.mark.parametrize(("between_s", "is_explained"), [(0.0, True), (0.2, False)])
def test_where_calls_are_not_counted_what_goes_wrong_later_is_not_for_want_of_memory(
    monkeypatch: pytest.MonkeyPatch, *, between_s: float, is_explained: bool
) -> None:
    module = ModuleType("errors_impl")
    monkeypatch.setattr(module, "ResourceExhaustedError", ExhaustedError, raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow.python.framework.errors_impl", module)
    monkeypatch.setattr("oommagic.measure.evidence._AT_ONCE_S", 0.1)
    witness = Witness({}, 0, 0.0, lambda _work: nullcontext())
    witness.begin()
    ExhaustedError("OOM when allocating tensor with shape[9] and type float on CPU:0 by GPU_0_bfc")
    time.sleep(between_s)
    evidence = witness.end(0.0, NameError("result"))
    witness.close()
    assert (evidence.failure is not None) == is_explained


def test_after_the_program_s_own_profiler_what_goes_wrong_later_is_not_for_want_of_memory() -> None:
    told = run_after_import(
        _STEP
        + """
import time
words = "OOM when allocating tensor with shape[9] and type float on CPU:0 by allocator GPU_0_bfc"
def is_explained(seconds):
    try:
        with oommagic.profile() as run:
            tf.profiler.experimental.start(tempfile.mkdtemp())
            tf.profiler.experimental.stop()
            try:
                raise tf.errors.ResourceExhaustedError(None, None, words)
            except tf.errors.ResourceExhaustedError:
                pass
            step(x)
            time.sleep(seconds)
            print(result)
    except NameError:
        pass
    return run.report.verdict is not None and run.report.verdict.failure is not None
told["later"] = is_explained(2.5)
""",
        ARENA,
    )
    assert told == {"later": False}


@pytest.mark.long  # two failures of ten seconds each
def test_a_child_process_that_runs_out_does_not_write_into_the_run_s_own_dumps() -> None:
    told = run_after_import(
        _STEP
        + """
import glob, subprocess, sys
child = '''
import os, sys
import tensorflow as tf
try:
    tf.zeros((2**30,))
except tf.errors.ResourceExhaustedError:
    sys.exit(3)
'''
with oommagic.profile() as run:
    told["child"] = subprocess.run([sys.executable, "-c", child]).returncode
    (folder,) = glob.glob(f"{tempfile.gettempdir()}/oommagic-{os.getpid()}-*")
    told["of the child"] = os.listdir(folder)
    try:
        tf.zeros((2**30,))
    except tf.errors.ResourceExhaustedError:
        told["own"] = len(os.listdir(folder)) > 0
""",
        ARENA,
    )
    assert told == {"child": 3, "of the child": [], "own": True}


def test_the_folders_of_a_process_that_was_killed_go_at_the_next_start() -> None:
    told = run_after_import(
        _STEP
        + """
import glob, signal, subprocess, sys
child = '''
import os, signal
import oommagic
with oommagic.profile():
    os.kill(os.getpid(), signal.SIGKILL)
'''
killed = subprocess.Popen([sys.executable, "-c", child])
told["ended"] = killed.wait() == -signal.SIGKILL
of_the_child = f"{tempfile.gettempdir()}/oommagic-{killed.pid}-*"
told["left"] = len(glob.glob(of_the_child))
with oommagic.profile():
    pass
told["left at the next start"] = len(glob.glob(of_the_child))
""",
        ARENA,
    )
    assert told == {"ended": True, "left": 1, "left at the next start": 0}


def test_oomwhy_answers_while_the_host_is_still_full() -> None:
    told = run_after_import(
        SMALL_HOST
        + """
import contextlib, gc, io
import numpy as np, tensorflow as tf
from oommagic.magics import open_shell
shell = open_shell()
shell.push({"np": np, "x": tf.ones((64, 64))})
gc.disable()  # it would look through all of these again and again
objects = [[] for _ in range(4_000_000)]  # a list of them all takes 32 MB
def ask():
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        shell.run_cell("%oomwhy")
    return " ".join(said.getvalue().split())
with small_host(200), contextlib.redirect_stdout(io.StringIO()):
    shell.run_cell("images = np.ones((1000, 256, 256, 3), 'float32')", store_history=True)
    hoard = []
    with contextlib.suppress(MemoryError):
        while True:
            hoard.append(np.ones(2**20))
    told["full"] = ask()
    del hoard[:3]
    told["with 24 MB"] = ask()
"""
    )
    assert "Host memory is held to" in told["with 24 MB"]
    assert "images = np.ones((1000, 256, 256, 3), 'float32')" in told["with 24 MB"]
    assert "Host memory is held to" in told["full"] or "no room to say why" in told["full"]
