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

import inspect
import sys
import threading
from _thread import get_ident
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from oommagic.measure.interrupts import InterruptLater, InterruptsPassedOn, ask_main_thread
from oommagic.measure.ledger import Ledger
from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_PAUSABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_getframe = sys._getframe  # noqa: SLF001 (bound once: the cell may rebind it)

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

    def __call__(self, *_: object) -> "_Resume":
        """Do nothing, should somebody else switch tracing on meanwhile."""
        return self

    def __del__(self) -> None:
        # Another thread may have looked at the frame, and be the last to let it go.
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
        # Looked up at every pause: whether code has several lines.
        self._has_other_lines: dict[int, bool] = {}
        self._may_be_called_back = False
        self._sites: dict[tuple[int, int], _Site] = {}
        self._site: _Site | None = None
        self._calls = 0
        self._tick = 0
        self._is_active = self._is_paused = self._is_asleep = self._is_recovering = False
        # Python takes a trace function away that fails for want of stack.
        self._may_have_lost_hook = False
        self._paused_among_others = False
        self._paused_frame_id = self._pauses = self._pauses_before_tick = 0
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
        self._watched[id(code)] = code
        self._guarded[id(code)] = guarded_lines
        self._has_other_lines[id(code)] = len({line for _, _, line in code.co_lines() if line}) > 1
        self._may_be_called_back |= _is_function(code)
        # A cell magic compiles its body during a call, which may be paused. And a pause may have
        # ended unheard, together with the statement that it was in.
        if get_ident() == self._thread and sys.gettrace() is None:
            self._recover(were_lines_lost=self._is_paused and self._paused_among_others)

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
        self._tick += 1
        if silenced:
            self._silent.clear()
            for frame in self._running_frames():
                frame.f_trace = self._trace_lines
                frame.f_trace_lines = True
        if self._is_asleep:
            ask_main_thread(self._wake)
        same_pause = self._is_paused and self._pauses == self._pauses_before_tick
        self._pauses_before_tick = self._pauses
        if (same_pause or self._may_have_lost_hook) and self._is_in_main_thread:
            ask_main_thread(self._resume_if_lost)

    def resume(self) -> None:
        """Switch tracing on again, unless somebody else has taken the hook."""
        if self._is_active and sys.gettrace() is None:
            self._is_paused = self._is_asleep = False
            sys.settrace(self._trace)

    def _wake(self) -> None:
        if self._is_asleep:
            self.resume()

    def stop(self) -> str:
        """Give the hook back; say so if somebody else took it."""
        note = self._give_back()
        self._is_active = False
        self._interrupts.stop()
        for frame, before in self._adopted:
            frame.f_trace = before
            frame.f_trace_lines = True
        for held in (
            self._watched,
            self._guarded,
            self._has_other_lines,
            self._sites,
            self._adopted,
        ):
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
        elif not self._is_paused:
            return (
                "Tracing was switched off in the cell (by an interrupt, by a RecursionError, or by "
                "sys.settrace): the lines that followed were not measured."
            )
        return ""

    def _resume_if_lost(self) -> None:
        """Switch tracing on again where the end of a pause went by unheard.

        The frame of a call outlives the call when somebody keeps it, say in an error's traceback.
        """
        was_lost = self._is_paused and self._paused_frame_id not in _frame_ids()
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
            self._ledger.forget_ended(_frame_ids(), were_lines_lost=were_lines_lost)
        finally:
            self._is_recovering = False
        self.resume()

    def _on_call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        try:
            return self._hear_call(frame)
        except KeyboardInterrupt:
            _later = InterruptLater()
            return self._trace_lines if id(frame.f_code) in self._watched else None
        except RecursionError:  # there is no stack left for any call: the user's own one follows
            self._may_have_lost_hook = True
            return None

    def _hear_call(self, frame: FrameType) -> Any:
        if not self._is_active:
            self._let_go()
            return None
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
        self._pause(frame, among_others=self._has_other_lines[id(caller.f_code)])
        return _Resume(self)

    def _pause(self, frame: FrameType, *, among_others: bool) -> None:
        self._is_paused = True
        self._paused_frame_id = id(frame)
        self._paused_among_others = among_others
        self._pauses += 1
        sys.settrace(None)

    def _sleep(self, frame: FrameType) -> None:
        """Hear nothing until the next tick: neither lines nor functions are left to be heard."""
        if get_ident() == self._thread:
            self._is_asleep = True
            self._pause(frame, among_others=False)

    def _let_go(self) -> None:
        """Leave a thread, or a generator, that outlives the cell; a hook of others stays."""
        if sys.gettrace() == self._trace:
            sys.settrace(None)

    def _enter(self, frame: FrameType) -> _Trace | None:
        if self._site:
            self._site.led_home = True
        code_id = id(frame.f_code)
        if code_id in self._silent:
            return None
        if _outlives_call(frame.f_code):
            self._ledger.at_line(id(frame), code_id, frame.f_lineno, hit=0)
        return self._trace_lines

    def _on_event(self, frame: FrameType, event: str, _arg: object) -> _Trace | None:
        try:
            return self._hear_event(frame, event)
        except KeyboardInterrupt:
            _later = InterruptLater()
        except RecursionError:
            self._may_have_lost_hook = True
        return self._trace_lines

    def _hear_event(self, frame: FrameType, event: str) -> _Trace | None:
        if not self._is_active:
            self._let_go()
            return None
        code_id = id(frame.f_code)
        if event == "line":
            if self._ledger.at_line(id(frame), code_id, frame.f_lineno):
                self._ledger.darken(code_id)
                self._silent.add(code_id)
                frame.f_trace_lines = False
                if not self._may_be_called_back and self._is_in_main_thread:
                    self._sleep(frame)
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
        for innermost in list(sys._current_frames().values()):  # noqa: SLF001 (no public way)
            frame: FrameType | None = innermost
            while frame is not None:
                if id(frame.f_code) in self._watched:
                    yield frame
                frame = frame.f_back


def _frame_ids() -> set[int]:
    """Name the frames that this thread is in."""
    found: set[int] = set()
    frame: FrameType | None = _getframe()
    while frame is not None:
        found.add(id(frame))
        frame = frame.f_back
    return found


def _is_function(code: CodeType) -> bool:
    """Whether a library may call this code; a comprehension runs where it stands."""
    return bool(code.co_flags & inspect.CO_NEWLOCALS) and code.co_name not in _COMPREHENSIONS


def _outlives_call(code: CodeType) -> bool:
    """Whether frames of this code pause and go on: their end is not the end of a call."""
    return bool(code.co_flags & _PAUSABLE)
