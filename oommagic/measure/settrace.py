"""Which line is running, by `sys.settrace` (Python 3.11, and on request elsewhere).

A trace function is called for each call of any Python function, and TensorFlow makes
hundreds of them per step. So where a watched line calls code that is not watched, tracing is
switched off until that call returns: what brings it back is the death of the call's frame,
which owns a small object whose end switches tracing on again.

That is only right where nothing watched can run inside the call, and where the frame does die
(a traceback keeps it alive). Lines in a `try`, and cells that define functions, which a library
may call back, are therefore switched off only after they were quiet several times, and looked
at again in each tick. Should tracing stay off although the call is over, because somebody keeps
its frame, the next tick finds that out and has the main thread switch it on.

Tracing costs even where no line is listened to. So when all lines that can run are silenced, it
is switched off until the next tick.
"""

import sys
import threading
from _thread import get_ident
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from oommagic.measure.interrupts import InterruptLater, InterruptsPassedOn, ask_main_thread
from oommagic.measure.ledger import Ledger
from oommagic.measure.quiet_calls import QuietCalls
from oommagic.measure.watched_code import WatchedCode, outlives_call, running_frame_ids
from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_Trace = Callable[[FrameType, str, Any], Any]


class _Resume:
    """Owned by the frame of a call during which tracing is off; its end switches it on."""

    __slots__ = ("_engine", "_thread")

    def __init__(self, engine: "SettraceEngine") -> None:
        self._engine = engine
        self._thread = get_ident()

    def __call__(self, *_: object) -> "_Resume":
        """Do nothing, should somebody else switch tracing on meanwhile."""
        return self

    def __del__(self) -> None:
        # Another thread may have looked at the frame, and be the last to let it go; and an
        # interrupt may have come before it was known which one it is of.
        if get_ident() == getattr(self, "_thread", None):
            self._engine.resume()


_END_OF_PAUSE = _Resume.__del__.__code__


class _Pause:
    """Whether tracing is off just now, and since which call."""

    __slots__ = ("_count", "_count_at_tick", "among_others", "frame_id", "is_on", "is_until_tick")

    def __init__(self) -> None:
        self.is_on = self.is_until_tick = self.among_others = False
        self.frame_id = self._count = self._count_at_tick = 0

    def begin(self, frame: FrameType, *, among_others: bool, until_tick: bool = False) -> None:
        """Begin with the call of a frame; `among_others` if other lines may follow its line."""
        self.is_on, self.is_until_tick = True, until_tick
        self.frame_id = id(frame)
        self.among_others = among_others
        self._count += 1

    def end(self) -> None:
        self.is_on = self.is_until_tick = False

    def has_outlasted_tick(self) -> bool:
        """Say whether it is the same one as at the tick before this one."""
        is_same = self.is_on and self._count == self._count_at_tick
        self._count_at_tick = self._count
        return is_same


class SettraceEngine:
    """Listens to the lines and returns of the watched code's frames."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._at_line = ledger.at_line
        self._watched = WatchedCode()
        self._quiet_calls = QuietCalls(self._watched)
        self._pause = _Pause()
        self._is_active = self._is_recovering = False
        # Python takes a trace function away that fails for want of stack.
        self._may_have_lost_hook = False
        # Code that is so hot that new frames of it are not listened to before the next tick.
        self._silent: set[int] = set()
        self._adopted: list[tuple[FrameType, Any]] = []
        self._thread = get_ident()
        self._is_in_main_thread = self._thread == threading.main_thread().ident
        self._threads_before: Any = None
        self._interrupts = InterruptsPassedOn(_Resume.__del__)
        # Bound once: a trace function is compared and stored often.
        self._trace: _Trace = self._on_call
        self._trace_lines: _Trace = self._on_event

    def start(self) -> None:
        """Take the hook, in this thread and in those that the cell starts."""
        self._is_active = True
        self._interrupts.start()
        self._threads_before = threading.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def watch(self, code: CodeType, guarded_lines: frozenset[int]) -> None:
        """Report the lines of one code object from now on."""
        self._watched.add(code, guarded_lines)
        # A cell magic compiles its body during a call, which may be paused. And a pause may have
        # ended unheard, together with the statement that it was in.
        if get_ident() == self._thread and sys.gettrace() is None:
            self._recover(were_lines_lost=self._pause.is_on and self._pause.among_others)

    def adopt(self, frame: FrameType) -> None:
        """Report the lines of a frame that runs already."""
        self._adopted.append((frame, frame.f_trace))
        frame.f_trace = self._trace_lines

    def statement_failed(self) -> None:
        """End a pause that the error's traceback keeps from ending: no line can follow it."""
        if get_ident() == self._thread and sys.gettrace() is None:
            self._recover(were_lines_lost=False)

    def tick(self, *, silenced: bool) -> None:
        """Hear silenced frames again, and look again into calls that were quiet."""
        self._quiet_calls.tick()
        if silenced:
            self._silent.clear()
            for frame in self._watched.running_frames():
                frame.f_trace = self._trace_lines
                frame.f_trace_lines = True
        if self._pause.is_until_tick:
            ask_main_thread(self._wake)
        may_be_lost = self._pause.has_outlasted_tick() or self._may_have_lost_hook
        if may_be_lost and self._is_in_main_thread:
            ask_main_thread(self._resume_if_lost)

    def resume(self) -> None:
        """Switch tracing on again, unless somebody else has taken the hook."""
        if self._is_active and sys.gettrace() is None:
            self._pause.end()
            sys.settrace(self._trace)

    def _wake(self) -> None:
        if self._pause.is_until_tick:
            self.resume()

    def stop(self) -> str:
        """Give the hook back; say so if somebody else took it."""
        note = self._give_back()
        self._is_active = False
        self._interrupts.stop()
        for frame, before in self._adopted:
            frame.f_trace = before
            frame.f_trace_lines = True
        for held in (self._watched, self._quiet_calls, self._adopted):
            held.clear()
        return note

    def _give_back(self) -> str:
        if threading.gettrace() == self._trace:
            threading.settrace(self._threads_before)
        if sys.gettrace() == self._trace:
            sys.settrace(None)
        elif sys.gettrace() is not None:
            return (
                "The cell set a trace function of its own (a debugger or a coverage tool): "
                "lines after that were not measured."
            )
        elif not self._pause.is_on:
            return (
                "Tracing was switched off in the cell (by an interrupt, by a RecursionError, or by "
                "sys.settrace): the lines that followed were not measured."
            )
        return ""

    def _resume_if_lost(self) -> None:
        """Switch tracing on again where the end of a pause went by unheard.

        The frame of a call outlives the call when somebody keeps it, say in an error's traceback.
        """
        was_lost = self._pause.is_on and self._pause.frame_id not in running_frame_ids()
        if self._is_active and (was_lost or self._may_have_lost_hook):
            self._recover(were_lines_lost=True)

    def _recover(self, *, were_lines_lost: bool) -> None:
        """Switch tracing on, and take leave of frames that ended meanwhile.

        What a tick asks of the main thread may come in the middle of this: it is being done.
        """
        if self._is_recovering:
            return
        self._is_recovering = True
        try:
            self._may_have_lost_hook = False
            self._ledger.forget_ended(running_frame_ids(), were_lines_lost=were_lines_lost)
        finally:
            self._is_recovering = False
        self.resume()

    def _on_call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        try:
            return self._hear_call(frame)
        except KeyboardInterrupt:
            _later = InterruptLater()
            return self._trace_lines if id(frame.f_code) in self._watched.by_id else None
        except RecursionError:  # there is no stack left for any call: the user's own one follows
            self._may_have_lost_hook = True
            return None

    def _hear_call(self, frame: FrameType) -> Any:
        if not self._is_active:
            self._let_go()
            return None
        code, watched = frame.f_code, self._watched
        if id(code) in watched.by_id:
            return self._enter(frame)
        self._quiet_calls.calls_heard += 1
        caller = frame.f_back
        if caller is None or id(caller.f_code) not in watched.by_id or outlives_call(code):
            return None
        # The end of a pause is a call, too: pausing for it would go on forever.
        if code is _END_OF_PAUSE or get_ident() != self._thread:
            return None
        if not self._quiet_calls.is_quiet(caller):
            return None
        self._pause.begin(frame, among_others=watched.has_several_lines[id(caller.f_code)])
        sys.settrace(None)
        return _Resume(self)

    def _sleep(self, frame: FrameType) -> None:
        """Hear nothing until the next tick: neither lines nor functions are left to be heard."""
        if get_ident() == self._thread:
            self._pause.begin(frame, among_others=False, until_tick=True)
            sys.settrace(None)

    def _let_go(self) -> None:
        """Leave a thread, or a generator, that outlives the cell; a hook of others stays."""
        if sys.gettrace() == self._trace:
            sys.settrace(None)

    def _enter(self, frame: FrameType) -> _Trace | None:
        self._quiet_calls.led_home()
        code_id = id(frame.f_code)
        if code_id in self._silent:
            return None
        if outlives_call(frame.f_code):
            self._ledger.at_line(id(frame), code_id, frame.f_lineno, hit=0)
        return self._trace_lines

    def _on_event(self, frame: FrameType, event: str, _arg: object) -> _Trace | None:
        """Hear a line or a return; after the program's own work each further call is dear."""
        try:
            if not self._is_active:
                self._let_go()
                return None
            if event == "line":
                if self._at_line(id(frame), id(frame.f_code), frame.f_lineno):
                    self._silence(frame)
            elif event == "return":
                self._ledger.left(id(frame))
        except KeyboardInterrupt:
            _later = InterruptLater()
        except RecursionError:
            self._may_have_lost_hook = True
        return self._trace_lines

    def _silence(self, frame: FrameType) -> None:
        """Hear no line of this code until the next tick."""
        code_id = id(frame.f_code)
        self._ledger.darken(code_id)
        self._silent.add(code_id)
        frame.f_trace_lines = False
        if not self._watched.may_be_called_back and self._is_in_main_thread:
            self._sleep(frame)
