"""What must reach the user's own code, and what must be done in the main thread."""

import ctypes
import functools
import sys
from _thread import interrupt_main
from collections import deque
from collections.abc import Callable
from typing import Any

_asked: deque[Callable[[], None]] = deque()


class InterruptLater:
    """Interrupts the user's code when the callback that holds this has ended.

    A KeyboardInterrupt that is raised inside a callback would show our lines to the user, and
    would make Python take the trace function away. A local variable lives until the callback
    has run its last instruction, and so the next one that can be interrupted is the user's.
    """

    __slots__ = ()
    __del__ = staticmethod(interrupt_main)


class InterruptsPassedOn:
    """While this stands, no interrupt is lost in a callback that has nobody to raise it to.

    Python looks for interrupts at the entry of each function, before any `try` of ours. What
    `__del__` or a callback from C raises there, Python only prints.
    """

    def __init__(self, *callbacks: object) -> None:
        """Watch over these callbacks, beside our own one from C."""
        self._callbacks = (*callbacks, _answer)
        self._hook = self._pass_on
        self._before: Callable[[Any], object] = sys.unraisablehook

    def start(self) -> None:
        """Hear what Python cannot raise."""
        self._before = sys.unraisablehook
        sys.unraisablehook = self._hook

    def stop(self) -> None:
        """Give the hook back, unless the cell has set one of its own."""
        if sys.unraisablehook is self._hook:
            sys.unraisablehook = self._before

    def _pass_on(self, unraisable: Any) -> None:
        is_ours = any(unraisable.object is callback for callback in self._callbacks)
        if is_ours and unraisable.exc_type is KeyboardInterrupt:
            _later = InterruptLater()
        else:
            self._before(unraisable)


def ask_main_thread(call: Callable[[], None]) -> None:
    """Have something done by the main thread, between two instructions of what it runs now."""
    _asked.append(call)
    ctypes.pythonapi.Py_AddPendingCall(_answer_from_c(), None)


@functools.cache
def _answer_from_c() -> object:
    # Made once and kept for good: nobody can tell when Python is done with it.
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_answer)


def _answer(_: object) -> int:
    try:
        while _asked:
            _asked.popleft()()
    except KeyboardInterrupt:
        _later = InterruptLater()
    return 0
