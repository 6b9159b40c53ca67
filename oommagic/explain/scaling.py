"""Steps that ran at a few batch sizes, rewritten for any other: each allocation by its own law.

An allocation is told from the others of its step by its op, by its type, by whether it is scratch
memory, and by how often that op has allocated such before. Seen at two sizes or more, its bytes lie
on the lines that join them. Seen at one size only, its shape tells: the sizes that ran are primes,
so that a dimension that is a multiple of one is the batch's; only a cell's own steps have the size
that they have. What stays after its step, as weights and slots do, and what has the shape of one,
does not grow with the batch unless it was seen to.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import log
from types import MappingProxyType

from oommagic.curve import Curve
from oommagic.explain.ownership import LASTING
from oommagic.recording import OpRole, StepTapes, Tape
from oommagic.units import MIB

Key = tuple[str, int, str, int]

INHERITED = 1 << 40

_OF_MODELS = LASTING - {"data"}

_NEAR, _GRAIN = 0.001, 256
"""So close to a line counts as on it: by share, and by what the allocator rounds up to."""
_SMALL_WORKSPACE_BYTES = MIB
_DOUBT, _DOUBT_OF_FIT = 0.003, 0.05
"""Of what XLA told at a size; and of what it did not tell, where it is to fit for sure."""
_SMALL_FACTOR = 5
"""Of so little many sizes are a multiple by chance."""


@dataclass(frozen=True, slots=True)
class Law:
    """How many bytes an allocation asks for: `fixed` and `per_sample` for each of the batch.

    `per_pair` is for each two of them, as where a loss holds all samples against all.
    """

    fixed: float
    per_sample: float = 0.0
    per_pair: float = 0.0

    def at(self, batch: int) -> int:
        """Give the bytes at one batch size."""
        return max(round(self.fixed + (self.per_sample + self.per_pair * batch) * batch), 1)


@dataclass(frozen=True, slots=True)
class Edge:
    """The least or the most that is asked for where a law is known at some sizes only."""

    law: Curve
    is_most: bool
    doubt_between: float = 0.015
    """Where XLA did not tell the size, it may choose otherwise."""

    def at(self, batch: int) -> int:
        """Give the bytes at one batch size."""
        least, most = self.law.range_at(batch)
        doubt = _DOUBT if batch in dict(self.law.known) else self.doubt_between
        return max(round(most * (1 + doubt) if self.is_most else least * (1 - doubt)), 1)


@dataclass(frozen=True, slots=True)
class Line:
    """What is asked for where a law is taken to stay on the lines between the sizes it knows."""

    law: Curve

    def at(self, batch: int) -> int:
        """Give the bytes at one batch size: at a known one as much as `Edge` has as the most."""
        return max(round(self.law.at(batch) * (1 + _DOUBT)), 1)


@dataclass(frozen=True, slots=True)
class Allocation:
    """One allocation of a script, and what it is for."""

    law: Law | Curve | Edge | Line
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

    def of_what_stays(self) -> "Script":
        """Leave out what it frees again itself."""
        freed = {~event for event in self.events if event < 0}
        staying = (event for event in self.events if event >= 0 and event not in freed)
        return replace(self, events=tuple(staying))


@dataclass(frozen=True, slots=True)
class Scripts:
    """All that is needed to replay a run at any batch size, from its beginning."""

    before: tuple[Allocation, ...]
    """What was in use before anything was recorded."""
    made: Script | None
    """The making of the model, if that was recorded."""
    prepared: Script | None
    """The making of the first step's data, likewise."""
    first: Script
    """The first step of all: it also makes the optimizer's slots."""
    others: Mapping[int, tuple[Script, ...]]
    """More steps, by the batch size at which they ran."""
    compiled_law: Curve | None = None
    """Of the one allocation that holds all of a step that XLA compiled."""

    def run(self, batch: int) -> tuple[Script, ...]:
        """Give steps of a run at that size: the first of all, and those that ran nearest to it.

        Ops race, and at other sizes they race otherwise; some even choose other algorithms.
        """
        return (self.first, *self.others.get(self._nearest(batch), ()))

    def begun_otherwise(self) -> "Scripts":
        """Let another step than the recorded first be the first one, which decides what lies where.

        Only what the recorded one leaves is made beforehand.
        """
        return replace(self, first=self.first.of_what_stays()) if self.others else self

    def nearest(self, batch: int) -> "Scripts":
        """Leave out all but the first step of all, and those that ran nearest to a size."""
        _, *steps = self.run(batch)
        return self._doing(steps)

    def alike(self, batch: int) -> "Scripts":
        """Leave out sizes with other scratch memory than the one that ran nearest to this."""
        near = self._nearest(batch)
        others = {
            size: self.others[size] for size in self.others if self._is_alike(size, near, batch)
        }
        return replace(self, others=others)

    def together(self) -> "Scripts":
        """Let a run do all steps that were recorded, one of each size in its turn."""
        return self._doing(self._in_turns())

    def in_runs(self, count: int, steps: int) -> "tuple[Scripts, ...]":
        """Make runs of a few steps each: of all that were recorded, in ever other orders."""
        recorded = self._in_turns()
        strides = range(1, count + 1) if recorded else ()
        runs = (
            self._doing(recorded[(first + turn * stride) % len(recorded)] for turn in range(steps))
            for first, stride in enumerate(strides)
        )
        return tuple(runs) or (self,)

    def _in_turns(self) -> list[Script]:
        turns = zip_longest(*self.others.values())
        return [script for turn in turns for script in turn if script is not None]

    def _doing(self, steps: Iterable[Script]) -> "Scripts":
        """Let a run do these steps, whatever their size."""
        chosen = tuple(steps)
        return replace(self, others={self.first.batch: chosen} if chosen else {})

    def of_usual_sizes(self) -> "Scripts":
        """Leave out sizes below the first one: ops on so few samples race otherwise."""
        usual = {size: steps for size, steps in self.others.items() if size >= self.first.batch}
        return replace(self, others=usual)

    def doubtful_workspace(self, batch: int) -> tuple[int, int]:
        """Give the scratch memory that may fall away, or come on top, at that size.

        A kernel takes some at one size that ran and none at another; where between them it begins
        to is not known.
        """
        near = self._workspace(self._nearest(batch))
        far = self._workspace(self._across(batch))
        return _more(near, far, batch), _more(far, near, batch)

    def is_first_alike(self, batch: int) -> bool:
        """Say whether the first step of all takes the scratch memory of those nearest to a size."""
        return self._is_alike(self.first.batch, self._nearest(batch), batch)

    def _is_alike(self, size: int, other: int, batch: int) -> bool:
        one, another = self._workspace(size), self._workspace(other)
        return not (_more(one, another, batch) or _more(another, one, batch))

    def _nearest(self, batch: int) -> int:
        return min(self.others, key=lambda size: abs(log(size / batch)), default=0)

    def _across(self, batch: int) -> int:
        """Give the size on the other side of the batch, or the nearest where there is none."""
        nearest = self._nearest(batch)
        beyond = [size for size in self.others if (size > batch) != (nearest > batch)]
        return min(beyond, key=lambda size: abs(log(size / batch)), default=nearest)

    def _workspace(self, size: int) -> Mapping[str, Allocation]:
        steps = self.others.get(size, ())
        return {
            one.op: one
            for step in steps
            for one in step.allocations
            if one.role.kind == "workspace"
        }


def _more(ops: Mapping[str, Allocation], others: Mapping[str, Allocation], batch: int) -> int:
    """Add up the scratch memory of note that only the first of two sizes takes."""
    sizes = (one.law.at(batch) for op, one in ops.items() if op not in others)
    return sum(size for size in sizes if size > _SMALL_WORKSPACE_BYTES)


def at_edge(scripts: Scripts, *, is_most: bool) -> Scripts:
    """Let the compiled step ask for the least, or the most, that its law allows."""
    return _asking_by(lambda law: Edge(law, is_most), scripts)


def at_worst(scripts: Scripts) -> Scripts:
    """Let the compiled step ask for the most that it surely stays below."""
    return _asking_by(lambda law: Edge(law, is_most=True, doubt_between=_DOUBT_OF_FIT), scripts)


def on_lines(scripts: Scripts) -> Scripts:
    """Let the compiled step ask for what lies between the sizes that XLA has told."""
    return _asking_by(Line, scripts)


def _asking_by(of: Callable[[Curve], Edge | Line], scripts: Scripts) -> Scripts:
    law = scripts.compiled_law
    if law is None:
        return scripts
    other = of(law)

    def moved(script: Script) -> Script:
        allocations = (
            replace(one, law=other) if one.law is law else one for one in script.allocations
        )
        return replace(script, allocations=tuple(allocations))

    others = {size: tuple(map(moved, steps)) for size, steps in scripts.others.items()}
    return replace(scripts, first=moved(scripts.first), others=others)


def scripts_of(tapes: StepTapes) -> Scripts:
    """Give the scripts of the steps, and what was there before them.

    The first step of a further size also prepares what the others need, as no step of a run does:
    it only tells how allocations grow.
    """
    laws = _Laws(tapes)
    before = tuple(_before(tapes))
    left = {chunk.address: chunk.allocation for chunk in before if chunk.address}
    made_at = tapes.steps[0].batch if tapes.is_of_a_cell else 0
    roles = _roles(tapes)
    made = prepared = None
    if tapes.made is not None:
        made = _script(made_at, tapes.made, laws.on(tapes.made, made_at), left, roles)
    if tapes.prepared is not None:
        ran_at = tapes.steps[0].batch
        prepared = _script(ran_at, tapes.prepared, laws.of_data(tapes.prepared, ran_at), left)
    first, *scripts = [
        _script(step.batch, step.tape, laws.on(step.tape, step.batch), left, roles)
        for step in tapes.steps
    ]
    others = {first.batch: [script for script in scripts if script.batch == first.batch]}
    for size in sorted({script.batch for script in scripts} - {first.batch}):
        _, *others[size] = [script for script in scripts if script.batch == size]
    return Scripts(
        before=tuple(chunk.allocation for chunk in before),
        made=made,
        prepared=prepared,
        first=first,
        others={size: tuple(steps) for size, steps in others.items() if steps},
        compiled_law=laws.of_compiled,
    )


def _roles(tapes: StepTapes) -> Mapping[int, OpRole]:
    """Give by address what the model holds: ops that made it often do not say for what."""
    return {held.address: OpRole(held.kind, held.layer) for held in tapes.held}


@dataclass(frozen=True, slots=True)
class _Before:
    """A piece of memory that was in use before anything was recorded; 0: nobody knows where."""

    address: int
    allocation: Allocation


def _before(tapes: StepTapes) -> Iterator[_Before]:
    """Give what was there before: what the tapes see freed, what names held of it, and the rest."""
    everything = _everything(tapes)
    roles = _roles(tapes)
    known: dict[int, int] = {}
    seen: set[int] = set()
    for tape in everything:
        for address, size in zip(tape.addresses, tape.bytes, strict=True):
            if size < 0 and address not in seen:
                known[address] = -size
            seen.add(address)
    for held in tapes.held:
        if held.address not in seen:
            known[held.address] = held.bytes
    rest = everything[0].before_bytes
    for address, size in sorted(known.items()):
        if size <= rest:
            rest -= size
            yield _Before(address, _lying(size, roles.get(address, OpRole("unknown"))))
    if rest:
        yield _Before(0, _lying(rest, OpRole("unknown")))


def _lying(size: int, role: OpRole) -> Allocation:
    return Allocation(Law(size), "", role, (None, ""))


_LawsOfEvents = Mapping[int, Law | Curve]
"""By the event of a tape that allocates."""


class _Laws:
    """The law of each allocation that was seen at several sizes."""

    def __init__(self, tapes: StepTapes) -> None:
        self._compiled = {size.batch: size.temporary_bytes for size in tapes.compiled}
        self.of_compiled = _curve(self._compiled) if len(self._compiled) > 1 else None
        self._is_of_a_cell = tapes.is_of_a_cell
        self._row_bytes = tapes.row_bytes
        self._weights = _shapes_that_stay(tapes)
        self._seen: dict[Key, dict[int, int]] = defaultdict(dict)
        for step in tapes.steps:
            for event, key in self._known_by_op(step.tape):
                # A later step goes before: the first of a size also prepares its graph.
                self._seen[key][step.batch] = step.tape.requested_bytes[event]

    def _known_by_op(self, tape: Tape) -> Iterator[tuple[int, Key]]:
        """Leave out what a compiled step gives back: it has no op's name, nor an order."""
        for event, key in _keyed(tape):
            if key[0] or self.of_compiled is None:
                yield event, key

    def on(self, tape: Tape, batch: int) -> _LawsOfEvents:
        """Give the law of each allocation of a tape of that batch size."""
        staying = _staying(tape)
        return {
            event: self._of(key, tape, event, batch, stays=event in staying)
            for event, key in _keyed(tape)
        }

    def of_data(self, tape: Tape, batch: int) -> _LawsOfEvents:
        """Give the law of each allocation for data: an array's, or none of the batch's business."""
        laws = {batch * size: Law(0, size) for size in self._row_bytes}
        requested = enumerate(tape.requested_bytes)
        return {event: laws.get(asked, Law(asked)) for event, asked in requested}

    def _of(self, key: Key, tape: Tape, event: int, batch: int, *, stays: bool) -> Law | Curve:
        """Give the law of one allocation that was made at that batch size."""
        requested = tape.requested_bytes[event]
        if not batch:
            return Law(requested)
        told = self._compiled.get(batch)
        if self.of_compiled is not None and told and not stays and _is_near(requested, told):
            return self.of_compiled
        seen = self._seen[key]
        shape, _ = tape.tensors[tape.tensor_numbers[event]]
        if len(seen) > 1:
            points = {**seen, batch: requested}
            return (_law_of_pairs(points) if _has_pairs(shape, batch) else None) or _law(points)
        is_fixed = stays or shape in self._weights
        if is_fixed or not self._is_of_batch(shape, requested, batch):
            return Law(requested)
        return Law(0, requested / batch)

    def _is_of_batch(self, shape: tuple[int, ...] | None, requested: int, batch: int) -> bool:
        """Tell by a side; a cell's batch may be a layer's size, of which others are multiples.

        What TensorFlow works out beforehand for a step that it then has compiled has no shape, but
        no other side is a multiple of the batch either.
        """
        if not shape:
            is_told = self.of_compiled is not None and batch > _SMALL_FACTOR
            return is_told and requested % batch == 0
        if self._is_of_a_cell:
            return (shape[0] > 0 and shape[0] % batch == 0) or batch in shape
        return any(size and size % batch == 0 for size in shape)


def _shapes_that_stay(tapes: StepTapes) -> frozenset[tuple[int, ...]]:
    """Give the shapes of what outlasts its tape: weights', and so their gradients' and slots'."""
    made_here = (
        shape
        for tape in _everything(tapes)
        for event in _staying(tape)
        if (shape := tape.tensors[tape.tensor_numbers[event]][0])
        and (tape.roles[tape.op_numbers[event]].kind in _OF_MODELS or not tapes.is_of_a_cell)
    )
    held = (one.shape for one in tapes.held if one.shape and one.kind in _OF_MODELS)
    return frozenset([*made_here, *held])


def _everything(tapes: StepTapes) -> list[Tape]:
    before = [tape for tape in (tapes.made, tapes.prepared) if tape is not None]
    return [*before, *(step.tape for step in tapes.steps)]


def _law(points: Mapping[int, int]) -> Law | Curve:
    """Join what was asked for at a few sizes; what shrinks with the batch counts as fixed."""
    ordered = sorted(points.items())
    line = _line(*([(0, 0), *ordered][-2:]))
    if line.per_sample < 0:
        return Law(ordered[-1][1])
    if all(_is_near(line.at(size), asked) for size, asked in ordered):
        return line
    return Curve(tuple(ordered))


def _has_pairs(shape: tuple[int, ...] | None, batch: int) -> bool:
    """Tell whether two sides may be the batch's; only other sizes tell whether they are."""
    return sum(size > 0 and size % batch == 0 for size in shape or ()) > 1


def _law_of_pairs(points: Mapping[int, int]) -> Law | None:
    """Give the law by which bytes grow with the square of the batch, if all of them do."""
    largest = max(points)
    law = Law(0, 0, points[largest] / largest**2)
    is_so = all(abs(law.at(size) - asked) <= _NEAR * asked for size, asked in points.items())
    return law if is_so else None


def _curve(points: Mapping[int, int]) -> Curve:
    """Join what XLA told: where it is on a line, it need not stay on it."""
    return Curve(tuple(sorted(points.items())))


def _line(before: tuple[int, int], last: tuple[int, int]) -> Law:
    (small, few), (large, many) = before, last
    slope = (many - few) / (large - small)
    return Law(many - slope * large, slope)


def _is_near(one: int, other: int) -> bool:
    return abs(one - other) <= max(_NEAR * other, _GRAIN)


def _keyed(tape: Tape) -> Iterator[tuple[int, Key]]:
    """Give each allocation's event, and what it is told by."""
    counts: Counter[tuple[str, int, str]] = Counter()
    for event, size in enumerate(tape.bytes):
        if size > 0:
            _, dtype = tape.tensors[tape.tensor_numbers[event]]
            kind = (tape.ops[tape.op_numbers[event]], tape.temporary[event], dtype)
            counts[kind] += 1
            yield event, (*kind, counts[kind])


def _script(
    batch: int,
    tape: Tape,
    laws: _LawsOfEvents,
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
    live: dict[int, int] = {}
    for event, (address, size) in enumerate(zip(tape.addresses, tape.bytes, strict=True)):
        if size > 0:
            live[address] = len(allocations)
            events.append(len(allocations))
            role = roles.get(address) if event in staying else None
            allocations.append(_allocation(tape, event, laws[event], role))
        elif address in live:
            events.append(~live.pop(address))
        elif address in left:
            events.append(INHERITED + len(inherited))
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
