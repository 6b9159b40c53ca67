"""Which engine tells the lines apart: chosen in one place, with the reason as a sentence."""

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Protocol

from oommagic.errors import UsageError
from oommagic.measure.ledger import Ledger
from oommagic.measure.sampling import SamplingEngine
from oommagic.measure.settrace import SettraceEngine
from oommagic.report import Engine

if sys.version_info >= (3, 12):
    from oommagic.measure.monitoring import MonitoringEngine, free_tool_id

ENGINES = ("auto", "monitoring", "settrace", "memory-profiler")


class LineEngine(Protocol):
    """Tells the ledger which line of which watched code runs."""

    def start(self) -> None:
        """Take the interpreter's hook."""

    def watch(self, code: CodeType, guarded_lines: frozenset[int]) -> None:
        """Report the lines of one code object from now on."""

    def adopt(self, frame: FrameType) -> None:
        """Report the lines of a frame that runs already; its code is watched."""

    def statement_failed(self) -> None:
        """An error has ended the statement that ran, and is about to be shown."""

    def tick(self, *, silenced: bool) -> None:
        """Some time has passed; hear silenced lines again. Called from the ticker's thread."""

    def stop(self) -> str:
        """Give the hook back; say in a sentence if somebody else took it meanwhile."""


Choice = tuple[Engine, Callable[[Ledger], LineEngine]]


def choose(requested: str) -> Choice:
    """Return which engine to use and why, and how to make it."""
    if requested not in ENGINES:
        raise UsageError(f"There is no engine {requested!r}; there are {', '.join(ENGINES)}.")
    if requested == "memory-profiler":
        return _memory_profiler()
    if requested == "settrace":
        return _settrace("asked for")
    if requested == "monitoring":
        return _monitoring("asked for")
    if sys.version_info >= (3, 12):
        return _monitoring("Python 3.12 or newer")
    return _settrace("Python 3.11 has no sys.monitoring")


def _monitoring(why: str) -> Choice:
    if sys.version_info < (3, 12):
        raise UsageError(
            f"--engine monitoring needs Python 3.12 or newer, and this kernel runs Python "
            f"{sys.version_info.major}.{sys.version_info.minor}. Leave --engine away."
        )
    tool_id = free_tool_id()
    if tool_id is None:
        return _settrace("other tools hold all free ids of sys.monitoring")
    return Engine("monitoring", why), lambda ledger: MonitoringEngine(ledger, tool_id)


def _settrace(why: str) -> Choice:
    holder = sys.gettrace()
    if holder is None:
        return Engine("settrace", why), SettraceEngine
    name = getattr(holder, "__module__", None) or type(holder).__module__
    reason = (
        f"{name} holds the trace hook, so lines were only looked at from outside, 20 times a "
        "second: short lines are missing and figures are shared out"
    )
    return Engine("sampling", reason), SamplingEngine


def _memory_profiler() -> Choice:
    from oommagic.measure.mprof import MemoryProfilerEngine

    why = "asked for; it reads memory after each line and misses what a line frees"
    return Engine("memory-profiler", why), MemoryProfilerEngine
