"""Steps that ran at a few batch sizes, rewritten for any other: each allocation by its own law.

An allocation is told from the others of its step by its op, by whether it is scratch memory, and
by how often that op has allocated before. Seen at two sizes or more, its bytes lie on a line
through the two largest. Seen at one size only, its shape tells: the sizes that ran are primes, so
that a dimension that is a multiple of one is the batch's. What stays after its step, as weights
and slots do, and what has the shape of one, does not grow with the batch unless it was seen to.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from types import MappingProxyType

from oommagic.recording import CompiledSize, OpRole, StepTapes, Tape

Key = tuple[str, int, int]

INHERITED = 1 << 40

_MANY = 4096
_CRUMB_BYTES = 2048
"""What takes no more than that at so many samples, and is freed by its own step, goes into gaps
that are always there. To leave it out changes no peak, and makes scripts much shorter."""


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
    """What one tape allocates and frees, in its order.

    An event is the number of an allocation, or its bitwise complement where it is freed again.
    From `INHERITED` on they are numbers of what earlier tapes had left.
    """

    batch: int
    allocations: tuple[Allocation, ...]
    events: tuple[int, ...]
    inherited: tuple[Allocation, ...]
    """What earlier tapes had left and this one frees."""


@dataclass(frozen=True, slots=True)
class Scripts:
    """All that is needed to replay a run at any batch size, from its beginning."""

    before: tuple[tuple[int, OpRole], ...]
    """What was in use before anything was recorded."""
    made: Script | None
    """The making of the model, if that was recorded."""
    first: Script
    """The first step of all: it also makes the optimizer's slots."""
    others: Mapping[int, tuple[Script, ...]]
    """More steps, by the batch size at which they ran."""
    batch_law: Law

    def runs(self, batch: int) -> list[tuple[Script, ...]]:
        """Give steps of a run at that size: the first of all, and those of one size that ran.

        The size that is nearest comes first: ops race, and at other sizes they race otherwise;
        some even choose other algorithms.
        """
        nearest_first = sorted(self.others, key=lambda size: abs(log(size / batch)))
        return [(self.first, *self.others[size]) for size in nearest_first] or [(self.first,)]


def scripts_of(tapes: StepTapes) -> Scripts:
    """Give the scripts of the steps, and what was there before them.

    The first step of a further size also prepares what the others need, as no step of a run does:
    it only tells how allocations grow.
    """
    laws = _Laws(tapes)
    left: dict[int, Allocation] = {}
    made = None if tapes.made is None else _script(0, tapes.made, laws, left, _roles(tapes))
    first, *scripts = [_script(step.batch, step.tape, laws, left) for step in tapes.steps]
    others = {first.batch: [script for script in scripts if script.batch == first.batch]}
    for size in sorted({script.batch for script in scripts} - {first.batch}):
        _, *others[size] = [script for script in scripts if script.batch == size]
    return Scripts(
        before=tuple(_before(tapes)),
        made=made,
        first=first,
        others={size: tuple(steps) for size, steps in others.items() if steps},
        batch_law=laws.of_batch(),
    )


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
    keys = dict(_keyed(tape))
    live: dict[int, int | None] = {}
    for event, (address, size) in enumerate(zip(tape.addresses, tape.bytes, strict=True)):
        if size > 0:
            law = laws.of(keys[event], tape, event, batch, stays=event in staying)
            if event not in staying and law.at(_MANY) <= _CRUMB_BYTES:
                live[address] = None
                continue
            live[address] = len(allocations)
            events.append(len(allocations))
            role = roles.get(address) if event in staying else None
            allocations.append(_allocation(tape, event, law, role))
        elif address in live:
            number = live.pop(address)
            events += [] if number is None else [~number]
        elif address in left:
            events.append(INHERITED + len(inherited))
            inherited.append(left.pop(address))
    left.update((address, allocations[n]) for address, n in live.items() if n is not None)
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
