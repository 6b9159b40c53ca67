"""Who held what of a device's memory at one moment: a tape replayed, and the names laid over it.

Each chunk that the allocator had handed out is charged once: what was asked for to its owner,
what the allocator gave beyond that to `rounding`, and what nobody can name to `unknown`. So the
holdings add up to the allocator's own figure.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from oommagic.explain.ownership import LASTING, Claim, apart, of_all, owners_at
from oommagic.explain.replay import Chunk, failing_event, moment_after, peak_event
from oommagic.recording import CompiledMemory, Held, LineTimes, Tape
from oommagic.report import Composition, Failure, Holding
from oommagic.units import format_bytes

_MOST_HOLDINGS = 400

_FUNCTION = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
_NUMBER = re.compile(r"_\d+$")


@dataclass(frozen=True, slots=True)
class Hints:
    """What else is known, for where neither an op nor a name tells whose memory it is."""

    compiled: Sequence[CompiledMemory] = ()
    line_times: LineTimes | None = None


_NO_HINTS = Hints()


def composition_at_peak(
    tape: Tape,
    held_before: Iterable[Held],
    held_after: Iterable[Held],
    run_peak_bytes: int | None = None,
    hints: Hints = _NO_HINTS,
) -> Composition:
    """Tell who held what when the device was fullest on the tape.

    `run_peak_bytes` is the allocator's peak of the whole run: where it is higher, that is said.
    """
    known = _Known(held_before, held_after, hints)
    composition = _composition(tape, peak_event(tape), "peak", known)
    more_bytes = (run_peak_bytes or 0) - composition.total_bytes
    if more_bytes <= 0:
        return composition
    when = "" if tape.is_whole else ", when nothing was recorded"
    note = (
        f"{_recorded_part(tape, composition.total_bytes)} The peak of the whole run was "
        f"{format_bytes(more_bytes)} higher{when}."
    )
    return _of_the_recorded(composition, note)


def composition_at_failure(
    tape: Tape,
    held_before: Iterable[Held],
    held_after: Iterable[Held],
    failure: Failure | None,
    hints: Hints = _NO_HINTS,
) -> Composition:
    """Tell who held what when an allocation failed; if the tape had ended by then, at its peak."""
    known = _Known(held_before, held_after, hints)
    event = failing_event(tape, failure)
    if event is not None or tape.is_whole:
        event = peak_event(tape) if event is None else event
        return _composition(tape, event, "failure", known)
    composition = _composition(tape, peak_event(tape), "peak", known)
    part = _recorded_part(tape, composition.total_bytes)
    return _of_the_recorded(composition, f"{part} It ran out later, when nothing was recorded.")


def composition_of_names(
    device: str,
    in_use_bytes: int,
    held: Iterable[Held],
    moment: Literal["peak", "failure"] = "peak",
) -> Composition:
    """Tell what names hold of a device where there is no tape; the rest is unknown."""
    claims = [Claim(one, one.bytes) for one in _on(device, held)]
    parts, left = _settled(apart(claims), in_use_bytes)
    return Composition(device, moment, in_use_bytes, _holdings(parts, left), "names")


@dataclass(frozen=True, slots=True)
class _Known:
    """What names held when the run began and when it had ended, and what else is known."""

    before: Iterable[Held]
    after: Iterable[Held]
    hints: Hints


@dataclass(frozen=True, slots=True)
class _Part:
    """What a piece of memory is, or several from one op."""

    holding: Holding
    rounding_bytes: int


def _on(device: str, held: Iterable[Held]) -> list[Held]:
    """Give what is held on a device, in an order of its own, the whole before its parts."""
    ours = [one for one in held if one.device == device]
    return sorted(ours, key=lambda one: (one.address, -one.bytes, one.owner, one.kind, one.layer))


def _recorded_part(tape: Tape, bytes_: int) -> str:
    """Say of which part of the run the figures are."""
    steps = max(Counter(name for _, _, name in tape.steps).values(), default=0)
    part = {0: "of what was recorded", 1: "of the step that was recorded"}.get(
        steps, f"of the {steps} steps that were recorded"
    )
    return f"At the highest point {part}: {format_bytes(bytes_)}."


def _of_the_recorded(composition: Composition, note: str) -> Composition:
    whole_note = " ".join(filter(None, (note, composition.note)))
    return replace(composition, moment="recorded", note=whole_note)


def _composition(
    tape: Tape, event: int, called: Literal["peak", "failure"], known: _Known
) -> Composition:
    moment = moment_after(tape, event)
    before, after = _names_at_its_ends(tape, known)
    owners = owners_at(tape, moment, before, after)
    step = _compiled_step(tape, moment.taped, known.hints.compiled)
    opened = [] if step is None else list(_opened(*step))
    closed = [chunk for chunk in moment.taped if not opened or step is None or chunk is not step[0]]
    parts = _taped_parts(tape, closed, owners.of_taped, known.hints.line_times)
    left = moment.total_bytes - sum(chunk.bytes for chunk in moment.taped)
    settled, unknown = _settled(owners.of_earlier, left, known.hints.line_times)
    return Composition(
        device=tape.device,
        moment=called,
        total_bytes=moment.total_bytes,
        holdings=_holdings([*opened, *parts, *settled], unknown),
        source="compiled buffers" if opened else "tape",
        note="" if step is None else step[1].note,
    )


def _names_at_its_ends(tape: Tape, known: _Known) -> tuple[list[Held], list[Held]]:
    """Give what names held when the tape began and ended, else when the run did.

    What the last error holds is looked for when the run begins and ends alone: what is there both
    times, by the same owner, was there throughout.
    """
    before = known.before if tape.names_before is None else tape.names_before.held
    after = known.after if tape.names_after is None else tape.names_after.held
    own = {0, *(held.address for held in before)}  # 0: where it lies is not known
    still = {(held.owner, held.address, held.bytes) for held in known.after if held.owner}
    throughout = (
        held
        for held in known.before
        if (held.owner, held.address, held.bytes) in still and held.address not in own
    )
    return _on(tape.device, [*before, *throughout]), _on(tape.device, after)


def _compiled_step(
    tape: Tape, chunks: Iterable[Chunk], compiled: Iterable[CompiledMemory]
) -> tuple[Chunk, CompiledMemory] | None:
    """Find the allocation of a compiled step, which tells no role and has the size asked for."""
    steps = {one.requested_bytes: one for one in compiled if one.device == tape.device}
    unknown = {number for number, role in enumerate(tape.roles) if role.kind == "unknown"}
    nameless = (chunk for chunk in chunks if tape.op_numbers[chunk.began] in unknown)
    found = (chunk for chunk in nameless if chunk.requested_bytes in steps)
    return next(((chunk, steps[chunk.requested_bytes]) for chunk in found), None)


def _opened(chunk: Chunk, step: CompiledMemory) -> Iterator[_Part]:
    """Give what lies in it instead of it, unless that is more than there is room for."""
    rest = chunk.bytes - sum(holding.bytes for holding in step.holdings)
    if step.holdings and rest >= 0:
        yield from (_Part(holding, 0) for holding in step.holdings)
        yield _Part(Holding("workspace", 0), rest)


def _taped_parts(
    tape: Tape,
    chunks: Iterable[Chunk],
    owners: Mapping[int, Held],
    line_times: LineTimes | None,
) -> Iterator[_Part]:
    """Describe chunks by the names that hold them, else by the op that asked for them."""
    alike: dict[tuple[int, int, int, int | None], list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        event = chunk.began
        op, tensor = tape.op_numbers[event], tape.tensor_numbers[event]
        if chunk.address in owners:
            alike[op, tensor, chunk.address, None].append(chunk)
        else:
            line = None if tape.roles[op].layer else _line_at(line_times, tape.times_s[event])
            alike[op, tensor, 0, line].append(chunk)
    for (op, tensor, named, line), members in alike.items():
        role = tape.roles[op]
        shape, dtype = tape.tensors[tensor]
        holding = Holding(
            kind=role.kind,
            bytes=sum(chunk.requested_bytes for chunk in members),
            layer=role.layer,
            op=_short(tape.ops[op], role.layer),
            shape=shape,
            dtype=dtype,
            count=len(members),
            line_number=line,
        )
        rounding = sum(chunk.bytes for chunk in members) - holding.bytes
        yield _Part(_held_by(holding, owners[named]) if named else holding, rounding)


def _line_at(line_times: LineTimes | None, time_s: float) -> int | None:
    """Tell which line of the cell ran at a time."""
    if line_times is None:
        return None
    place = bisect_right(line_times.times_s, time_s)
    return (line_times.line_numbers[place - 1] or None) if place else None


def _short(op: str, layer: str) -> str:
    """Shorten an op's name to what it does; its whole path where that names no layer."""
    path = _FUNCTION.sub("", op)
    return _NUMBER.sub("", path.rpartition("/")[2] if layer else path)


def _held_by(holding: Holding, held: Held) -> Holding:
    same_size = held.bytes == holding.bytes
    return replace(
        holding,
        kind=held.kind,
        layer=held.layer or ("" if held.kind in LASTING else holding.layer),
        op="" if held.owner else holding.op,
        owner=held.owner,
        shape=held.shape if same_size else holding.shape,
        dtype=held.dtype if same_size else holding.dtype,
    )


def _settled(
    claims: Iterable[Claim], left_bytes: int, line_times: LineTimes | None = None
) -> tuple[list[_Part], int]:
    """Let the surest claims have what there is, and give what remains."""
    parts = []
    for claim in sorted(claims, key=lambda one: (one.doubt, -one.chunk_bytes)):
        size = claim.held.bytes
        if size > left_bytes:
            continue
        rounding = min(max(0, claim.chunk_bytes - size), left_bytes - size)
        left_bytes -= size + rounding
        parts.append(_Part(_claimed(claim, line_times), rounding))
    return parts, left_bytes


def _claimed(claim: Claim, line_times: LineTimes | None) -> Holding:
    held, left = claim.held, claim.left
    holding = Holding(held.kind, held.bytes, held.layer, "", held.owner, held.shape, held.dtype)
    if left is None:
        return holding
    line = None if held.layer else _line_at(line_times, left.time_s)
    return replace(holding, op=_short(left.op, held.layer), line_number=line)


def _holdings(parts: Sequence[_Part], unknown_bytes: int) -> tuple[Holding, ...]:
    """Merge what is alike, the largest first, and keep the list short."""
    merged = _merged(_split(parts), _without_item)
    for coarser in (_without_tensor, _without_layer, _kind_alone):
        if len(merged) > _MOST_HOLDINGS:
            most = _MOST_HOLDINGS // 2
            merged = [*merged[:most], *_merged(merged[most:], coarser)]
    if unknown_bytes:
        merged.append(Holding("unknown", unknown_bytes))
    return tuple(sorted(merged, key=lambda holding: -holding.bytes))


def _split(parts: Iterable[_Part]) -> Iterator[Holding]:
    """Give each piece as what was asked for and what came with it unasked."""
    for part in parts:
        asked = part.holding
        if asked.bytes:
            yield asked
        if part.rounding_bytes:
            yield Holding(
                "rounding", part.rounding_bytes, asked.layer, owner=asked.owner, count=asked.count
            )


def _merged(holdings: Iterable[Holding], alike: Callable[[Holding], Holding]) -> list[Holding]:
    """Join holdings that are alike, with their sum and their number."""
    groups: dict[Holding, list[Holding]] = defaultdict(list)
    for holding in holdings:
        groups[replace(alike(holding), bytes=0, count=0)].append(holding)
    merged = [_joined(key, members) for key, members in groups.items()]
    return sorted(merged, key=lambda holding: -holding.bytes)


def _joined(key: Holding, members: Sequence[Holding]) -> Holding:
    owners = {member.owner for member in members}
    return replace(
        key,
        bytes=sum(member.bytes for member in members),
        count=sum(member.count for member in members),
        owner=owners.pop() if len(owners) == 1 else key.owner,
    )


def _without_item(holding: Holding) -> Holding:
    """One of many items is not told from the others."""
    return replace(holding, owner=of_all(holding.owner))


def _without_tensor(holding: Holding) -> Holding:
    return replace(_without_layer(holding), layer=holding.layer)


def _without_layer(holding: Holding) -> Holding:
    return Holding(holding.kind, 0, owner=of_all(holding.owner), line_number=holding.line_number)


def _kind_alone(holding: Holding) -> Holding:
    return Holding(holding.kind, 0)
