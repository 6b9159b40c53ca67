"""Several steps in a row at one batch size, rehearsed on the replayed allocator.

Steps of one model do not take the same memory: their ops race, and what one leaves free decides
which chunks the next one gets. So several runs are rehearsed, from the first allocation for the
model on, and each takes the steps that were recorded in an order of its own.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oommagic.explain.bfc import Allocator
from oommagic.explain.scaling import Allocation, Law, Script, Scripts
from oommagic.recording import OpRole

_NO_LIMIT = 1 << 50
_STEPS = 3
"""How many later steps a rehearsed run takes: more of them seldom find a higher peak."""


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
    """Runs of several steps at one batch size on one device; one that runs out raises."""

    def __init__(self, scripts: Scripts, batch: int, device: Device) -> None:
        """Rehearse up to the end of the first step, which all runs have in common."""
        self._later = scripts.later
        self._start = _Run(Allocator(device.limit_bytes, grows=device.grows), batch)
        for size, role in scripts.before:
            self._start.hold(size, role)
        if scripts.made is not None:
            self._start.step(scripts.made)
        self._start.hold(scripts.batch_law.at(batch), OpRole("data"))
        self._start.allocator.peak_bytes = 0
        self._start.step(scripts.first)
        self.settled_bytes = self._start.allocator.in_use_bytes

    def peaks(self, runs: int) -> list[int]:
        """Give the highest peak of each of so many runs."""
        return [self._peak(number) for number in range(runs)]

    def fullest(self) -> Fullest:
        """Look at the most demanding step where it is fullest."""
        script = self._later[0]
        highest = self._start.copy().step(script)
        run = self._start.copy()
        run.begin(script, until=highest)
        return run.look()

    def _peak(self, number: int) -> int:
        run = self._start.copy()
        for script in _order(self._later, number):
            run.step(script)
        return run.allocator.peak_bytes


def _order(later: Sequence[Script], number: int) -> Iterator[Script]:
    """Begin with another step in each run, and go on in other strides each time around."""
    stride = 1 + number // len(later)
    for step in range(_STEPS):
        yield later[(number + step * stride) % len(later)]


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
            allocation = Allocation(Law(size), "", role, (None, ""))
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
