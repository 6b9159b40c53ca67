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


class Allocator:
    """An allocator with a limit: `allocate` gives a chunk's address, or None where it runs out."""

    def __init__(self, limit_bytes: int, *, grows: bool) -> None:
        """Begin with nothing handed out; `grows` is whether it takes its memory by regions."""
        self.in_use_bytes = 0
        self._limit = limit_bytes // _GRAIN * _GRAIN
        self._region = min(_FIRST_REGION, self._limit) if grows else self._limit
        self._reserved = 0
        self._lowest_region_at = _TOP
        # By address; chunks of one region are linked in the order in which they lie.
        self._sizes: dict[int, int] = {}
        self._before: dict[int, int | None] = {}
        self._after: dict[int, int | None] = {}
        self._free: list[tuple[int, int]] = []
        self._is_free: set[int] = set()

    def copy(self) -> "Allocator":
        """Give another one in the same state."""
        other = copy(self)
        for name in ("_sizes", "_before", "_after", "_free", "_is_free"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def size_of(self, address: int) -> int:
        """Say how large that chunk is: what was asked for, rounded up or more."""
        return self._sizes[address]

    def allocate(self, requested_bytes: int) -> int | None:
        """Hand out the best chunk for so many bytes."""
        size = max(-(-requested_bytes // _GRAIN), 1) * _GRAIN
        best = bisect_left(self._free, (size, 0))
        if best == len(self._free):
            if not self._extend(size):
                return None
            best = bisect_left(self._free, (size, 0))
        found, address = self._free.pop(best)
        self._is_free.discard(address)
        if found >= 2 * size or found - size >= _LARGE_SURPLUS:
            self._split(address, size)
            found = size
        self.in_use_bytes += found
        return address

    def free(self, address: int) -> None:
        """Take a chunk back, and join it with its free neighbours."""
        self.in_use_bytes -= self._sizes[address]
        after = self._after[address]
        if after in self._is_free and after is not None:
            self._take_free(after)
            self._join(address, after)
        before = self._before[address]
        if before in self._is_free and before is not None:
            self._take_free(before)
            self._join(before, address)
            address = before
        self._add_free(address)

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
        self._sizes[address] = taken
        self._before[address] = self._after[address] = None
        self._add_free(address)
        return True

    def _split(self, address: int, size: int) -> None:
        rest, after = address + size, self._after[address]
        self._sizes[rest] = self._sizes[address] - size
        self._sizes[address] = size
        self._before[rest], self._after[rest], self._after[address] = address, after, rest
        if after is not None:
            self._before[after] = rest
        self._add_free(rest)

    def _join(self, address: int, after: int) -> None:
        following = self._after.pop(after)
        self._sizes[address] += self._sizes.pop(after)
        self._after[address] = following
        if following is not None:
            self._before[following] = address
        del self._before[after]

    def _add_free(self, address: int) -> None:
        self._is_free.add(address)
        insort(self._free, (self._sizes[address], address))

    def _take_free(self, address: int) -> None:
        self._is_free.discard(address)
        del self._free[bisect_left(self._free, (self._sizes[address], address))]
