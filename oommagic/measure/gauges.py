"""What psutil tells: CPU, disk and network rates, child processes, the machine's memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


@dataclass(frozen=True, slots=True)
class Gauges:
    """Rates since the reading before. None: this system does not say, or no time has passed.

    100 % of CPU is one core. CPU and disk are this process's; the network is the whole
    machine's (in a container: the container's), since no system counts it for each process.
    """

    cpu_percent: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    network_received_bytes_per_s: float | None = None
    network_sent_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """The machine's memory as psutil sees it."""

    total_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class _Counters:
    """Counters that only rise, at one moment."""

    time_s: float
    cpu_s: float
    disk_read_bytes: int | None
    disk_write_bytes: int | None
    network_received_bytes: int | None
    network_sent_bytes: int | None


class ProcessGauges:
    """Gauges of this process, and the memory of its children."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the first reading, so that the next one has something to compare with."""
        import psutil

        self._clock = clock
        self._process = psutil.Process()
        self._before = self._count()

    def read(self) -> Gauges:
        """Give the rates since the last reading, or since these gauges were made."""
        before, now = self._before, self._count()
        elapsed_s = now.time_s - before.time_s
        if elapsed_s <= 0:
            return Gauges()
        self._before = now

        def rate(earlier: float | None, later: float | None) -> float | None:
            if earlier is None or later is None or later < earlier:
                return None
            return (later - earlier) / elapsed_s

        cpu = rate(before.cpu_s, now.cpu_s)
        return Gauges(
            None if cpu is None else 100 * cpu,
            rate(before.disk_read_bytes, now.disk_read_bytes),
            rate(before.disk_write_bytes, now.disk_write_bytes),
            rate(before.network_received_bytes, now.network_received_bytes),
            rate(before.network_sent_bytes, now.network_sent_bytes),
        )

    def children_bytes(self) -> int:
        """Add up what ending the child processes, and theirs, would give back.

        Pages that a forked child still shares with its parent are the parent's, so a child's
        unique memory counts. The kernel walks a process's page tables for it: for a child of
        several gigabytes that takes milliseconds.
        """
        import psutil

        try:
            children = self._process.children(recursive=True)
        except psutil.Error:
            return 0
        return sum(_unique_bytes(child) for child in children)

    def _count(self) -> _Counters:
        cpu = self._process.cpu_times()
        disk_read, disk_write = self._disk_bytes()
        received, sent = _network_bytes()
        return _Counters(
            self._clock(), cpu.user + cpu.system, disk_read, disk_write, received, sent
        )

    def _disk_bytes(self) -> tuple[int | None, int | None]:
        import psutil

        # macOS has no such counters, and a container may forbid them.
        try:
            disk = self._process.io_counters()
        except (AttributeError, NotImplementedError, OSError, psutil.Error):
            return None, None
        return disk.read_bytes, disk.write_bytes


def machine_memory() -> MachineMemory:
    """Give the machine's memory, on any system."""
    import psutil

    memory = psutil.virtual_memory()
    return MachineMemory(memory.total, memory.available)


def _network_bytes() -> tuple[int | None, int | None]:
    import psutil

    # By default psutil keeps past counters for the whole process; here nothing may stay.
    try:
        network = psutil.net_io_counters(nowrap=False)
    except OSError:
        return None, None
    # A machine without any network interface has no counters either.
    return (network.bytes_recv, network.bytes_sent) if network else (None, None)


def _unique_bytes(child: "psutil.Process") -> int:
    import psutil

    try:
        return int(child.memory_full_info().uss)
    except psutil.AccessDenied:
        return _resident_bytes(child)
    except psutil.Error:
        return 0


def _resident_bytes(child: "psutil.Process") -> int:
    import psutil

    try:
        memory = child.memory_info()
    except psutil.Error:
        return 0
    return int(memory.rss - getattr(memory, "shared", 0))
