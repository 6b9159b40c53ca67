"""TensorFlow's BFC allocator, replayed: what it would hand out, and where it would run out.

The rules are those of TensorFlow's best-fit allocator with coalescing. Sizes are rounded up to 256
bytes; the smallest free chunk that is large enough is taken, the lowest of several; it is split if
at least as much again would be left over, or 128 MiB, and else handed out whole; what is freed
joins its free neighbours. A training device on the CPU grows by regions, each twice as large as
the one before, and no chunk reaches over two of them. A GPU's memory is one region by default.
"""

from bisect import bisect_left, insort
from copy import copy

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


class Allocator:
    """An allocator with a limit: `allocate` gives a chunk's address, or None where it runs out."""

    def __init__(self, limit_bytes: int, *, grows: bool) -> None:
        """Begin with nothing handed out; `grows` is whether it takes its memory by regions."""
        self.in_use_bytes = 0
        self._limit = limit_bytes // _GRAIN * _GRAIN
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
        size = max(-(-requested_bytes // _GRAIN), 1) * _GRAIN
        best = bisect_left(self._free, size << _SIZE)
        if best == len(self._free):
            if not self._extend(size):
                return None
            best = bisect_left(self._free, size << _SIZE)
        chunk = self._free.pop(best)
        address, found = chunk & _ADDRESS, chunk >> _SIZE
        del self._free_from[address], self._free_to[address + found]
        if found >= 2 * size or found - size >= _LARGE_SURPLUS:
            self._add_free(address + size, found - size)
            found = size
        self._sizes[address] = found
        self.in_use_bytes += found
        return address

    def free(self, address: int) -> None:
        """Take a chunk back, and join it with its free neighbours."""
        size = self._sizes.pop(address)
        self.in_use_bytes -= size
        end = address + size
        after, before = self._free_from.pop(end, 0), self._free_to.pop(address, 0)
        if after:
            self._take_free(after)
            size += after >> _SIZE
            del self._free_to[address + size]
        if before:
            self._take_free(before)
            size += before >> _SIZE
            address = before & _ADDRESS
            del self._free_from[address]
        self._add_free(address, size)

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
        self._add_free(address, taken)
        return True

    def _add_free(self, address: int, size: int) -> None:
        chunk = size << _SIZE | address
        insort(self._free, chunk)
        self._free_from[address] = self._free_to[address + size] = chunk

    def _take_free(self, chunk: int) -> None:
        del self._free[bisect_left(self._free, chunk)]
