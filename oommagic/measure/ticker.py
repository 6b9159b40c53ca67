"""One quiet thread: it samples the lanes, and lets the engine hear silenced lines again."""

import _thread
import threading
from collections.abc import Callable

TICK_S = 0.05


class Ticker:
    """Calls a function at each tick until it is stopped."""

    def __init__(self, on_tick: Callable[[int], None]) -> None:
        self._on_tick = on_tick
        self._stopping = threading.Event()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the thread, outside the `threading` module's list of the program's threads."""
        # The cell may list, count or join threads: it must find its own alone.
        _thread.start_new_thread(self._run, ())

    def stop(self) -> None:
        """End the thread and wait until it is gone."""
        self._stopping.set()
        self._stopped.wait()

    def _run(self) -> None:
        count = 0
        try:
            while not self._stopping.wait(TICK_S):
                self._on_tick(count)
                count += 1
        finally:
            self._stopped.set()
