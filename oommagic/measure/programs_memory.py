"""The host's figures without what our own work amid the program takes of them, and gives back."""

from collections.abc import Iterator
from contextlib import contextmanager

from oommagic.measure.host import HostMeter
from oommagic.own_builtins import keep_builtins
from oommagic.tf.heap import OwnWork

keep_builtins(globals())


class ProgramsMemory:
    """A meter of the host's memory as it would be without our work, as far as that can be known."""

    def __init__(self, meter: HostMeter) -> None:
        """Leave nothing out yet."""
        self.source, self.is_exact = meter.source, meter.is_exact
        self.start, self.close = meter.start, meter.close
        self._meter = meter
        self._work: OwnWork | None = None
        # Negative after work that gave back more than it took: the program would have kept that.
        self._ours = 0
        self._most_ours = 0
        self._own = 0

    def read(self) -> tuple[int, int, int]:
        """Give own bytes, file bytes, and the peak of own bytes since the last reading."""
        own, files, peak = self._meter.read()
        ours = self._ours_now()
        most_ours, self._most_ours = max(self._most_ours, ours), ours
        before, self._own = self._own, own - ours
        return self._own, files, max(before, self._own, peak - most_ours)

    def peek(self) -> tuple[int, int]:
        """Give own bytes and file bytes, and leave the peak as it is."""
        own, files = self._meter.peek()
        return own - self._ours_now(), files

    @contextmanager
    def without(self, work: OwnWork) -> Iterator[None]:
        """Leave out what this work takes in here, and from then on what it gave back.

        A peak is told apart by its reading alone: one is due before this, and one after it.
        """
        self._work = work
        try:
            yield
        finally:
            self._work = None
            self._most_ours = max(self._most_ours, self._ours + work.took_bytes)
            self._ours -= work.gave_back_bytes

    def _ours_now(self) -> int:
        return self._ours if self._work is None else self._ours + self._work.took_bytes
