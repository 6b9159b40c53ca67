"""The process's own memory: how much it is now, and the most that it was since the last reading.

Linux keeps the high-water mark of a process and lets the process reset it, so that a peak
is exact however short it was. Elsewhere a thread looks every few milliseconds.
"""

import mmap
import os
import sys
import threading
from os import pread, write
from typing import Protocol

from oommagic.own_builtins import keep_builtins
from oommagic.units import KIB, MIB

keep_builtins(globals())

PAGE = mmap.PAGESIZE
SAMPLING_INTERVAL_S = 0.01

_SLACK_KIB = 1024
_PROBE_BYTES = 4 * MIB
_STATM_SIZE = 128
_STATUS_SIZE = 8192


class HostMeter(Protocol):
    """What every meter of the process's memory can do."""

    @property
    def source(self) -> str:
        """Where the figures come from, as the report says it."""

    @property
    def is_exact(self) -> bool:
        """Whether no peak can be missed."""

    def start(self) -> None:
        """Forget every peak up to now."""

    def read(self) -> tuple[int, int, int]:
        """Give own bytes, file bytes, and the peak of own bytes since the last reading."""

    def peek(self) -> tuple[int, int]:
        """Give own bytes and file bytes, and leave the peak as it is."""

    def close(self) -> None:
        """Give back every file and thread."""


class KernelCounters:
    """The counters that Linux keeps for each process, read in about three microseconds.

    Resident memory less shared memory is the program's own. What is shared are the pages of
    mapped files, and also shared memory proper (`multiprocessing.shared_memory`, `/dev/shm`),
    which the kernel counts with them.

    The kernel's high-water mark is of both together. The own peak is the mark less the file
    pages at the beginning or at the end, whichever are more, and never less than what was
    its own at either end. So a line that reads a memory-mapped file raises the mark and the
    file pages by as much, and shows no own memory. Two things it cannot tell: file pages
    that came and went inside one reading look like own memory, and a temporary that was gone
    before as many file pages came is hidden behind them.

    Since the high-water mark is reset, the program's own `ru_maxrss` is, too. A forked child
    must not go on reading: its files still speak of the parent.
    """

    source = "the kernel's counters"
    is_exact = True

    __slots__ = (
        "_clear_refs",
        "_file",
        "_getrusage",
        "_lowest_mark",
        "_own",
        "_resident_kib",
        "_statm",
        "_status",
        "_usage_of_self",
    )

    def __init__(self) -> None:
        """Open the counters; an `OSError` says that this system does not have them."""
        # Not every system has this module, and those that do not never get here.
        import resource

        self._getrusage = resource.getrusage
        self._usage_of_self = resource.RUSAGE_SELF
        self._statm = self._status = self._clear_refs = -1
        try:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            self._status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
            self._clear_refs = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self.close()
            raise
        self._own = self._file = self._resident_kib = 0
        self._lowest_mark = sys.maxsize

    def start(self) -> None:
        """Forget every peak up to now."""
        self.read()

    def read(self) -> tuple[int, int, int]:
        """Give own bytes, file bytes, and the peak of own bytes since the last reading.

        This runs on every line event, so it is written out flat.
        """
        mark = self._getrusage(self._usage_of_self).ru_maxrss
        if mark <= self._lowest_mark:
            mark = self._without_inherited_floor(mark)
        write(self._clear_refs, b"5")
        _, resident, shared, _ = pread(self._statm, _STATM_SIZE, 0).split(b" ", 3)
        file = int(shared) * PAGE
        resident_bytes = int(resident) * PAGE
        own = resident_bytes - file
        peak = max(own, self._own, mark * KIB - max(file, self._file))
        self._own = own
        self._file = file
        self._resident_kib = resident_bytes // KIB
        return own, file, peak

    def peek(self) -> tuple[int, int]:
        """Give own bytes and file bytes, and leave the peak as it is."""
        _, resident, shared, _ = pread(self._statm, _STATM_SIZE, 0).split(b" ", 3)
        file = int(shared) * PAGE
        return int(resident) * PAGE - file, file

    def close(self) -> None:
        """Close the counters."""
        for descriptor in (self._statm, self._status, self._clear_refs):
            if descriptor >= 0:
                os.close(descriptor)
        self._statm = self._status = self._clear_refs = -1

    def can_reset(self) -> bool:
        """Try whether the high-water mark really comes down when it is told to."""
        with mmap.mmap(-1, _PROBE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
            block.write(bytes(_PROBE_BYTES))
        try:
            before_kib = self._mark_in_status()
            write(self._clear_refs, b"5")
            return before_kib - self._mark_in_status() > _PROBE_BYTES // KIB // 2
        except (OSError, ValueError):
            return False

    def _without_inherited_floor(self, mark: int) -> int:
        """Give the true high-water mark, in KiB, for a reading as low as any before it.

        A process that was started by exec keeps, for life, the high-water mark of the one
        that it was forked from as the least that `ru_maxrss` will say: a kernel started by
        a server that once held 1 GB never reads less. The floor is at or below each reading,
        so one above the lowest so far is true. The lowest may be the floor itself; unless it
        is close to what was resident at the last reading, the slower file has to tell.
        """
        self._lowest_mark = mark
        if mark <= self._resident_kib + _SLACK_KIB:
            return mark
        return self._mark_in_status()

    def _mark_in_status(self) -> int:
        status = pread(self._status, _STATUS_SIZE, 0)
        start = status.index(b"VmHWM:") + len(b"VmHWM:")
        return int(status[start : status.index(b"kB", start)])


class SampledMemory:
    """memory-profiler's readings of resident memory, taken by a thread every few milliseconds.

    A peak between two samples is missed, and the pages of mapped files are not told apart.
    """

    is_exact = False

    def __init__(self, interval_s: float = SAMPLING_INTERVAL_S) -> None:
        """Make ready to sample; the thread runs from `start` to `close`."""
        # Costs 0.2 s and imports IPython's magics: only for those who need it.
        from memory_profiler import memory_usage

        self.source = (
            f"memory-profiler's readings, sampled every {interval_s * 1000:g} ms; "
            "mapped files are counted as the program's own"
        )
        self._memory_usage = memory_usage
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._peak = 0

    def start(self) -> None:
        """Forget every peak up to now, and begin to sample."""
        self._peak = self._sample()
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(
                target=self._keep_sampling, name="oommagic-host-memory", daemon=True
            )
            self._thread.start()

    def read(self) -> tuple[int, int, int]:
        """Give own bytes, no file bytes, and the largest sample since the last reading."""
        now = self._sample()
        with self._lock:
            peak, self._peak = max(self._peak, now), now
        return now, 0, peak

    def peek(self) -> tuple[int, int]:
        """Give own bytes, and no file bytes: they are not told apart."""
        return self._sample(), 0

    def close(self) -> None:
        """End the thread and wait until it is gone."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _keep_sampling(self) -> None:
        while not self._stopped.wait(self._interval_s):
            sample = self._sample()
            with self._lock:
                self._peak = max(self._peak, sample)

    def _sample(self) -> int:
        # Without an interval of zero this call would sleep for a tenth of a second.
        mebibytes: float = self._memory_usage(-1, interval=0)[0]
        return round(mebibytes * MIB)


def open_host_meter() -> HostMeter:
    """Open the kernel's counters if they are there and can be reset, else the sampler."""
    return _open_kernel_counters() or SampledMemory()


def _open_kernel_counters() -> KernelCounters | None:
    if sys.platform != "linux":
        return None
    try:
        counters = KernelCounters()
    except OSError:
        return None
    if counters.can_reset():
        return counters
    counters.close()
    return None
