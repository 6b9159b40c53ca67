"""Memory straight from the kernel, for tests that compare figures."""

import mmap
import sys

from oommagic.units import MIB

ENGINES = ["settrace", "monitoring"] if sys.version_info >= (3, 12) else ["settrace"]


def block(size_mib: int) -> mmap.mmap:
    """Take memory straight from the kernel, and touch all of it: no allocator is in the way."""
    size = size_mib * MIB
    taken = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, size, mmap.PAGESIZE):
        taken[page] = 1
    return taken
