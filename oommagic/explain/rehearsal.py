"""Steps at one batch size, rehearsed on the replayed allocator.

Steps of one model do not take the same memory: their ops race, and what one leaves free decides
which chunks the next one gets. So each step that was recorded is rehearsed, a few times in a row,
beside what a model keeps between its steps.
"""

from collections import defaultdict
from dataclasses import dataclass

from oommagic.explain.bfc import Allocator
from oommagic.explain.scaling import Allocation, Law, Script, Scripts
from oommagic.recording import OpRole

_NO_LIMIT = 1 << 50
_TIMES = 3
"""After so many times in a row a step finds the chunks that it finds ever after."""


@dataclass(frozen=True, slots=True)
class Device:
    """The allocator that is rehearsed on; `grows`: it takes its memory region by region."""

    limit_bytes: int = _NO_LIMIT
    grows: bool = True


class RanOutError(Exception):
    """The rehearsed run asked for more than the device has."""


@dataclass(frozen=True, slots=True)
class Held:
    """One chunk that is handed out: what was asked for, and what the allocator gave."""

    allocation: Allocation
    bytes: int
    chunk_bytes: int


@dataclass(frozen=True, slots=True)
class Fullest:
    """Who holds what when a step is at its fullest; the chunks add up to the total."""

    total_bytes: int
    held: tuple[Held, ...]


class Rehearsals:
    """Steps of one batch size on one device; one that runs out raises."""

    def __init__(self, scripts: Scripts, batch: int, device: Device) -> None:
        """Hand out what is there before a step, each piece as large as it was asked for."""
        self._steps = scripts.steps
        self._start = _Run(Allocator(device.limit_bytes, grows=device.grows), batch)
        for size, role in scripts.before:
            self._start.hold(size, role)
        for allocation in scripts.settled:
            self._start.keep(allocation)
        self._start.hold(scripts.batch_law.at(batch), OpRole("data"))
        self.settled_bytes = self._start.allocator.in_use_bytes

    def peaks(self, most: int) -> list[int]:
        """Give the peak that each step comes to, of so many of them at most."""
        return [self._peak(script) for script in self._steps[:most]]

    def fullest(self) -> Fullest:
        """Look at the most demanding step where it is fullest."""
        script = self._steps[0]
        highest = self._start.copy().step(script)
        run = self._start.copy()
        run.begin(script, until=highest)
        return run.look()

    def _peak(self, script: Script) -> int:
        run = self._start.copy()
        for _ in range(_TIMES):
            run.step(script)
        return run.allocator.peak_bytes


class _Run:
    """A rehearsed run as far as it has come."""

    def __init__(self, allocator: Allocator, batch: int) -> None:
        self.allocator = allocator
        self._batch = batch
        self._sizes: dict[int, list[int]] = {}
        self._left: defaultdict[int, list[tuple[int, Allocation]]] = defaultdict(list)
        self._live: dict[int, int] = {}
        self._script: Script | None = None

    def copy(self) -> "_Run":
        """Give another run that has come as far."""
        other = _Run(self.allocator.copy(), self._batch)
        other._sizes = self._sizes
        other._left.update((size, list(held)) for size, held in self._left.items())
        return other

    def hold(self, size: int, role: OpRole) -> None:
        """Hand out what stays for the whole run, if it is anything."""
        if size > 1:
            self.keep(Allocation(Law(size), "", role, (None, "")))

    def keep(self, allocation: Allocation) -> None:
        """Hand out what stays until a step frees it."""
        size = allocation.law.at(self._batch)
        self._left[size].append((self._allocate(size), allocation))

    def step(self, script: Script) -> int:
        """Do a step; give the event after which most was in use."""
        highest = self.begin(script)
        sizes = self._sizes_of(script)
        for number, address in self._live.items():
            self._left[sizes[number]].append((address, script.allocations[number]))
        self._live = {}
        return highest

    def begin(self, script: Script, until: int | None = None) -> int:
        """Do a step up to an event; give the event after which most was in use."""
        self._script = script
        sizes, allocator, live = self._sizes_of(script), self.allocator, self._live
        most, highest = 0, 0
        for number, event in enumerate(script.events[:until], start=1):
            if event < 0:
                allocator.free(live.pop(~event))
            elif event < len(sizes):
                live[event] = self._allocate(sizes[event])
                if allocator.in_use_bytes > most:
                    most, highest = allocator.in_use_bytes, number
            else:
                self._free_left(script.inherited[event - len(sizes)])
        return highest

    def look(self) -> Fullest:
        """Tell who holds what right now."""
        script = self._script
        now = [
            (address, allocation) for many in self._left.values() for address, allocation in many
        ]
        if script is not None:
            now += [(address, script.allocations[n]) for n, address in self._live.items()]
        return Fullest(self.allocator.in_use_bytes, tuple(self._held(*one) for one in now))

    def _held(self, address: int, allocation: Allocation) -> Held:
        asked = allocation.law.at(self._batch)
        return Held(allocation, asked, self.allocator.size_of(address))

    def _sizes_of(self, script: Script) -> list[int]:
        if id(script) not in self._sizes:
            sizes = [allocation.law.at(self._batch) for allocation in script.allocations]
            self._sizes[id(script)] = sizes
        return self._sizes[id(script)]

    def _allocate(self, size: int) -> int:
        address = self.allocator.allocate(size)
        if address is None:
            raise RanOutError
        return address

    def _free_left(self, allocation: Allocation) -> None:
        """Free what an earlier step has left that is as large, and of that kind if possible."""
        left = self._left[allocation.law.at(self._batch)]
        alike = [n for n, (_, one) in enumerate(left) if one.role.kind == allocation.role.kind]
        if left:
            self.allocator.free(left.pop(alike[-1] if alike else -1)[0])
