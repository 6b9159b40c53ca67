"""Notices that TensorFlow ran out of memory where a cell catches the error, as most advice does.

While a run lasts, a method of ours stands where TensorFlow's `ResourceExhaustedError` has its
own, calls it, and notes the message and the lines that ran. The error itself is never held.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from inspect import signature
from time import perf_counter, time
from types import FrameType
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.report import Failure
from oommagic.tf.culprits import Frame
from oommagic.tf.failures import failure_from_message
from oommagic.tf.looking import attributes_of

keep_builtins(globals())

_MODULE = "tensorflow.python.framework.errors_impl"
_ERROR = "ResourceExhaustedError"
_METHOD = "__init__"
_MESSAGE = "_message"
_MOST_FRAMES = 500
# Keras and a context make an error anew at once; the next failure takes its ten seconds.
_ONE_FAILURE_S = 8.0


class CaughtErrors:
    """The errors of one run: `begin`, `tick` until TensorFlow is there, `end`."""

    def __init__(self, steps: Callable[[], int] = int) -> None:
        """Notice nothing yet; `steps` counts those that the program has made."""
        self._steps = steps
        self._steps_then = 0
        self._class: Any = None
        self._ours: Any = None
        self._last: tuple[str, tuple[Frame, ...]] | None = None
        self._last_s = 0.0
        self.before_last_s = 0.0
        """When the failure before the last one ended, by the system's clock."""
        self.noticed_s = 0.0
        """When the last one was made, by the clock of the run."""

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that ran when the last one was made, outermost first."""
        return tuple(frame.function for frame in self._last[1]) if self._last is not None else ()

    def begin(self) -> None:
        """Stand in, if TensorFlow has been imported."""
        module = sys.modules.get(_MODULE)
        kind = getattr(module, _ERROR, None)
        if self._class is None and isinstance(kind, type) and _METHOD in vars(kind):
            self._ours = self._noticing(vars(kind)[_METHOD])
            self._class = kind
            setattr(kind, _METHOD, self._ours)

    tick = begin

    def end(self) -> None:
        """Put TensorFlow's method back, unless somebody has put another one there."""
        kind, self._class = self._class, None
        if kind is not None and vars(kind).get(_METHOD) is self._ours:
            setattr(kind, _METHOD, self._ours.__wrapped__)

    @property
    def ended_it(self) -> bool:
        """Whether memory ran out, and no step was made after that."""
        return self.last() is not None and self._steps() <= self._steps_then

    def last(self) -> Failure | None:
        """Give the last one that was about memory."""
        if self._last is None:
            return None
        message, calls = self._last
        return failure_from_message(_ERROR, message, calls)

    def _noticing(self, method: Any) -> Any:
        @wraps(method)
        def note_and_make(error: Any, *args: Any, **kwargs: Any) -> None:
            method(error, *args, **kwargs)
            with suppress(MemoryError):  # there may be no room for a note
                self._note(error, sys._getframe(1))  # noqa: SLF001 (no public way)

        # An error tells pickle what it is made of by the names of what this method takes.
        note_and_make.__signature__ = signature(method)  # type: ignore[attr-defined]
        return note_and_make

    def _note(self, error: object, frame: FrameType) -> None:
        # Not `str(error)`: a subclass of the user's may have its own, and is not made yet.
        message = attributes_of(error).get(_MESSAGE)
        if type(message) is str and failure_from_message(_ERROR, message, ()) is not None:
            self._steps_then = self._steps()
            self._last = message, tuple(_calls(frame))
            self.noticed_s = perf_counter()
            self._note_time(time())

    def _note_time(self, now_s: float) -> None:
        if now_s - self._last_s > _ONE_FAILURE_S:
            self.before_last_s = self._last_s
        self._last_s = now_s


def _calls(frame: FrameType | None) -> list[Frame]:
    """List the lines that run, outermost first."""
    found: list[Frame] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        code = frame.f_code
        found.append(Frame(code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return found[::-1]
