"""How many allocations a recording holds while it runs. Nobody tells, so it is made out.

While a function runs, many quick looks at the allocator's figure show how often it changes.
A function that ran between two such looks shows by how much the heap grew, which may be its
kernels' own memory too: so that figure only decides whether another step is recorded.

The first call of a function prepares its graph, and takes nothing of the device for long.
"""

from collections.abc import Callable
from time import perf_counter

from oommagic.own_builtins import keep_builtins
from oommagic.tf.heap import heap_meter
from oommagic.units import KIB

keep_builtins(globals())

# So many looks take a fifth of a millisecond.
_LOOKS = 200
# What the profiler takes of the heap for one allocation or free, with what else it records.
_HEAP_BYTES_EACH = 700
# A graph that is being prepared holds no more than some constants.
_CONSTANTS_BYTES = 64 * KIB


class TapeSize:
    """An estimate, in allocations and frees."""

    def __init__(self, in_use: Callable[[], int]) -> None:
        """`in_use` tells what the devices' allocators have handed out."""
        self._in_use = in_use
        self._heap = heap_meter()
        self._heap_before = 0
        self._in_use_before = 0
        self._prepares = self._has_changed = self._has_prepared = False
        self._looked_s = perf_counter()
        self._events_before_call = 0.0
        self._events = 0.0

    @property
    def events(self) -> int:
        """The estimate."""
        return int(self._events)

    @property
    def changed_bytes(self) -> int:
        """How much the function that runs has taken until now, or given back."""
        return abs(self._in_use() - self._in_use_before)

    def begin_again(self) -> None:
        """Forget what was recorded so far."""
        self._looked_s = perf_counter()
        self._events = self._events_before_call = 0.0

    def call_began(self, *, is_first: bool) -> None:
        """A function begins, perhaps for the first time."""
        self._looked_s = perf_counter()
        self._events_before_call = self._events
        self._prepares, self._has_changed, self._has_prepared = is_first, False, False
        self._in_use_before = self._in_use()
        self._heap_before = self._heap() if self._heap else 0

    def call_ended(self) -> None:
        """A function has run."""
        if self._heap is not None and not self._has_prepared:
            grown = max(0, self._heap() - self._heap_before) / _HEAP_BYTES_EACH
            self._events = max(self._events, self._events_before_call + grown)
        self._looked_s = perf_counter()

    def prepares(self) -> bool:
        """Say whether the function that runs still prepares its graph.

        No single look is trusted: preparing tries some of the graph's operations out.
        """
        if self._prepares:
            has_changed = self.changed_bytes > _CONSTANTS_BYTES
            self._prepares = not (has_changed and self._has_changed)
            self._has_changed = has_changed
            self._has_prepared |= not has_changed
            return not has_changed
        return False

    def look(self) -> None:
        """Add what has been recorded since the last look, at the pace of this moment."""
        began_s = perf_counter()
        before, changes = self._in_use(), 0
        for _ in range(_LOOKS):
            now = self._in_use()
            changes += now != before
            before = now
        ended_s = perf_counter()
        self._events += changes * (ended_s - self._looked_s) / (ended_s - began_s)
        self._looked_s = ended_s
