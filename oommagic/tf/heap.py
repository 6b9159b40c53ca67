"""What the C library holds and has handed out: a tape takes of it while it runs and is saved."""

import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path

from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_FIGURES = (
    "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"  # glibc's names
)
_STATM = Path("/proc/self/statm")


class _Figures(ctypes.Structure):
    """`arena` is what the heaps hold, `uordblks` as far as in use, `hblkhd` are large blocks."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIGURES.split()]
    arena: int
    hblkhd: int
    uordblks: int


def heap_meter() -> Callable[[], int] | None:
    """Give a function that reads the bytes handed out, large blocks left out, if there is one.

    It takes 10 µs to 1 ms, the longer the more scattered the heap is.
    """
    read = _figures_reader()
    return None if read is None else lambda: read().uordblks


class OwnWork:
    """Work of ours amid the program's: what it takes of the process's memory, and gives back.

    It ends by giving back to the system all that the C library holds without use. The program's
    part of that would have stayed, had there been no such work.
    """

    def __init__(self) -> None:
        """Begin: what the heaps take from now on is taken for the work's."""
        self.gave_back_bytes = 0
        """The program's part, known at the end."""
        self._read = _figures_reader() or _Figures
        self._before, self._resident_before = self._read(), _resident_bytes()
        self._took_bytes: int | None = None

    @property
    def took_bytes(self) -> int:
        """What the heaps have taken, up to now or to the end."""
        return self._taken_until_now() if self._took_bytes is None else self._took_bytes

    def end(self) -> None:
        """Give back what is not in use."""
        self._took_bytes = self._taken_until_now()
        given_back = _resident_bytes()
        _trim()
        given_back -= _resident_bytes()
        # What had been recorded was in use until it was saved.
        recorded = max(0, self._before.uordblks - self._read().uordblks)
        self.gave_back_bytes = max(0, given_back - self._took_bytes - recorded)

    def _taken_until_now(self) -> int:
        """The heaps grow, or become resident again where they had given pages back."""
        now, before = self._read(), self._before
        resident = _resident_bytes() - self._resident_before
        return max(0, now.arena - before.arena, resident - (now.hblkhd - before.hblkhd))


def _figures_reader() -> Callable[[], _Figures] | None:
    read = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if read is None:
        return None
    read.restype = _Figures
    return read  # type: ignore[no-any-return] # what ctypes finds has no type


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident_bytes() -> int:
    try:
        resident_pages = _STATM.read_text(encoding="ascii").split()[1]
    except OSError:  # then nothing is seen to be taken or given back
        return 0
    return int(resident_pages) * mmap.PAGESIZE
