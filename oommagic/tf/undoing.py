"""What must be put back in any case, however many interrupts there are and whenever they come.

Python raises an interrupt at the entry of any function of ours, before any `try` in it: also at
the entry of the one that puts things back. So the one that stands for the time of `Undoing` does
not raise it there, but when all has been put back.
"""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Self

from oommagic.own_builtins import keep_builtins

keep_builtins(globals())


class Undoing:
    """Within `with`; at its end all of these are done, the last first."""

    def __init__(self, *undoings: Callable[[], object]) -> None:
        """Do nothing yet."""
        self._undoings = undoings
        self._before: Any = None
        self._is_watching = self._is_held_back = False

    def __enter__(self) -> Self:
        if current_thread() is main_thread():  # no other thread is interrupted
            self._before = signal.getsignal(signal.SIGINT)
            self._is_watching = callable(self._before)
        if self._is_watching:
            signal.signal(signal.SIGINT, self._interrupted)
        if self._is_held_back:
            self._stop_watching()
            raise KeyboardInterrupt
        return self

    def __exit__(self, *error: object) -> None:
        try:
            with ExitStack() as stack:
                for undo in self._undoings:
                    stack.callback(undo)
        finally:
            self._stop_watching()
        if self._is_held_back:
            signal.raise_signal(signal.SIGINT)

    def _stop_watching(self) -> None:
        if self._is_watching:
            self._is_watching = False
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if _is_in_ours(frame):
            self._is_held_back = True
        else:
            self._before(number, frame)


_OURS = frozenset({Undoing.__enter__.__code__, Undoing.__exit__.__code__})


def _is_in_ours(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _OURS:
            return True
        frame = frame.f_back
    return False
