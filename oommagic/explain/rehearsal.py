"""A run at one batch size, rehearsed on the replayed allocator from its very beginning.

Steps of one model do not take the same memory: their ops race, and what lies where decides which
chunks each one gets. So the model is made, its data laid out, and every step that was recorded is
done in its turn, as in the process that recorded them, but with the sizes of another batch.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from oommagic.explain.bfc import Allocator
from oommagic.explain.scaling import INHERITED, Allocation, Law, Script, Scripts
from oommagic.recording import OpRole

_NO_LIMIT = 1 << 50


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


class Rehearsal:
    """A run at one batch size on one device, from its beginning; one that runs out raises."""

    def __init__(
        self, scripts: Scripts, steps: Sequence[Script], batch: int, device: Device
    ) -> None:
        """Make the model and its data, and do each of these steps in its turn."""
        run = _Run(Allocator(device.limit_bytes, grows=device.grows), batch)
        for size, role in scripts.before:
            run.hold(size, role)
        if scripts.made is not None:
            run.do(scripts.made)
        run.hold(scripts.batch_law.at(batch), OpRole("data"))
        self.peaks: list[int] = []
        """Of each step."""
        self.settled_bytes = 0
        """What stays in use after the first step: weights, slots and the data."""
        self._fullest = run, scripts.first, 0
        for script in steps:
            self._do(run, script)

    def _do(self, run: "_Run", script: Script) -> None:
        before = run.copy()
        peak, event = run.do(script)
        if peak > max(self.peaks, default=0):
            self._fullest = before, script, event
        self.peaks.append(peak)
        self.settled_bytes = self.settled_bytes or run.in_use_bytes

    def fullest(self) -> Fullest:
        """Look at the most demanding step where it is fullest."""
        before, script, event = self._fullest
        run = before.copy()
        run.begin(script, until=event)
        return run.look()


class _Run:
    """A rehearsed run as far as it has come."""

    def __init__(self, allocator: Allocator, batch: int) -> None:
        self._allocator = allocator
        self._batch = batch
        self._sizes: dict[int, list[int]] = {}
        self._left: defaultdict[int, list[tuple[int, Allocation]]] = defaultdict(list)
        self._live: dict[int, int] = {}
        self._script: Script | None = None

    def copy(self) -> "_Run":
        """Give another run that has come as far."""
        other = _Run(self._allocator.copy(), self._batch)
        other._sizes = self._sizes
        other._left.update((size, list(held)) for size, held in self._left.items())
        return other

    def hold(self, size: int, role: OpRole) -> None:
        """Hand out what stays until a step frees it, if it is anything."""
        if size > 1:
            allocation = Allocation(Law(size), "", role, (None, ""))
            self._left[size].append((self._allocate(size), allocation))

    @property
    def in_use_bytes(self) -> int:
        """What is handed out."""
        return self._allocator.in_use_bytes

    def do(self, script: Script) -> tuple[int, int]:
        """Do all of it; give its peak, and the event after which that was in use."""
        reached = self.begin(script)
        sizes = self._sizes_of(script)
        for number, address in self._live.items():
            self._left[sizes[number]].append((address, script.allocations[number]))
        self._live = {}
        return reached

    def begin(self, script: Script, until: int | None = None) -> tuple[int, int]:
        """Do it up to an event; give the peak, and the event after which that was in use."""
        self._script = script
        sizes, allocator, live = self._sizes_of(script), self._allocator, self._live
        peak, highest = allocator.in_use_bytes, 0
        for number, event in enumerate(script.events[:until], start=1):
            if event < 0:
                allocator.free(live.pop(~event))
            elif event < INHERITED:
                live[event] = self._allocate(sizes[event])
                if allocator.in_use_bytes > peak:
                    peak, highest = allocator.in_use_bytes, number
            else:
                self._free_left(script.inherited[event - INHERITED])
        return peak, highest

    def look(self) -> Fullest:
        """Tell who holds what right now."""
        script = self._script
        now = [
            (address, allocation) for many in self._left.values() for address, allocation in many
        ]
        if script is not None:
            now += [(address, script.allocations[n]) for n, address in self._live.items()]
        return Fullest(self._allocator.in_use_bytes, tuple(self._held(*one) for one in now))

    def _held(self, address: int, allocation: Allocation) -> Held:
        asked = allocation.law.at(self._batch)
        return Held(allocation, asked, self._allocator.size_of(address))

    def _sizes_of(self, script: Script) -> list[int]:
        if id(script) not in self._sizes:
            sizes = [allocation.law.at(self._batch) for allocation in script.allocations]
            self._sizes[id(script)] = sizes
        return self._sizes[id(script)]

    def _allocate(self, size: int) -> int:
        address = self._allocator.allocate(size)
        if address is None:
            raise RanOutError
        return address

    def _free_left(self, allocation: Allocation) -> None:
        """Free what an earlier step has left that is as large, and of that kind if possible."""
        left = self._left[allocation.law.at(self._batch)]
        alike = [n for n, (_, one) in enumerate(left) if one.role.kind == allocation.role.kind]
        if left:
            self._allocator.free(left.pop(alike[-1] if alike else -1)[0])
