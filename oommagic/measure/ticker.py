"""One quiet thread: it samples the lanes, and lets the engine hear silenced lines again."""

import _thread
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import filterfalse

TICK_S = 0.05


class Ticker:
    """Calls a function at each tick until it is stopped."""

    def __init__(self, on_tick: Callable[[int], None]) -> None:
        self._on_tick = on_tick
        self._running = _thread.allocate_lock()
        self._starting = _thread.allocate_lock()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the thread, outside the `threading` module's list of the program's threads."""
        # The cell may list, count or join threads: it must find its own alone.
        self._running.acquire()
        self._starting.acquire()
        _thread.start_new_thread(self._run, ())
        self._starting.acquire()

    def stop(self) -> None:
        """End the thread and wait until it is gone."""
        if self._running.locked():  # else an error has ended it, and it was stopped once before
            self._running.release()
        self._stopped.wait()

    def _run(self) -> None:
        pulse = iter(partial(self._running.acquire, True, TICK_S), True)  # noqa: FBT003 (blocking)
        ticks = enumerate(_unprofiled(pulse))
        # The cell, which may profile itself, begins when nothing is left to call here.
        self._starting.release()
        try:
            for count, _ in ticks:
                self._on_tick(count)
        finally:
            self._stopped.set()


def _unprofiled(pulse: Iterator[bool]) -> Iterator[object]:
    """Leave out the ticks at which the cell profiles itself.

    From Python 3.12 on cProfile hears the calls of all threads. Waiting and looking are written
    in C from end to end, so that it doesn't hear ours.
    """
    if sys.version_info < (3, 12):
        return pulse
    monitoring = sys.monitoring
    asked = map({False: monitoring.PROFILER_ID}.__getitem__, pulse)
    return filterfalse(monitoring.get_tool, asked)
