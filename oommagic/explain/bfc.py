"""TensorFlow's BFC allocator, replayed: what it would hand out, and where it would run out.

The rules are those of TensorFlow's best-fit allocator with coalescing. Sizes are rounded up to 256
bytes; the smallest free chunk that is large enough is taken, the lowest of several; it is split if
at least as much again would be left over, or 128 MiB, and else handed out whole; what is freed
joins its free neighbours. A training device on the CPU grows by regions, each twice as large as
the one before, and no chunk reaches over two of them. A GPU's memory is one region by default.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

from oommagic.units import MIB

_GRAIN = 256
_FIRST_REGION = 2 * MIB
_LARGE_SURPLUS = 128 * MIB
# Regions never touch, so chunks of two are never neighbours. A system hands out large pieces of
# memory from the top of the address space down, so that the lowest of several chunks of one size
# is that of the youngest region.
_GAP = 1 << 30
_TOP = 1 << 60
# A free chunk is one number, by which chunks are in order: its size before its address.
_SIZE = 60
_ADDRESS = (1 << _SIZE) - 1
_MOST = 1 << 58
"""No device has more, and addresses stay what they are."""


def rounded(requested_bytes: int) -> int:
    """Give how much is taken for so many bytes, at least."""
    return max(-(-requested_bytes // _GRAIN), 1) * _GRAIN


class Played(NamedTuple):
    """How far a sequence of events came, and the most that was in use after one of them."""

    place: int
    """Of the event that could not be played; behind the last one if all were."""
    peak_bytes: int
    peak_place: int
    """Behind the event after which that was in use."""


class Allocator:
    """An allocator with a limit: `allocate` gives a chunk's address, or None where it runs out."""

    def __init__(self, limit_bytes: int, *, grows: bool) -> None:
        """Begin with nothing handed out; `grows` is whether it takes its memory by regions."""
        self.in_use_bytes = 0
        self._limit = min(limit_bytes, _MOST) // _GRAIN * _GRAIN
        self._region = min(_FIRST_REGION, self._limit) if grows else self._limit
        self._reserved = 0
        self._lowest_region_at = _TOP
        self._sizes: dict[int, int] = {}
        """Of the chunks that are handed out, by address."""
        self._free: list[int] = []
        """The others, in order, and each by where it begins and by where it ends."""
        self._free_from: dict[int, int] = {}
        self._free_to: dict[int, int] = {}

    def copy(self) -> "Allocator":
        """Give another one in the same state."""
        other = copy(self)
        for name in ("_sizes", "_free", "_free_from", "_free_to"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def size_of(self, address: int) -> int:
        """Say how large that chunk is: what was asked for, rounded up or more."""
        return self._sizes[address]

    def allocate(self, requested_bytes: int) -> int | None:
        """Hand out the best chunk for so many bytes."""
        live: dict[int, int] = {}
        self.play((0,), (rounded(requested_bytes),), live, range(1))
        return live.get(0)

    def free(self, address: int) -> None:
        """Take a chunk back, and join it with its free neighbours."""
        self.play((~0,), (), {0: address}, range(1))

    def play(  # noqa: C901 (see below)
        self, events: Sequence[int], sizes: Sequence[int], live: dict[int, int], turns: range
    ) -> Played:
        """Allocate and free in those turns, up to an event that finds no room or is neither.

        An event is the number of one of the sizes, or its bitwise complement where that is freed
        again; `live` has the addresses of what is handed out, by number. A plan plays millions of
        events: split into functions this takes twice the time.
        """
        free, free_from, free_to = self._free, self._free_from, self._free_to
        handed_out, in_use, last = self._sizes, self.in_use_bytes, len(sizes)
        peak, peak_place, place = in_use, turns.start, turns.start
        for place in turns:
            event = events[place]
            if event < 0:
                address = live.pop(~event)
                size = handed_out.pop(address)
                in_use -= size
                if after := free_from.pop(address + size, 0):
                    del free[bisect_left(free, after)]
                    size += after >> _SIZE
                if before := free_to.pop(address, 0):
                    del free[bisect_left(free, before)]
                    size += before >> _SIZE
                    address = before & _ADDRESS
            elif event < last:
                wanted = sizes[event]
                best = bisect_left(free, wanted << _SIZE)
                if best == len(free):
                    if not self._extend(wanted):
                        break
                    best = bisect_left(free, wanted << _SIZE)
                chunk = free.pop(best)
                address, found = chunk & _ADDRESS, chunk >> _SIZE
                del free_from[address], free_to[address + found]
                size = found - wanted
                if size < wanted and size < _LARGE_SURPLUS:
                    wanted, size = found, 0
                live[event], handed_out[address] = address, wanted
                in_use += wanted
                if in_use > peak:
                    peak, peak_place = in_use, place + 1
                if not size:
                    continue
                address += wanted
            else:
                break
            chunk = size << _SIZE | address
            insort(free, chunk)
            free_from[address] = free_to[address + size] = chunk
        else:
            place = turns.stop
        self.in_use_bytes = in_use
        return Played(place, peak, peak_place)

    def _extend(self, size: int) -> bool:
        """Add a region that has room for so much, if the limit allows it."""
        available = self._limit - self._reserved
        if size > available:
            return False
        has_grown = size > self._region
        while size > self._region:
            self._region *= 2
        taken = min(self._region, available)
        address = self._lowest_region_at - taken - _GAP
        if not has_grown:
            self._region *= 2
        self._lowest_region_at = address
        self._reserved += taken
        chunk = taken << _SIZE | address
        insort(self._free, chunk)
        self._free_from[address] = self._free_to[address + taken] = chunk
        return True
