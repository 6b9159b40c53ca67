"""Holds back what TensorFlow logs about its profiler, which the user did not start.

It writes to the process's standard error itself. All of that is held back for the moment, and
what is somebody else's is passed on afterwards.
"""

import os
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from io import FileIO
from threading import Lock

from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_STANDARD_ERROR = 2
# TensorFlow's lines about a profiler that starts and stops, by the files that they name.
_ITS_LINES = (b"profiler_session.cc", b"save_profile.cc", b"session_manager.cc")


# A thread that saves a tape may be at it while another one begins: the second would take the
# first one's file for the screen, and leave it there. Where the turn does not come, lines show.
_TURN = Lock()
_LONGEST_WAIT_S = 2.0
# `release` with an argument, which `map` passes.
_GIVE_BACK: Callable[[bool], None] = _TURN.__exit__  # type: ignore[assignment] # it takes any


class Hush:
    """Within `with`, what the process writes to its standard error is held back.

    An interrupt may come between any two of our lines. `end` finishes what it has cut short.
    """

    def __init__(self) -> None:
        """Hold nothing back yet."""
        # The screen, as it was, and the file that stands in for it; empty while there is none.
        self._screen: list[FileIO] = []
        self._held: list[FileIO] = []
        self._turns: list[bool] = []

    def __enter__(self) -> None:
        with ExitStack() as undoing:
            undoing.callback(self.end)
            self.end()
            # Closed, and nobody sees anything; or no more files can be opened.
            with suppress(OSError):
                self._begin()
            undoing.pop_all()

    def __exit__(self, *error: object) -> None:
        self.end()

    def _begin(self) -> None:
        # From opening to keeping, each is one call into C: no interrupt can lose what was opened.
        self._turns.extend(filter(None, map(_TURN.acquire, (True,), (_LONGEST_WAIT_S,))))
        if not self._turns:
            return
        self._screen.extend(map(FileIO, map(os.dup, (_STANDARD_ERROR,)), ("wb",)))
        self._held.extend(map(FileIO, map(os.memfd_create, ("oommagic",)), ("r+b",)))
        os.dup2(self._held[0].fileno(), _STANDARD_ERROR)

    def end(self) -> None:
        """Give the screen back, with what is not TensorFlow's; once more does no harm."""
        for screen in self._screen:
            if not screen.closed:
                os.dup2(screen.fileno(), _STANDARD_ERROR)
                for held in self._held:
                    _pass_on(held, screen)
        # The screen first: once it is closed, all was passed on.
        for file in (*self._screen, *self._held):
            file.close()
        self._screen.clear()
        self._held.clear()
        # Again one call into C: the turn is given back, and only once.
        with suppress(IndexError):
            deque(map(_GIVE_BACK, iter(self._turns.pop, None)), maxlen=0)


def _pass_on(held: FileIO, screen: FileIO) -> None:
    held.seek(0)
    lines = held.readall().splitlines(keepends=True)
    others = b"".join(line for line in lines if not any(name in line for name in _ITS_LINES))
    with suppress(OSError):
        while others:
            others = others[os.write(screen.fileno(), others) :]
