"""Finds a tape's events in the profiler's file: allocations, frees, and ops around them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from oommagic.own_builtins import keep_builtins
from oommagic.tf.xspace import MORE, Plane, fields, varint

keep_builtins(globals())

_ALLOCATION, _FREE = "MemoryAllocation", "MemoryDeallocation"
# Numbers of an event's fields in xplane.proto.
_OFFSET, _DURATION = 2, 3

# Events around allocations that no op made, and the op that they stand for.
_INSTEAD_OF_OP = {
    "tf.constant": "tf.constant",
    "convert_to_tensor": "convert_to_tensor",
    "TFE_Py_FastPathExecute_C": "convert_to_tensor",  # turns an op's arguments into tensors
}
_OF_DATA_SETS, _DATA_SET_OP = "Iterator::", "Iterator"


@dataclass(frozen=True, slots=True)
class Kinds:
    """The numbers of the kinds of events that are of use."""

    is_free: Mapping[int, bool]
    """Allocations and frees."""
    op_around: Mapping[int, int]
    """What stands for an op, and the op's number."""
    mark: int


@dataclass(slots=True)
class Found:
    """What one line of events has that is of use; times are in ps since the line began."""

    places: list[tuple[int, int]]
    """Where the allocations and frees stand in the file."""
    frees: list[bool]
    """Which of them are frees."""
    around: list[tuple[int, int, int]]
    """Begin and end of events that stand for an op, and that op's number."""
    mark: int | None = None


def with_more_ops(plane: Plane) -> Plane:
    """Give numbers to what is said of allocations without an op."""
    first = max(plane.stat_names, default=0) + 1
    more = enumerate(sorted({*_INSTEAD_OF_OP.values(), _DATA_SET_OP}), start=first)
    return replace(plane, stat_names={**plane.stat_names, **dict(more)})


def _instead_of_op(event: str) -> str:
    return _DATA_SET_OP if event.startswith(_OF_DATA_SETS) else _INSTEAD_OF_OP.get(event, "")


def kinds_in(plane: Plane, mark: str) -> Kinds:
    """Number the kinds of events that are of use; `mark` is one of them by its name."""
    by_name = {name: number for number, name in plane.event_names.items()}
    wanted = {by_name[name]: name == _FREE for name in (_ALLOCATION, _FREE) if name in by_name}
    numbers = {text: number for number, text in plane.stat_names.items()}
    ops = {number: _instead_of_op(name) for number, name in plane.event_names.items()}
    around = {number: numbers[op] for number, op in ops.items() if op}
    return Kinds(wanted, around, by_name.get(mark, 0))


def find_events(data: bytes, at: int, end: int, kinds: Kinds) -> Found:
    """Find the allocations and frees of one line, what is around them, and the mark."""
    found = Found([], [], [])
    while at < end:
        length, at = data[at + 1], at + 2
        if length >= MORE:
            length, at = varint(data, at - 1)
        until = at + length
        kind, inside = data[at + 1], at + 2
        if kind >= MORE:
            kind, inside = varint(data, at + 1)
        if kind in kinds.is_free:
            found.places.append((inside, until))
            found.frees.append(kinds.is_free[kind])
        elif kind in kinds.op_around:
            began, lasted = _span(data, inside, until)
            found.around.append((began, began + lasted, kinds.op_around[kind]))
        elif kind == kinds.mark:
            found.mark, _ = _span(data, inside, until)
        at = until
    return found


def _span(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Give when an event began and how long it lasted."""
    facts = {number: value for number, value, _ in fields(data, at, end)}
    return facts.get(_OFFSET, 0), facts.get(_DURATION, 0)
