"""Real kernels under test: start one, run a cell as a front end does, see what came back."""

import ast
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parent
PATIENCE_S = 30
NATIVE_THREAD_ENDS_WITHIN_S = 1
MAGIC = "%%oomprofile"

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Output:
    """One thing that a front end is told to show, made comparable between two kernels."""

    kind: str
    content: Mapping[str, object]
    is_report: bool = False
    is_remark: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether it is oommagic's and not the cell's."""
        return self.is_report or self.is_remark


@dataclass(frozen=True, slots=True)
class Ran:
    """What came back from running a cell."""

    outputs: tuple[Output, ...]
    prompts: tuple[str, ...]
    reply: Mapping[str, object]
    changes: Mapping[str, object] = field(default_factory=dict)

    @property
    def own_outputs(self) -> tuple[Output, ...]:
        """What the user's cell displayed: everything but the report."""
        return _merged(output for output in self.outputs if not output.is_ours)

    @property
    def reports(self) -> tuple[Output, ...]:
        """The reports among the outputs."""
        return tuple(output for output in self.outputs if output.is_report)

    @property
    def remarks(self) -> tuple[Output, ...]:
        """The sentences that say why there is no report."""
        return tuple(output for output in self.outputs if output.is_remark)

    @property
    def count(self) -> int:
        """The number that IPython gave to the cell."""
        number = self.reply["execution_count"]
        assert isinstance(number, int)
        return number

    @property
    def text(self) -> str:
        """Everything that can be read in the outputs, reports included."""
        return "\n".join(_readable(output) for output in self.outputs)


class Kernel:
    """A running ipykernel with its own directory, spoken to as a front end speaks to it."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        """Start the kernel, but do not wait for it."""
        self.directory = directory
        self.preparations: tuple[str, ...] = ()
        beside = str(directory.parent / directory.name)
        self.manager = KernelManager(
            transport="ipc", ip=f"{beside}-ipc", connection_file=f"{beside}.json"
        )
        self.manager.start_kernel(
            cwd=str(directory),
            env=environment_of(directory, environment),
            extra_arguments=["--HistoryManager.hist_file=:memory:"],
        )
        self.client = self.manager.client()
        self.client.start_channels()

    def wait(self) -> None:
        """Return once the kernel answers."""
        self.client.wait_for_ready(timeout=PATIENCE_S)
        # The first large message starts a thread of ZeroMQ's: let it be there from the start.
        self.run("print('large' * 40_000)")

    def prepare(self, *sources: str) -> None:
        """Run cells that must succeed in silence, now and again after each new start."""
        self.preparations += sources
        for source in sources:
            ran = self.run(source)
            assert ran.reply["status"] == "ok", ran
            assert ran.outputs == (), ran

    def start_again(self) -> None:
        """Replace a kernel that does not answer any more by a new one."""
        preparations, self.preparations = self.preparations, ()
        self.manager.restart_kernel(now=True)
        self.wait()
        self.prepare(*preparations)

    def run(self, source: str, answers: Iterable[str] = (), interrupt_at: str = "") -> Ran:
        """Run a cell; answer what it asks; interrupt it once it has shown `interrupt_at`."""
        exchange = _Exchange(self, iter(answers), interrupt_at)
        reply = self.client.execute_interactive(
            source,
            allow_stdin=True,
            stop_on_error=False,  # or older kernels refuse what is asked next
            timeout=PATIENCE_S,
            output_hook=exchange.on_output,
            stdin_hook=exchange.on_question,
        )
        return exchange.result(reply["content"])

    def run_watched(self, source: str, answers: Iterable[str] = (), interrupt_at: str = "") -> Ran:
        """Run a cell and tell also what it changed in the kernel."""
        before = self.state()
        ran = self.run(source, answers, interrupt_at)
        return Ran(ran.outputs, ran.prompts, ran.reply, self._changes_since(before))

    def _changes_since(self, before: Mapping[str, object]) -> Mapping[str, object]:
        """Look again for a while: a thread that was joined is gone from Python first."""
        deadline = time.monotonic() + NATIVE_THREAD_ENDS_WITHIN_S
        while True:
            changes = _changes(before, self.state())
            if "interpreter: native threads" not in changes or time.monotonic() > deadline:
                return changes

    def state(self) -> Mapping[str, object]:
        """Say what the kernel holds just now; the question itself leaves no trace."""
        question = {"state": "__import__('kernel_state').snapshot()"}
        reply = self.client.execute_interactive(
            "", silent=True, user_expressions=question, timeout=PATIENCE_S, output_hook=_ignore
        )
        answer = reply["content"]["user_expressions"]["state"]
        assert answer["status"] == "ok", answer
        state = json.loads(ast.literal_eval(answer["data"]["text/plain"]))
        return {self.comparable(key): self.comparable(value) for key, value in state.items()}

    def comparable(self, value: Any) -> Any:
        """Take out what differs from kernel to kernel: directories, ids, addresses, times."""
        if isinstance(value, str):
            return _comparable_text(value.replace(str(self.directory), "<directory>"))
        if isinstance(value, dict):
            return {self.comparable(key): self.comparable(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.comparable(item) for item in value]
        return value

    def stop(self) -> None:
        """End the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@contextmanager
def running_kernels(count: int = 1, **environment: str) -> Iterator[tuple[Kernel, ...]]:
    """Start kernels side by side, and end them."""
    with tempfile.TemporaryDirectory() as directory:
        kernels = []
        try:
            for number in range(count):
                home = Path(directory, f"kernel_{number}")
                home.mkdir()
                kernels.append(Kernel(home, environment))
            for kernel in kernels:
                kernel.wait()
            yield tuple(kernels)
        finally:
            for kernel in kernels:
                kernel.stop()


@contextmanager
def running_pair(extension: str, **environment: str) -> Iterator[tuple[Kernel, Kernel]]:
    """Start a kernel, and another one with an extension loaded into it."""
    with running_kernels(2, **environment) as (plain, extended):
        plain.prepare("pass")
        extended.prepare(f"%load_ext {extension}")
        yield plain, extended


@dataclass(slots=True)
class _Exchange:
    """The talk about one request, from the front end's side."""

    kernel: Kernel
    answers: Iterator[str]
    interrupt_at: str
    outputs: list[Output] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)

    def on_output(self, message: Message) -> None:
        """Keep what is shown, and interrupt when it is time to."""
        kind, content = message["msg_type"], message["content"]
        if kind in ("status", "execute_input", "shutdown_reply"):
            return
        self.outputs.append(self._output(kind, content))
        if self.interrupt_at and self.interrupt_at in str(content.get("text")):
            self.interrupt_at = ""
            self.kernel.manager.interrupt_kernel()

    def on_question(self, message: Message) -> None:
        """Answer a question with the next answer; an empty line when there is none left."""
        self.prompts.append(self.kernel.comparable(message["content"]["prompt"]))
        self.kernel.client.input(next(self.answers, ""))

    def result(self, reply: Message) -> Ran:
        """Put it all together."""
        kept = ("status", "ename", "evalue", "traceback", "payload", "execution_count")
        outcome = {key: self.kernel.comparable(reply[key]) for key in kept if key in reply}
        return Ran(_merged(self.outputs), tuple(self.prompts), outcome)

    def _output(self, kind: str, content: Message) -> Output:
        is_report = kind == "display_data" and _is_report(content["data"])
        is_remark = kind == "stream" and bool(_REMARK.match(content["text"]))
        if kind == "comm_open":
            state = content["data"].get("state", {})
            content = {"target": content["target_name"], "model": state.get("_model_name")}
        return Output(kind, self.kernel.comparable(content), is_report, is_remark)


def final_view(outputs: Iterable[Output]) -> tuple[Output, ...]:
    """Say what stays on the screen: a `clear_output` takes away what stood before it."""
    shown: list[Output] = []
    is_clear_pending = False
    for output in outputs:
        if output.kind.startswith(("comm", "update")):
            continue
        if output.kind == "clear_output":
            is_clear_pending = True
            if output.content["wait"]:
                continue
        if is_clear_pending:
            shown.clear()
            is_clear_pending = False
        if output.kind != "clear_output":
            shown.append(output)
    return _merged(shown)


def _is_report(data: Mapping[str, str]) -> bool:
    return bool(re.search(r"class=.?oommagic", data.get("text/html", "")))


def _merged(outputs: Iterable[Output]) -> tuple[Output, ...]:
    """Join what a kernel happened to send in several pieces, and in any order of its streams."""
    merged: list[Output] = []
    for flows, group in groupby(outputs, _flows):
        neighbours = list(group)
        merged += _streams(neighbours) if flows else neighbours
    return tuple(merged)


def _flows(output: Output) -> bool:
    return output.kind == "stream" and not output.is_ours


def _streams(outputs: Iterable[Output]) -> Iterator[Output]:
    """Give each stream whole: a kernel sends them one by one, each when it likes."""
    texts: dict[str, str] = {}
    for output in outputs:
        name = str(output.content["name"])
        texts[name] = f"{texts.get(name, '')}{output.content['text']}"
    for name in sorted(texts):
        yield Output("stream", {"name": name, "text": texts[name]})


def _readable(output: Output) -> str:
    if output.kind == "error":
        return "\n".join(map(str, _sequence(output.content["traceback"])))
    data = output.content.get("data")
    if isinstance(data, dict):
        return str(data.get("text/plain", ""))
    return str(output.content.get("text", ""))


def _sequence(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


def _changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    keys = sorted({*before, *after})
    pairs = ((key, before.get(key, "absent"), after.get(key, "absent")) for key in keys)
    changes = {key: _change(old, new) for key, old, new in pairs if old != new}
    return {key: change for key, change in changes.items() if change != {}}


def _change(old: object, new: object) -> object:
    """Say what came and what went: the rest may differ between two kernels."""
    if isinstance(old, dict) and isinstance(new, dict):
        # These are counts of open files. ZeroMQ closes some of its own when it likes.
        return {
            key: count - old.get(key, 0) for key, count in new.items() if count > old.get(key, 0)
        }
    if isinstance(old, int | float) and isinstance(new, int | float):
        return new - old
    if not (isinstance(old, list) and isinstance(new, list)):
        return [old, new]
    gone = [item for item in old if item not in new]
    came = [item for item in new if item not in old]
    return {"gone": gone, "came": came, "length": len(new) - len(old)}


_REMARK = re.compile(rf"{MAGIC}( -o)?: |{MAGIC} must ")
_REPLACEMENTS = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(rf"{MAGIC}( --engine \w+)?(\n|\\n|$)"), ""),
    (re.compile(r"/[\w/.-]*/ipykernel_\d+/\d+\.py"), "<cell>"),
    (re.compile(r"\b\d{5,}\.py"), "<cell>"),
    (re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>"), r"<cell \1>"),
    # Before the addresses: a random file name may have 0x in it.
    (re.compile(r"__autograph_generated_file\w+"), "<generated>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}"), "<id>"),
    (re.compile(r"<id>_\d+_\d+"), "<id>"),
    (re.compile(r"pid=\d+"), "pid=<number>"),
    (re.compile(r"Thread-\d+"), "Thread-<number>"),
    (re.compile(r"Task-\d+"), "Task-<number>"),
    (re.compile(r"(?<![\w.])\d+(\.\d+)?(e[+-]?\d+)? (ns|µs|μs|us|ms|s|min)\b"), "<time>"),
)


def _comparable_text(text: str) -> str:
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text


def environment_of(directory: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Say which environment a kernel gets: it finds our code, and no settings of this machine."""
    paths = [str(REPOSITORY), str(TESTS / "in_kernel"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONHASHSEED": "0",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "IPYTHONDIR": str(directory.parent / f"{directory.name}_ipython"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        **extra,
    }


def _ignore(_message: Message) -> None:
    """Take no notice."""
