"""Which line is running, by `sys.settrace` (Python 3.11, and on request elsewhere).

A trace function is called for each call of any Python function, and TensorFlow makes
hundreds of them per step. So where a watched line calls code that is not watched, tracing is
switched off until that call returns: what brings it back is the death of the call's frame,
which owns a small object whose end switches tracing on again.

That is only right where nothing watched can run inside the call, and where the frame does die
(a traceback keeps it alive). Lines in a `try`, and cells that define functions, which a library
may call back, are therefore switched off only after they were quiet several times, and looked
at again in each tick.
"""

import inspect
import sys
import threading
from _thread import get_ident
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from oommagic.measure.ledger import Ledger

_PAUSABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_QUIET_VISITS_BEFORE_PAUSE = 3
# Pausing costs about as much as tracing this many calls.
_CALLS_WORTH_A_PAUSE = 8

_Trace = Callable[[FrameType, str, Any], Any]


class _Resume:
    """Owned by the frame of a call during which tracing is off; its end switches it on."""

    __slots__ = ("_engine", "_thread")

    def __init__(self, engine: "SettraceEngine") -> None:
        self._engine = engine
        self._thread = get_ident()

    def __call__(self, frame: FrameType, event: str, arg: object) -> "_Resume":
        """Do nothing, should somebody else switch tracing on meanwhile."""
        return self

    def __del__(self) -> None:
        if get_ident() == self._thread:
            self._engine.resume()


_END_OF_PAUSE = _Resume.__del__.__code__


class _Site:
    """A call in watched code: how often in a row it led to nothing that is watched."""

    __slots__ = ("led_home", "quiet_visits", "tick")

    def __init__(self) -> None:
        self.quiet_visits = 0
        self.led_home = False
        self.tick = -1


class SettraceEngine:
    """Listens to the lines and returns of the watched code's frames."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._watched: dict[int, CodeType] = {}
        self._guarded: dict[int, frozenset[int]] = {}
        self._may_be_called_back = False
        self._sites: dict[tuple[int, int], _Site] = {}
        self._site: _Site | None = None
        self._calls = 0
        self._tick = 0
        self._is_active = self._is_paused = False
        self._thread = get_ident()
        self._threads_before: Any = None
        # Bound once: a trace function is compared and stored often.
        self._trace: _Trace = self._on_call
        self._trace_lines: _Trace = self._on_event

    def start(self) -> None:
        """Take the hook, in this thread and in those that the cell starts."""
        self._is_active = True
        self._threads_before = threading.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def watch(self, code: CodeType, guarded_lines: frozenset[int]) -> None:
        """Report the lines of one code object from now on."""
        self._watched[id(code)] = code
        self._guarded[id(code)] = guarded_lines
        self._may_be_called_back |= bool(code.co_flags & inspect.CO_NEWLOCALS)
        # A cell magic compiles its body during a call, which may be paused.
        if get_ident() == self._thread:
            self.resume()

    def adopt(self, frame: FrameType) -> None:
        """Report the lines of a frame that runs already."""
        frame.f_trace = self._trace_lines

    def tick(self, *, silenced: bool) -> None:
        """Hear silenced frames again, and look again into calls that were quiet."""
        self._tick += 1
        if silenced:
            for frame in self._running_frames():
                frame.f_trace_lines = True

    def resume(self) -> None:
        """Switch tracing on again, unless somebody else has taken the hook."""
        if self._is_active and sys.gettrace() is None:
            self._is_paused = False
            sys.settrace(self._trace)

    def stop(self) -> str:
        """Give the hook back; say so if somebody else took it."""
        self._is_active = False
        if threading.gettrace() == self._trace:
            threading.settrace(self._threads_before)
        if sys.gettrace() == self._trace:
            sys.settrace(None)
        elif not self._is_paused:
            return (
                "The cell set a trace function of its own (a debugger or a coverage tool): "
                "lines after that were not measured."
            )
        return ""

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if id(code) in self._watched:
            return self._enter(frame)
        self._calls += 1
        caller = frame.f_back
        if caller is None or id(caller.f_code) not in self._watched or _outlives_call(code):
            return None
        # The end of a pause is a call, too: pausing for it would go on forever.
        if code is _END_OF_PAUSE or get_ident() != self._thread or not self._is_quiet(caller):
            return None
        self._is_paused = True
        sys.settrace(None)
        return _Resume(self)

    def _enter(self, frame: FrameType) -> _Trace:
        if self._site:
            self._site.led_home = True
        if _outlives_call(frame.f_code):
            self._ledger.at_line(id(frame), id(frame.f_code), frame.f_lineno, hit=0)
        return self._trace_lines

    def _on_event(self, frame: FrameType, event: str, arg: object) -> _Trace:
        if event == "line":
            if self._ledger.at_line(id(frame), id(frame.f_code), frame.f_lineno):
                self._ledger.darken(id(frame.f_code))
                frame.f_trace_lines = False
        elif event == "return":
            self._ledger.left(id(frame))
        return self._trace_lines

    def _is_quiet(self, caller: FrameType) -> bool:
        """Whether nothing watched can run inside this call, as far as one can know."""
        code_id = id(caller.f_code)
        if not self._may_be_called_back and caller.f_lineno not in self._guarded[code_id]:
            return True
        self._judge_last_visit()
        site = self._sites.setdefault((code_id, caller.f_lasti), _Site())
        if site.quiet_visits >= _QUIET_VISITS_BEFORE_PAUSE and site.tick == self._tick:
            return True
        site.tick, site.led_home = self._tick, False
        self._site, self._calls = site, 0
        return False

    def _judge_last_visit(self) -> None:
        if self._site is None:
            return
        if self._site.led_home:
            self._site.quiet_visits = 0
        elif self._calls >= _CALLS_WORTH_A_PAUSE:
            self._site.quiet_visits += 1
        self._site = None

    def _running_frames(self) -> Iterator[FrameType]:
        for innermost in list(sys._current_frames().values()):
            frame: FrameType | None = innermost
            while frame is not None:
                if id(frame.f_code) in self._watched:
                    yield frame
                frame = frame.f_back


def _outlives_call(code: CodeType) -> bool:
    """Whether frames of this code pause and go on: their end is not the end of a call."""
    return bool(code.co_flags & _PAUSABLE)
