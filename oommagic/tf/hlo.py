"""Reads what XLA says of a compiled program's memory: which buffer lies where, and when.

XLA packs everything that a program needs for a while into one allocation, and says in a trace
(`HeapSimulatorTrace`) in which order buffers come and go. Replayed to its fullest moment, it
tells what shared that allocation; each buffer leads back to the op that it was compiled from.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.report import Holding, HoldingKind
from oommagic.tf.layers import role_of

keep_builtins(globals())

# Kinds of events in a HeapSimulatorTrace. The third, SHARE_WITH, is what remains.
_ALLOC, _FREE = 0, 1

_ARGUMENTS = "XLA_Args"
_SUM = re.compile(r"(?:.*/)?AddN(?:_\d+)?")
"""Adds the gradients that come back to one tensor from several layers; it names none of them."""

_FARTHEST = 12
"""So many instructions away an op's name is still looked for."""

_TYPE = re.compile(r"(BF|F|S|U|C)(\d+)(.*)")
_TYPE_WORDS = {"BF": "bfloat", "F": "float", "S": "int", "U": "uint", "C": "complex"}


@dataclass(frozen=True, slots=True)
class CompiledBuffers:
    """The memory of one compiled program, by allocation."""

    temporary_bytes: tuple[int, ...]
    """Each allocation for the time of the run, largest first; on a CPU there is one."""
    temporary: tuple[Holding, ...]
    """What these hold at their fullest; adds up to `temporary_bytes`."""
    arguments: tuple[tuple[int, int], ...]
    """Number and bytes of each parameter: weights, slots, the batch."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A buffer's place within an allocation."""

    buffer: Any
    offset: int
    bytes: int


def read_buffers(program: Any) -> CompiledBuffers:
    """Read an `HloProto` with its buffer assignment."""
    return CompiledBuffers(
        tuple(sorted(temporary_sizes(program), reverse=True)),
        _held_in(program, _temporary(program)),
        tuple(
            (a.parameter_number, a.size)
            for a in program.buffer_assignment.buffer_allocations
            if a.is_entry_computation_parameter
        ),
    )


def read_largest(program: Any) -> tuple[Holding, ...]:
    """Tell what the largest allocation for the run holds at its fullest; adds up to its bytes."""
    largest = max(_temporary(program), key=_size, default=None)
    return () if largest is None else _held_in(program, [largest])


def temporary_sizes(program: Any) -> list[int]:
    """Give the bytes of each allocation that the program takes for the time of its run."""
    return [allocation.size for allocation in _temporary(program)]


def _temporary(program: Any) -> list[Any]:
    return [each for each in program.buffer_assignment.buffer_allocations if _is_temporary(each)]


def _size(allocation: Any) -> int:
    size: int = allocation.size
    return size


def _held_in(program: Any, allocations: Iterable[Any]) -> tuple[Holding, ...]:
    """Tell what allocations hold at the fullest moment; adds up to their bytes."""
    owners = _Owners(program.hlo_module)
    assignment = program.buffer_assignment
    buffers = {buffer.id: buffer for buffer in assignment.logical_buffers}
    live, dead = _live_at_peak(assignment.heap_simulator_traces, buffers)
    held: list[Holding] = []
    for allocation in allocations:
        assigned = (a for a in allocation.assigned if a.logical_buffer_id not in dead)
        places = [_Place(buffers[a.logical_buffer_id], a.offset, a.size) for a in assigned]
        held += _holdings(allocation.size, places, live, owners)
    return _together(held)


def _is_temporary(allocation: Any) -> bool:
    """Say whether it is taken from the device's allocator, and given back after the run."""
    return not (
        allocation.is_entry_computation_parameter
        or allocation.is_constant
        or allocation.is_thread_local
        or allocation.maybe_live_out
    )


def _live_at_peak(traces: Iterable[Any], buffers: Mapping[int, Any]) -> tuple[set[int], set[int]]:
    """Tell the buffers in the traces that are in use at the fullest moment, and those that are not.

    A buffer that shares another's place takes it over; the place is free when both are.
    """
    live: set[int] = set()
    traced: set[int] = set()
    for trace in traces:
        sizes = [in_use for in_use, _ in _replay(trace.events, buffers)]
        fullest = max(range(len(sizes)), key=sizes.__getitem__, default=-1)
        for number, (_, places) in enumerate(_replay(trace.events, buffers)):
            if number == fullest:
                live |= {members[-1] for members in places.values()}
                break
        traced |= {event.buffer_id for event in trace.events}
    return live, traced - live


def _replay(
    events: Iterable[Any], buffers: Mapping[int, Any]
) -> Iterator[tuple[int, Mapping[int, list[int]]]]:
    """Give after each event the bytes in use, and who shares each place, the newest last."""
    in_use = 0
    places: dict[int, list[int]] = {}
    place_of: dict[int, int] = {}
    for event in events:
        buffer = event.buffer_id
        if event.kind == _ALLOC:
            place_of[buffer] = buffer
            places[buffer] = [buffer]
            in_use += buffers[buffer].size
        elif event.kind == _FREE:
            place = place_of[buffer]
            places[place].remove(buffer)
            if not places[place]:
                del places[place]
                in_use -= buffers[place].size
        else:
            # It may take over a place that was given up for it the moment before.
            place = place_of[buffer] = place_of[event.share_with_canonical_id]
            in_use += 0 if place in places else buffers[place].size
            places.setdefault(place, []).append(buffer)
        yield in_use, places


def _holdings(
    size: int, places: Iterable[_Place], live: set[int], owners: "_Owners"
) -> list[Holding]:
    """Charge each byte of an allocation once; what lies between buffers is rounding.

    Buffers without a trace have a place of their own, or lie within another's.
    """
    held = []
    charged_to = 0
    first = sorted(places, key=lambda p: (p.offset, p.buffer.id not in live, -p.bytes))
    for place in first:
        end = min(place.offset + place.bytes, size)
        own = end - max(place.offset, charged_to)
        if own > 0:
            held.append(replace(owners.holding(place.buffer), bytes=own))
            charged_to = end
    rest = size - sum(holding.bytes for holding in held)
    return [*held, Holding("rounding", rest)] if rest else held


def _together(holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    """Count equal holdings as one, largest first."""
    alike: dict[Holding, list[int]] = defaultdict(list)
    for holding in holdings:
        alike[replace(holding, bytes=0)].append(holding.bytes)
    merged = [replace(one, bytes=sum(all_), count=len(all_)) for one, all_ in alike.items()]
    return tuple(sorted(merged, key=lambda holding: -holding.bytes))


class _Owners:
    """Leads a buffer back to the op and the layer that it was compiled from."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._instructions = {i.id: i for c in module.computations for i in c.instructions}
        self._computations = {c.id: c for c in module.computations}

    def holding(self, buffer: Any) -> Holding:
        """Describe a buffer, but for its bytes."""
        place = buffer.defined_at
        instruction = self._instructions.get(place.instruction_id)
        if instruction is None:
            return Holding("unknown", 0)
        shape, dtype = _shape(instruction.shape, place.shape_index)
        if shape is None:
            return Holding("workspace", 0)
        op = self._own_op(instruction)
        if op:
            role = role_of(op)
            if role.kind == "weights" and not role.layer:
                near = self._nearest_op(instruction)
                role = replace(role, layer=role_of(near).layer)
            if not role.layer and _SUM.fullmatch(op):
                addend = self._search(instruction, self._sources_of, _is_layer_s)
                role = role_of(addend) if addend else role
            return Holding(role.kind, 0, role.layer, op, shape=shape, dtype=dtype)
        # The compiler's own: a copy in another layout, a counter, a padded array.
        op = self._nearest_op(instruction)
        layer = role_of(op).layer if op else ""
        kind: HoldingKind = "workspace" if op else "unknown"
        return Holding(kind, 0, layer, op, shape=shape, dtype=dtype)

    def _own_op(self, instruction: Any) -> str:
        """Give the op that an instruction computes: its own, or the last one fused into it."""
        op: str = instruction.metadata.op_name
        if op and not op.startswith(_ARGUMENTS):
            return op
        for number in instruction.called_computation_ids:
            inner = self._computations[number]
            if len(inner.instructions) > 1 and instruction.opcode in {"fusion", "call"}:
                named = [i.metadata.op_name for i in inner.instructions if i.opcode != "parameter"]
                last = next((name for name in reversed(named) if name), "")
                if last:
                    return last
        return ""

    def _nearest_op(self, instruction: Any) -> str:
        """Find whom a nameless buffer serves: the first that uses it, else whom it comes from.

        A layer is meant rather than the optimizer, which in the end uses every gradient.
        """
        ways = (self._users_of, self._sources_of)
        return next(
            filter(None, (self._search(instruction, way, _is_layer_s) for way in ways)), ""
        ) or next(filter(None, (self._search(instruction, way, bool) for way in ways)), "")

    def _search(
        self,
        start: Any,
        neighbours: Callable[[Any], Iterable[int]],
        is_wanted: Callable[[str], bool],
    ) -> str:
        seen = {start.id}
        ring = [start]
        for _ in range(_FARTHEST):
            near = [n for i in ring for n in neighbours(i) if n in self._instructions]
            ring = [self._instructions[n] for n in dict.fromkeys(near) if n not in seen]
            seen.update(i.id for i in ring)
            op = next((op for op in map(self._own_op, ring) if op and is_wanted(op)), "")
            if op:
                return op
        return ""

    def _users_of(self, instruction: Any) -> Sequence[int]:
        """Give who reads it; what a computation ends with is read where that is called."""
        caller = self._callers.get(self._home[instruction.id])
        is_last = self._computations[self._home[instruction.id]].root_id == instruction.id
        called = (
            [caller] if caller is not None and (is_last or not self._users[instruction.id]) else []
        )
        return [*self._users[instruction.id], *called]

    def _sources_of(self, instruction: Any) -> Sequence[int]:
        """Give what it reads; a parameter is read where its computation is called."""
        caller = self._callers.get(self._home[instruction.id])
        return [*instruction.operand_ids, *([] if caller is None else [caller])]

    @cached_property
    def _users(self) -> Mapping[int, list[int]]:
        users: dict[int, list[int]] = defaultdict(list)
        for instruction in self._instructions.values():
            for operand in instruction.operand_ids:
                users[operand].append(instruction.id)
        return users

    @cached_property
    def _home(self) -> Mapping[int, int]:
        return {i.id: c.id for c in self._module.computations for i in c.instructions}

    @cached_property
    def _callers(self) -> Mapping[int, int]:
        return {
            computation: instruction.id
            for instruction in self._instructions.values()
            for computation in instruction.called_computation_ids
        }


def _is_layer_s(op: str) -> bool:
    role = role_of(op)
    return bool(role.layer) and role.kind not in {"weights", "optimizer slots", "workspace"}


def _shape(shape: Any, index: Iterable[int]) -> tuple[tuple[int, ...] | None, str]:
    """Give a buffer's shape and data type; no shape for a list of pointers to others."""
    from tensorflow.compiler.xla import xla_data_pb2

    for number in index:
        shape = shape.tuple_shapes[number]
    name = xla_data_pb2.PrimitiveType.Name(shape.element_type)
    if name == "TUPLE":
        return None, ""
    return tuple(shape.dimensions), _type_word(name)


def _type_word(name: str) -> str:
    """Say `F32` as TensorFlow does: `float32`."""
    match = _TYPE.fullmatch(name)
    if match is None:
        return "bool" if name == "PRED" else name.lower()
    return _TYPE_WORDS[match[1]] + match[2] + match[3].lower()
