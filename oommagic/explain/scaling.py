"""Steps that ran at a few batch sizes, rewritten for any other: each allocation by its own law.

An allocation is told from the others of its step by its op, by whether it is scratch memory, and
by how often that op has allocated before. Seen at two sizes or more, its bytes lie on a line
through the two largest. Seen at one size only, its shape tells: the sizes that ran are primes, so
that a dimension that is a multiple of one is the batch's. What stays after its step, as weights
and slots do, and what has the shape of one, does not grow with the batch unless it was seen to.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from oommagic.recording import CompiledSize, OpRole, StepTapes, Tape

Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Law:
    """How many bytes an allocation asks for: `fixed` and `per_sample` for each of the batch."""

    fixed: float
    per_sample: float = 0.0

    def at(self, batch: int) -> int:
        """Give the bytes at one batch size."""
        return max(round(self.fixed + self.per_sample * batch), 1)


@dataclass(frozen=True, slots=True)
class Curve:
    """The bytes that XLA told for some sizes, joined by lines: a compiled step's one piece."""

    known: tuple[CompiledSize, ...]

    def at(self, batch: int) -> int:
        """Give the bytes at one batch size."""
        before, after = _neighbours(self.known, batch)
        if before.batch == after.batch:
            return before.temporary_bytes
        slope = (after.temporary_bytes - before.temporary_bytes) / (after.batch - before.batch)
        return max(round(before.temporary_bytes + slope * (batch - before.batch)), 1)


@dataclass(frozen=True, slots=True)
class Allocation:
    """One allocation of a script, and what it is for."""

    law: Law | Curve
    op: str
    role: OpRole
    tensor: tuple[tuple[int, ...] | None, str]


@dataclass(frozen=True, slots=True)
class Script:
    """What one step allocates and frees, in its order.

    An event is the number of an allocation, or its bitwise complement where it is freed again.
    Numbers from the count of allocations on stand for what earlier steps had left.
    """

    batch: int
    allocations: tuple[Allocation, ...]
    events: tuple[int, ...]
    inherited: tuple[Allocation, ...]
    """What earlier steps had left and this one frees."""


@dataclass(frozen=True, slots=True)
class Scripts:
    """All that is needed to replay steps at any batch size."""

    before: tuple[tuple[int, OpRole], ...]
    """What was in use before anything was recorded."""
    settled: tuple[Allocation, ...]
    """What the model and its first step left: weights, slots, and the last batch's results."""
    steps: tuple[Script, ...]
    """Without the first: the largest batch first, and of one batch the most demanding step."""
    batch_law: Law


def scripts_of(tapes: StepTapes) -> Scripts:
    """Give the scripts of the steps, and what was there before them.

    The first step of each size also prepares what the others need: it counts if there is no other.
    """
    laws = _Laws(tapes)
    left: dict[int, Allocation] = {}
    if tapes.made is not None:
        _script(0, tapes.made, laws, left, _roles(tapes))
    made = tuple(left.values())
    scripts, settled = [], made
    for step in tapes.steps:
        scripts.append(_script(step.batch, step.tape, laws, left))
        settled = settled if len(scripts) > 1 else _in_places(made, left.values())
    peaks = [max(step.tape.in_use_bytes) for step in tapes.steps]
    ranked = sorted(zip(scripts, peaks, strict=True), key=_demand)
    prepare = {step.batch: number for number, step in reversed(list(enumerate(tapes.steps)))}
    plain = [one for one in ranked if one[0] is not scripts[prepare[one[0].batch]]]
    return Scripts(
        before=tuple(_before(tapes)),
        settled=settled,
        steps=tuple(script for script, _ in plain or ranked),
        batch_law=laws.of_batch(),
    )


def _in_places(made: Iterable[Allocation], now: Iterable[Allocation]) -> tuple[Allocation, ...]:
    """Put what is there now in order: a weight's new value lies where one of its size lay first."""
    sizes = [allocation.law.at(0) for allocation in (*made, *now)]
    places = {size: place for place, size in reversed(list(enumerate(sizes)))}
    return tuple(sorted(now, key=lambda allocation: places[allocation.law.at(0)]))


def _demand(ranked: tuple[Script, int]) -> tuple[int, int]:
    script, peak = ranked
    return -script.batch, -peak


def _roles(tapes: StepTapes) -> Mapping[int, OpRole]:
    """Give by address what the model holds: ops that made it often do not say for what."""
    return {held.address: OpRole(held.kind, held.layer) for held in tapes.held}


def _before(tapes: StepTapes) -> Iterator[tuple[int, OpRole]]:
    """Give what was there before, by what it is as far as that is known."""
    rest = (tapes.made or tapes.steps[0].tape).before_bytes
    for held in tapes.held if tapes.made is None else ():
        if held.bytes <= rest:
            rest -= held.bytes
            yield held.bytes, OpRole(held.kind, held.layer)
    if rest:
        yield rest, OpRole("unknown")


class _Laws:
    """The law of each allocation that was seen at several sizes."""

    def __init__(self, tapes: StepTapes) -> None:
        self._batch_bytes = tapes.batch_bytes
        self._compiled = tapes.compiled
        self._weights = _shapes_that_stay(tapes)
        self._seen: dict[Key, dict[int, int]] = defaultdict(dict)
        for number, step in enumerate(tapes.steps):
            for event, key in _keyed(step.tape):
                # The first step also prepares its graph: another one of its size goes before.
                if number or step.batch not in self._seen[key]:
                    self._seen[key][step.batch] = step.tape.requested_bytes[event]

    def of_batch(self) -> Law:
        """Give the law of the data itself."""
        return _line(self._batch_bytes) if self._batch_bytes else Law(0)

    def of(self, key: Key, tape: Tape, event: int, batch: int, *, stays: bool) -> Law | Curve:
        """Give the law of one allocation that was made at that batch size."""
        requested = tape.requested_bytes[event]
        if not batch:
            return Law(requested)
        if self._is_compiled(batch, requested):
            return Curve(self._compiled)
        seen = self._seen[key]
        if len(seen) > 1:
            return _line({**seen, batch: requested})
        shape, _ = tape.tensors[tape.tensor_numbers[event]]
        is_fixed = stays or not shape or shape in self._weights
        is_of_batch = not is_fixed and any(size and size % batch == 0 for size in shape or ())
        return Law(0, requested / batch) if is_of_batch else Law(requested)

    def _is_compiled(self, batch: int, requested: int) -> bool:
        return any(
            size.batch == batch and size.temporary_bytes == requested for size in self._compiled
        )


def _shapes_that_stay(tapes: StepTapes) -> frozenset[tuple[int, ...]]:
    """Give the shapes of what outlasts its tape: weights', and so their gradients' and slots'."""
    everything = [*([tapes.made] if tapes.made else ()), *(step.tape for step in tapes.steps)]
    return frozenset(
        shape
        for tape in everything
        for event in _staying(tape)
        if (shape := tape.tensors[tape.tensor_numbers[event]][0])
    )


def _line(points: Mapping[int, int]) -> Law:
    """Draw a line through the two largest sizes; what shrinks with the batch counts as fixed."""
    *_, (small, few), (large, many) = sorted([(0, 0), *points.items()])
    slope = (many - few) / (large - small)
    return Law(many - slope * large, slope) if slope > 0 else Law(many)


def _keyed(tape: Tape) -> Iterator[tuple[int, Key]]:
    """Give each allocation's event, and what it is told by."""
    counts: Counter[tuple[str, int]] = Counter()
    for event, size in enumerate(tape.bytes):
        if size > 0:
            kind = (tape.ops[tape.op_numbers[event]], tape.temporary[event])
            counts[kind] += 1
            yield event, (*kind, counts[kind])


def _script(
    batch: int,
    tape: Tape,
    laws: _Laws,
    left: dict[int, Allocation],
    roles: Mapping[int, OpRole] = MappingProxyType({}),
) -> Script:
    """Rewrite one tape; `left` has by address what earlier ones left, and is brought up to date.

    `roles` tells by address what some of it is that stays.
    """
    staying = _staying(tape)
    allocations: list[Allocation] = []
    events: list[int] = []
    inherited: list[Allocation] = []
    count = sum(size > 0 for size in tape.bytes)
    live: dict[int, int] = {}
    keys = dict(_keyed(tape))
    for event, (address, size) in enumerate(zip(tape.addresses, tape.bytes, strict=True)):
        if size > 0:
            law = laws.of(keys[event], tape, event, batch, stays=event in staying)
            live[address] = len(allocations)
            events.append(len(allocations))
            role = roles.get(address) if event in staying else None
            allocations.append(_allocation(tape, event, law, role))
        elif address in live:
            events.append(~live.pop(address))
        elif address in left:
            events.append(count + len(inherited))
            inherited.append(left.pop(address))
    left.update((address, allocations[number]) for address, number in live.items())
    return Script(batch, tuple(allocations), tuple(events), tuple(inherited))


def _staying(tape: Tape) -> frozenset[int]:
    """Find the allocations that are not freed on their own tape."""
    live: dict[int, int] = {}
    for event, (address, size) in enumerate(zip(tape.addresses, tape.bytes, strict=True)):
        if size > 0:
            live[address] = event
        else:
            live.pop(address, None)
    return frozenset(live.values())


def _allocation(tape: Tape, event: int, law: Law | Curve, role: OpRole | None) -> Allocation:
    op = tape.op_numbers[event]
    tensor = tape.tensors[tape.tensor_numbers[event]]
    return Allocation(law, tape.ops[op], role or tape.roles[op], tensor)


def _neighbours(known: Sequence[CompiledSize], batch: int) -> tuple[CompiledSize, CompiledSize]:
    """Give the two known sizes around a batch, or the two at the end that it lies beyond."""
    ordered = sorted(known, key=lambda size: size.batch)
    if len(ordered) == 1:
        return ordered[0], ordered[0]
    after = next((n for n, size in enumerate(ordered) if size.batch >= batch), len(ordered) - 1)
    after = max(after, 1)
    return ordered[after - 1], ordered[after]
