"""A run at one batch size, rehearsed on the replayed allocator from its very beginning.

Steps of one model do not take the same memory: their ops race, and what lies where decides which
chunks each one gets. So the model is made, its data laid out, and every step that was recorded is
done in its turn, as in the process that recorded them, but with the sizes of another batch.

Where an allocation fails, TensorFlow's allocator does not give up at once: it waits for other ops
to give memory back. So what need not wait for that allocation goes on before it.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oommagic.explain.bfc import Allocator, rounded
from oommagic.explain.orders import Orders
from oommagic.explain.scaling import INHERITED, Allocation, Script, Scripts

if TYPE_CHECKING:
    from collections.abc import Sequence

_NO_LIMIT = 1 << 50
_GONE_AHEAD = INHERITED - 1
"""Stands where an event was that came about before its turn."""


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
        self, scripts: Scripts, batch: int, device: Device, orders: Orders | None = None
    ) -> None:
        """Make the model and its data, and do steps of the nearest size in their turn."""
        self._batch = batch
        run = _Run(Allocator(device.limit_bytes, grows=device.grows), batch, orders)
        for allocation in scripts.before:
            run.hold(allocation)
        for script in (scripts.made, scripts.prepared):
            if script is not None:
                run.do(script)
        self.peaks: list[int] = []
        """Of each step."""
        self._fullest = run, scripts.first, 0
        first, *others = scripts.run(batch)
        self._do(run, first)
        self.settled_bytes = run.in_use_bytes
        """What stays in use after the first step: weights, slots and the data."""
        self._begun = run.copy()
        for script in others:
            self._do(run, script)

    def highest_with(self, others: Scripts) -> int:
        """Give the peak of a run that began like this one, and then does these steps."""
        run = self._begun.copy()
        return max(run.do(script)[0] for script in others.run(self._batch)[1:])

    def _do(self, run: "_Run", script: Script) -> None:
        before = run.copy()
        peak, event = run.do(script)
        if peak > max(self.peaks, default=0):
            self._fullest = before, script, event
        self.peaks.append(peak)

    def fullest(self) -> Fullest:
        """Look at the most demanding step where it is fullest."""
        before, script, event = self._fullest
        run = before.copy()
        run.begin(script, until=event)
        return run.look()


class _Run:
    """A rehearsed run as far as it has come."""

    def __init__(self, allocator: Allocator, batch: int, orders: Orders | None) -> None:
        self._allocator = allocator
        self._batch = batch
        self._orders = orders
        self._sizes: dict[int, list[int]] = {}
        self._left: defaultdict[int, list[tuple[int, Allocation]]] = defaultdict(list)
        self._live: dict[int, int] = {}
        self._script: Script | None = None

    def copy(self) -> "_Run":
        """Give another run that has come as far."""
        other = _Run(self._allocator.copy(), self._batch, self._orders)
        other._sizes = self._sizes
        other._left.update((size, list(held)) for size, held in self._left.items())
        return other

    def hold(self, allocation: Allocation) -> None:
        """Hand out what stays until a step frees it, if it is anything."""
        asked = allocation.law.at(self._batch)
        if asked > 1:
            self._left[asked].append((self._allocate(asked), allocation))

    @property
    def in_use_bytes(self) -> int:
        """What is handed out."""
        return self._allocator.in_use_bytes

    def do(self, script: Script) -> tuple[int, int]:
        """Do all of it; give its peak, and the event after which that was in use."""
        reached = self.begin(script)
        for number, address in self._live.items():
            allocation = script.allocations[number]
            self._left[allocation.law.at(self._batch)].append((address, allocation))
        self._live = {}
        return reached

    def begin(self, script: Script, until: int | None = None) -> tuple[int, int]:
        """Do it up to an event; give the peak, and the event after which that was in use."""
        self._script = script
        sizes = self._sizes_of(script)
        events: Sequence[int] = script.events
        end = len(events) if until is None else until
        place, peak, highest = 0, self._allocator.in_use_bytes, 0
        while place < end:
            turns = range(place, end)
            place, reached, after = self._allocator.play(events, sizes, self._live, turns)
            if reached > peak:
                peak, highest = reached, after
            if place == end:
                break
            event = events[place]
            if event >= INHERITED:
                self._free_left(script.inherited[event - INHERITED])
            elif event != _GONE_AHEAD:
                events = events if isinstance(events, list) else list(events)
                self._live[event] = self._waited_for(script, events, place)
                if self._allocator.in_use_bytes > peak:
                    peak, highest = self._allocator.in_use_bytes, place + 1
            place += 1
        return peak, highest

    def _waited_for(self, script: Script, events: list[int], place: int) -> int:
        """Let the other ops go on until there is room; one that finds none either waits too."""
        if self._orders is None:
            raise RanOutError
        size = self._sizes_of(script)[events[place]]
        stopped = set(self._orders.stopped_by(script, events[place]))
        waiting = 1
        for later in range(place + 1, len(events)):
            event = events[later]
            if event == _GONE_AHEAD or not self._orders.goes_on(script, event, stopped):
                continue
            if not self._goes(script, event):
                waiting += event >= 0
                if waiting == self._orders.threads:
                    break
                stopped |= self._orders.stopped_by(script, event)
                continue
            events[later] = _GONE_AHEAD
            address = self._allocator.allocate(size) if event < 0 else None
            if address is not None:
                return address
        raise RanOutError

    def _goes(self, script: Script, event: int) -> bool:
        """Do an event before its turn, if what it frees is there, or what it needs."""
        if event < 0:
            address = self._live.pop(~event, None)
            if address is not None:
                self._allocator.free(address)
            return address is not None
        address = self._allocator.allocate(self._sizes_of(script)[event])
        if address is not None:
            self._live[event] = address
        return address is not None

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
            sizes = [rounded(allocation.law.at(self._batch)) for allocation in script.allocations]
            self._sizes[id(script)] = sizes
        return self._sizes[id(script)]

    def _allocate(self, size: int) -> int:
        address = self._allocator.allocate(size)
        if address is None:
            raise RanOutError
        return address

    def _free_left(self, allocation: Allocation) -> None:
        """Free it where it lies; else what a step has left that is as large, of its kind if any."""
        left = self._left[allocation.law.at(self._batch)]
        same = [n for n, (_, one) in enumerate(left) if one is allocation]
        alike = [n for n, (_, one) in enumerate(left) if one.role.kind == allocation.role.kind]
        if left:
            self._allocator.free(left.pop([-1, *alike, *same][-1])[0])
