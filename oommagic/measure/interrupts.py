"""What must reach the user's own code, and what must be done in the main thread."""

import ctypes
import functools
from _thread import interrupt_main
from collections import deque
from collections.abc import Callable

_asked: deque[Callable[[], None]] = deque()


class InterruptLater:
    """Interrupts the user's code when the callback that holds this has ended.

    A KeyboardInterrupt that is raised inside a callback would show our lines to the user, and
    would make Python take the trace function away. A local variable lives until the callback
    has run its last instruction, and so the next one that can be interrupted is the user's.
    """

    __slots__ = ()
    __del__ = staticmethod(interrupt_main)


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
