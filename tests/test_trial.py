"""Child processes: how they end, what they leave, and that nothing outlives an interrupt.

What a parcel does when it is opened happens in the child: it is how these children misbehave.
Without TensorFlow in this process the child does not import it either, and starts at once.
"""

import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
from children import ROOT, run_python
from hypothesis import given
from hypothesis import strategies as st
from test_plan_sums import growing, tapes

from oommagic.errors import CannotTravelError, PlanError
from oommagic.explain.plan import Plan
from oommagic.forecasts import Limit
from oommagic.planning import Question
from oommagic.report import BatchTrial
from oommagic.show.plan_view import trial_words
from oommagic.tf.samples import Sample
from oommagic.trial import parent
from oommagic.trial.outcomes import Died, RanOut, Result, TimedOut
from oommagic.trial.wire import Inbox, NotAMessageError, Progress, to_bytes

LIMIT_BYTES = 256 << 20
FOREVER_S = 600


class Does:
    """Calls a function when it is unpacked: in the child."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


def run(*things: object, timeout_s: float = 60) -> Result:
    return parent.run(
        "measure", things, limit_bytes=LIMIT_BYTES, timeout_s=timeout_s, on_progress=print
    )


def wait_until(condition: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + 20
    while not condition() and time.monotonic() < until_s:
        time.sleep(0.02)
    return condition()


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have no process, thread, file or open pipe be there afterwards that was not before."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = what_there_is()
    yield
    # A thread that was not heard to have started when the interrupt came ends of itself.
    assert wait_until(lambda: what_there_is() == before), what_there_is()
    assert list(tmp_path.glob("oommagic-*")) == []


def what_there_is() -> tuple[set[int], int, int]:
    gc.collect()
    me = psutil.Process()
    # A zombie is a child too.
    children = {child.pid for child in me.children(recursive=True)}
    return children, me.num_fds(), threading.active_count()


def plan_tried_with(subject: object) -> Plan:
    """Have a plan proven with what misbehaves in the child."""
    plan = Plan(tapes(growing(11), growing(11)), Limit("the limit", LIMIT_BYTES))
    Question(subject, Sample(()), "step", None, 0).prove(plan, print)
    return plan


def test_a_trial_that_died_is_told_without_steps_that_nobody_saw() -> None:
    (trial,) = plan_tried_with(Does(os.kill, Does(os.getpid), signal.SIGKILL)).forecast.trials
    assert trial_words(trial) == (
        "on a device of 256 MB: the child process died, so nothing is proven. The child process "
        "was killed by the system (SIGKILL): most likely the host's memory ran out."
    )


def test_memory_of_the_machine_that_runs_out_proves_nothing_of_the_device() -> None:
    plan = plan_tried_with(Does(bytearray, 1 << 62))
    (trial,) = plan.forecast.trials
    assert trial.outcome == "failed"
    assert trial.message.startswith("This machine's own memory ran out: MemoryError")
    assert plan.max_batch() >= trial.batch


def test_a_child_that_is_killed_is_said_to_be() -> None:
    assert run(Does(os.kill, Does(os.getpid), signal.SIGKILL)) == Died(
        "was killed by the system (SIGKILL): most likely the host's memory ran out"
    )


def test_a_child_that_crashes_leaves_its_last_words() -> None:
    result = run(Does(os.kill, Does(os.getpid), signal.SIGSEGV))
    assert isinstance(result, Died)
    assert result.how == "crashed (SIGSEGV)"
    assert "Segmentation fault" in result.log


def test_a_child_that_exits_has_not_finished() -> None:
    result = run(Does(exec, "import os; os.write(2, b'so long'); os._exit(0)"))
    assert result == Died("ended by itself, with exit code 0, before it was done", "so long")


def test_a_child_that_hangs_is_ended() -> None:
    began_s = time.monotonic()
    assert run(Does(time.sleep, FOREVER_S), timeout_s=1) == TimedOut(1)
    assert time.monotonic() - began_s < 30


@pytest.mark.parametrize(
    "rubbish", [b"rubbish", b"oommagic" + bytes(8), to_bytes(BatchTrial(1, 2, "fits"))]
)
def test_a_child_that_says_something_else_is_not_believed(rubbish: bytes) -> None:
    code = """
import os
for number in range(3, 50):
    try:
        os.write(number, {rubbish})
    except OSError:
        pass
"""
    code = code.replace("{rubbish}", repr(rubbish * 9))
    result = run(Does(exec, code), Does(time.sleep, FOREVER_S))
    assert isinstance(result, Died)
    assert result.how == "said something that is not an answer"


def test_what_it_prints_is_not_its_answer() -> None:
    code = "import os; print('oommagic' * 9999, flush=True); os._exit(3)"
    result = run(Does(exec, code))
    assert isinstance(result, Died)
    assert "exit code 3" in result.how
    assert result.log.endswith("magicoommagic")
    assert len(result.log) < 5000


def test_it_reads_nothing_of_its_parents_input() -> None:
    result = run(Does(exec, "import os, sys; assert sys.stdin.read() == ''; os._exit(4)"))
    assert isinstance(result, Died)
    assert "exit code 4" in result.how


def test_its_temporary_files_go_with_it(tmp_path: Path) -> None:
    code = "import os, tempfile; os.write(2, tempfile.mkstemp()[1].encode()); os._exit(5)"
    result = run(Does(exec, code))
    assert isinstance(result, Died)
    assert Path(result.log).is_relative_to(tmp_path)
    assert not Path(result.log).exists()


def test_where_nothing_can_be_written_a_sentence_says_so() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(PlanError, match="make room there, or set TMPDIR"):
            run(Does(time.sleep, FOREVER_S))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_running_out_of_host_memory_is_no_error_of_the_users() -> None:
    result = run(Does(bytearray, 1 << 50))
    assert isinstance(result, RanOut)
    assert result.failure.place == "host"


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_DATA")
def test_a_child_cannot_take_all_memory() -> None:
    code = "import resource, os; os.write(2, b'%d' % resource.getrlimit(resource.RLIMIT_DATA)[0])"
    result = run(Does(exec, code + "; os._exit(5)"))
    assert isinstance(result, Died)
    available = psutil.virtual_memory().available
    assert 0 < int(result.log) < available + (1 << 30)


@pytest.mark.skipif(sys.platform != "linux", reason="needs the system's own list of whom to end")
def test_the_system_ends_a_child_before_its_parent() -> None:
    code = "import os; os.write(2, open('/proc/self/oom_score_adj', 'rb').read()); os._exit(5)"
    result = run(Does(exec, code))
    assert isinstance(result, Died)
    assert int(result.log) == 900


def test_what_cannot_be_put_together_again_cannot_travel() -> None:
    with pytest.raises(CannotTravelError, match=r"put together again.*No module named 'nowhere'"):
        run(Does(exec, "import nowhere"))


def test_what_cannot_be_packed_ends_the_child() -> None:
    with pytest.raises(CannotTravelError, match=r"`dict\['sent'\]`, a _MainThread, cannot"):
        run({"sent": threading.current_thread()})


def test_those_that_a_child_has_started_end_with_it(tmp_path: Path) -> None:
    noted = tmp_path / "number"
    code = (
        "import os, subprocess, sys\n"
        "one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(noted)!r}, 'w').write(str(one.pid)); os._exit(6)"
    )
    assert isinstance(run(Does(exec, code)), Died)
    assert is_gone(int(noted.read_text()))


def is_gone(number: int) -> bool:
    """Wait until there is no such process; one that nobody waits for may stay as a zombie."""
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        try:
            if psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    noted = tmp_path / "number"
    code = (
        "import os\n"
        f"with open({str(noted)!r}, 'w') as file:\n    file.write(str(os.getpid()))\n"
        f"os.rename({str(noted)!r}, {str(noted)!r} + '-whole')"
    )
    program = (
        "import sys, tempfile, time\n"
        f"sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "from test_trial import Does, run\n"
        f"run(Does(exec, {code!r}), Does(time.sleep, 600))\n"
    )
    kernel = subprocess.Popen([sys.executable, "-c", program])
    whole = Path(f"{noted}-whole")
    while not whole.exists():
        assert kernel.poll() is None
        time.sleep(0.02)
    kernel.kill()
    kernel.wait()
    assert is_gone(int(whole.read_text()))
    assert wait_until(lambda: not list(tmp_path.glob("oommagic-*")))


@pytest.mark.parametrize("after_ms", range(5, 400, 25))
def test_an_interrupt_goes_on_and_leaves_nothing(after_ms: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, after_ms / 1000)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(Does(time.sleep, FOREVER_S))
    finally:
        signal.signal(signal.SIGALRM, before)


_LINES_OF = [ROOT / "oommagic" / "trial" / f"{n}.py" for n in ("parent", "parcel", "keeper")]


class InterruptsOnce:
    """Raises an interrupt at the so-manieth line of ours that the main thread runs."""

    def __init__(self, at: int) -> None:
        self.seen = 0
        self._at = at

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if Path(frame.f_code.co_filename) not in _LINES_OF:
            return None
        if event in {"call", "line"}:
            self.seen += 1
            if self.seen == self._at:
                raise KeyboardInterrupt
        return self


def lines_of_a_run(interrupted_at: int) -> int:
    """Run a child that ends at once, and give how many lines of ours that took."""
    tracer = InterruptsOnce(interrupted_at)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        run(Does(os._exit, 7))
    except KeyboardInterrupt:
        sys.settrace(before)
        # What came between the last two lines is not waited for, but ends of itself.
        assert wait_until(lambda: threading.active_count() == 1 or not psutil.Process().children())
    finally:
        sys.settrace(before)
    return tracer.seen


@pytest.mark.long
def test_an_interrupt_at_any_line_leaves_nothing(tmp_path: Path) -> None:
    before = what_there_is()
    lines = lines_of_a_run(0)
    for line in range(1, lines + 1):
        lines_of_a_run(line)
        assert wait_until(lambda: what_there_is() == before), line
        assert wait_until(lambda: not list(tmp_path.glob("oommagic-*"))), line
    assert lines > 50


@given(st.lists(st.text(), max_size=5), st.integers(1, 40))
def test_messages_come_through_in_pieces_of_any_size(texts: list[str], size: int) -> None:
    sent = b"".join(to_bytes(Progress(text)) for text in texts)
    inbox = Inbox()
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    assert [message.text for piece in pieces for message in inbox.messages(piece)] == texts


@pytest.mark.parametrize(
    "hostile", [Does(os.system, "exit 1"), Does(eval, "1"), parent.run, Path()]
)
def test_a_message_makes_nothing_but_our_values(hostile: object) -> None:
    with pytest.raises(NotAMessageError):
        list(Inbox().messages(to_bytes(hostile)))


@pytest.mark.slow_once
@pytest.mark.of_tensorflow
def test_steps_run_in_a_child_or_say_what_went_wrong() -> None:
    told = run_python("""
import keras, numpy as np, os, tensorflow as tf
from oommagic.errors import OommagicError
from oommagic.tf.samples import from_arrays
from oommagic.trial.parent import run

x, y = np.ones((4, 8), "float32"), np.ones((4, 1), "float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("adam", "mse")
lines = []
def tried(*things, task="measure", limit_bytes=256 << 20):
    result = run(task, things, limit_bytes=limit_bytes, timeout_s=90, on_progress=lines.append)
    return type(result).__name__, result

def broken(x, y):
    raise ValueError("the labels have the wrong shape")

name, result = tried(model, from_arrays((x, y)), "training", None, (), task="tapes")
told["tapes"] = name, len(result.value.steps), result.value.made is not None
told["lines"] = lines
name, result = tried(model, from_arrays((x, y)), "training", 16, 2)
told["measure"] = name, result.value[0]
name, result = tried(broken, from_arrays((x, y)), "step", 4, 1)
told["broken"] = name, result.error_type, result.message, "in broken" in result.traceback
told["is_untouched"] = not model.built
""")
    assert told["tapes"][0] == "Finished"
    assert told["tapes"][1] > 3
    assert told["tapes"][2]
    assert told["lines"]
    assert told["measure"][0] == "Finished"
    assert told["measure"][1] > 0
    assert told["broken"] == ["Raised", "ValueError", "the labels have the wrong shape", True]
    assert told["is_untouched"]


@pytest.mark.long
@pytest.mark.of_tensorflow
def test_a_device_that_is_too_small_runs_out_in_the_child() -> None:
    told = run_python("""
import numpy as np, tensorflow as tf
from oommagic.tf.samples import from_arrays
from oommagic.trial.parent import run

def step(x):
    return tf.ones((1024, 1024, 200)) + tf.reduce_sum(x)

things = (step, from_arrays((np.ones((4, 1), "float32"),)), "step", 4, 1)
result = run("measure", things, limit_bytes=64 << 20, timeout_s=90, on_progress=print)
told["result"] = type(result).__name__, result.failure.place, result.failure.limit_bytes
told["peak"] = result.peak_bytes
""")
    assert told["result"] == ["RanOut", "device", 64 << 20]
    assert told["peak"] <= 64 << 20
