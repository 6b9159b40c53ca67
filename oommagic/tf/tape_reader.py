"""Reads what TensorFlow's profiler wrote (an `XSpace`) into tapes, one for each device.

A step of a recurrent net allocates tens of thousands of times, with fourteen facts each. Made
into protocol buffer objects they would take hundreds of megabytes and most of a minute; so the
few facts that a tape keeps are read out of the file's bytes, thousands of events at a time.
"""

import re
import sys
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.recording import Left, NamesThen, OpRole, Tape
from oommagic.tf import layers

keep_builtins(globals())

RoleOf = Callable[[str, bool], OpRole]
Step = tuple[float, float, str]
Shape = tuple[int, ...] | None

# Numbers of the fields in xplane.proto.
_SPACE_PLANES = 1
_PLANE_NAME, _PLANE_LINES, _PLANE_EVENT_NAMES, _PLANE_STAT_NAMES = 2, 3, 4, 5
_LINE_TIMESTAMP_NS, _LINE_EVENTS = 3, 4
_ENTRY_KEY, _ENTRY_VALUE, _NAME = 1, 2, 2
_EVENT_OFFSET, _EVENT_DURATION = 2, 3

# Tags: a field's number and how its value is written.
_EVENT_OFFSET_TAG, _EVENT_STAT_TAG, _STAT_ID_TAG = 0x10, 0x22, 0x08
_NUMBER_TAGS = (0x18, 0x20, 0x38)  # unsigned, signed, and a text by its number
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_MORE = 0x80  # in a byte of a number: another byte follows

_HOST_PLANE = "/host:CPU"
_ALLOCATION, _FREE = "MemoryAllocation", "MemoryDeallocation"
_FACTS = (
    "allocator_name",
    "bytes_allocated",
    "requested_bytes",
    "allocation_bytes",
    "addr",
    "tf_op",
    "region_type",
    "data_type",
    "shape",
)
_NO_TEXT = frozenset({"", "(null)"})

# Events around allocations that no op made, and the op that they stand for.
_INSTEAD_OF_OP = {
    "tf.constant": "tf.constant",
    "convert_to_tensor": "convert_to_tensor",
    "TFE_Py_FastPathExecute_C": "convert_to_tensor",  # turns an op's arguments into tensors
}
_OF_DATA_SETS, _DATA_SET_OP = "Iterator::", "Iterator"
_WORKSPACE = "temp"

# So many events are read at a time: they fit into the processor's cache.
_BATCH = 1 << 15

# Of chunks from earlier runs only the size is of use, and only where it is not the usual one.
_WORTH_REMEMBERING_BYTES = 4096
_living: defaultdict[str, dict[int, Left]] = defaultdict(dict)
"""What the tapes of this process have seen being handed out, by device and address."""

_ARENA = re.compile(r"bfc_cpu_allocator_for_gpu|cpu_bfc|bfc_cpu.*")
_GPU = re.compile(r"GPU_(\d+)_bfc")


@dataclass(frozen=True, slots=True)
class Taped:
    """One recording that has ended: its file, and what is known of it from outside."""

    file: Path
    mark: str
    """The name of an event that was recorded at a known time."""
    mark_s: float
    started_s: float
    steps: tuple[Step, ...]
    is_whole: bool
    names_before: NamesThen | None = None
    names_after: NamesThen | None = None
    whole_from_s: float | None = None
    """What comes before is left out: a step that had begun when the recording did."""


@dataclass(frozen=True, slots=True)
class _Plane:
    events: tuple[tuple[int, int, int], ...]
    """Where each line's events stand in the file, and when the line began in ns."""
    event_names: Mapping[int, str]
    stat_names: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class _Kinds:
    """The numbers of the kinds of events that are of use."""

    is_free: Mapping[int, bool]
    """Allocations and frees."""
    op_around: Mapping[int, int]
    """What stands for an op, and the op's number."""
    mark: int


@dataclass(slots=True)
class _Found:
    """What one line of events has that is of use; times are in ps since the line began."""

    places: list[tuple[int, int]]
    """Where the allocations and frees stand in the file."""
    frees: list[bool]
    """Which of them are frees."""
    around: list[tuple[int, int, int]]
    """Begin and end of events that stand for an op, and that op's number."""
    mark: int | None = None


def read_tapes(taped: Taped, role_of: RoleOf = layers.role_of) -> tuple[Tape, ...]:
    """Give a tape for each device that allocated, in no particular order."""
    data = taped.file.read_bytes()
    plane = next(_host_planes(data), None)
    if plane is None:
        return ()
    plane = _with_more_ops(plane)
    columns = _read_events(data, plane, taped)
    return tuple(_tapes(columns, plane.stat_names, taped, role_of)) if columns else ()


def _host_planes(data: bytes) -> Iterator[_Plane]:
    for number, start, end in _fields(data, 0, len(data)):
        if number == _SPACE_PLANES:
            plane = _plane(data, start, end)
            if plane is not None:
                yield plane


def _plane(data: bytes, start: int, end: int) -> _Plane | None:
    events: list[tuple[int, int, int]] = []
    names: dict[int, dict[int, str]] = {_PLANE_EVENT_NAMES: {}, _PLANE_STAT_NAMES: {}}
    for number, at, until in _fields(data, start, end):
        if number == _PLANE_NAME and data[at:until].decode() != _HOST_PLANE:
            return None
        if number == _PLANE_LINES:
            events += _line_events(data, at, until)
        elif number in names:
            key, name = _entry(data, at, until)
            names[number][key] = name
    return _Plane(tuple(events), names[_PLANE_EVENT_NAMES], names[_PLANE_STAT_NAMES])


def _with_more_ops(plane: _Plane) -> _Plane:
    """Give numbers to what is said of allocations without an op."""
    first = max(plane.stat_names, default=0) + 1
    more = enumerate(sorted({*_INSTEAD_OF_OP.values(), _DATA_SET_OP}), start=first)
    return replace(plane, stat_names={**plane.stat_names, **dict(more)})


def _instead_of_op(event: str) -> str:
    return _DATA_SET_OP if event.startswith(_OF_DATA_SETS) else _INSTEAD_OF_OP.get(event, "")


def _line_events(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Give where the line's events begin and end; they stand one after another."""
    first = last = began_ns = 0
    at = start
    while at < end:
        number, value, until = _field(data, at)
        if number == _LINE_EVENTS:
            # The line's other fields come before its events or after them, never between.
            first = at
            last = at = _end_of_run(data, at, end)
            continue
        if number == _LINE_TIMESTAMP_NS:
            began_ns = value
        at = until
    if first:
        yield first, last, began_ns


def _end_of_run(data: bytes, at: int, end: int) -> int:
    while at < end and data[at] == _EVENT_STAT_TAG:
        length = data[at + 1]
        at += 2
        if length >= _MORE:
            length, at = _varint(data, at - 1)
        at += length
    return at


def _entry(data: bytes, start: int, end: int) -> tuple[int, str]:
    """Read one entry of a map from numbers to things with a name."""
    key, name = 0, ""
    for number, at, until in _fields(data, start, end):
        if number == _ENTRY_KEY:
            key = at
        elif number == _ENTRY_VALUE:
            inner = (data[a:b] for n, a, b in _fields(data, at, until) if n == _NAME)
            name = next(inner, b"").decode(errors="replace")
    return key, name


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Give each field's number, and its value, or where its content begins; and its end."""
    while at < end:
        number, value, until = _field(data, at)
        yield number, value, until
        at = until


def _field(data: bytes, at: int) -> tuple[int, int, int]:
    tag, at = _varint(data, at)
    number, kind = tag >> 3, tag & 7
    if kind == _VARINT:
        value, until = _varint(data, at)
        return number, value, until
    if kind == _DELIMITED:
        length, begins = _varint(data, at)
        return number, begins, begins + length
    return number, at, at + {_FIXED64: 8, _FIXED32: 4}[kind]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, at
        shift += 7


def _read_events(data: bytes, plane: _Plane, taped: Taped) -> dict[str, Any]:
    """Give one column for each fact, or none where nothing was allocated."""
    import numpy as np

    kinds = _kinds(plane, taped.mark)
    facts = {number: name for number, name in plane.stat_names.items() if name in _FACTS}
    nameless = [0, *(number for number, text in plane.stat_names.items() if text in _NO_TEXT)]
    buffer = np.frombuffer(data + bytes(16), np.uint8)  # a number near the end is read past it
    parts, start_s = [], taped.started_s
    for first, last, began_ns in plane.events:
        found = _find_events(data, first, last, kinds)
        if found.mark is not None:
            start_s = taped.mark_s - (began_ns * 1000 + found.mark) / 1e12
        for since in range(0, len(found.places), _BATCH):
            batch = slice(since, since + _BATCH)
            columns = _decode(buffer, np.array(found.places[batch], np.int64), facts)
            _name_by_surroundings(columns, found.around, nameless)
            columns["times_s"] = (columns.pop("times") + began_ns * 1000) / 1e12
            columns["frees"] = np.array(found.frees[batch], bool)
            parts.append(columns)
    if not parts:
        return {}
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    whole["times_s"] += start_s
    return whole


def _kinds(plane: _Plane, mark: str) -> _Kinds:
    by_name = {name: number for number, name in plane.event_names.items()}
    wanted = {by_name[name]: name == _FREE for name in (_ALLOCATION, _FREE) if name in by_name}
    numbers = {text: number for number, text in plane.stat_names.items()}
    ops = {number: _instead_of_op(name) for number, name in plane.event_names.items()}
    around = {number: numbers[op] for number, op in ops.items() if op}
    return _Kinds(wanted, around, by_name.get(mark, 0))


def _find_events(data: bytes, at: int, end: int, kinds: _Kinds) -> _Found:
    """Find the allocations and frees of one line, what is around them, and the mark."""
    found = _Found([], [], [])
    while at < end:
        length, at = data[at + 1], at + 2
        if length >= _MORE:
            length, at = _varint(data, at - 1)
        until = at + length
        kind, inside = data[at + 1], at + 2
        if kind >= _MORE:
            kind, inside = _varint(data, at + 1)
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
    facts = {number: value for number, value, _ in _fields(data, at, end)}
    return facts.get(_EVENT_OFFSET, 0), facts.get(_EVENT_DURATION, 0)


def _name_by_surroundings(
    columns: dict[str, Any], around: Sequence[tuple[int, int, int]], nameless: Sequence[int]
) -> None:
    """Where no op is told, tell it by the event that the allocation lies in."""
    import numpy as np

    if not around:
        return
    starts, ends, ops = (np.array(column, np.int64) for column in zip(*sorted(around), strict=True))
    # Events of one thread lie in each other: one is open where any that began before is.
    open_until = np.maximum.accumulate(ends)
    last: Any = np.searchsorted(starts, columns["times"], side="right") - 1
    is_inside = (last >= 0) & (open_until[last] >= columns["times"])
    named = is_inside & np.isin(columns["tf_op"], nameless)
    columns["tf_op"][named] = ops[last[named]]


def _decode(buffer: Any, places: Any, facts: Mapping[int, str]) -> dict[str, Any]:
    """Read the facts of many events in step: the next field of each, until all are at their end."""
    import numpy as np

    columns: dict[str, Any] = {name: np.zeros(len(places), np.int64) for name in (*_FACTS, "times")}
    at, ends = places[:, 0].copy(), places[:, 1]
    rows = np.arange(len(places))
    while len(rows):
        tags = buffer[at[rows]]
        values, after = _varints(buffer, at[rows] + 1)
        offsets = tags == _EVENT_OFFSET_TAG
        columns["times"][rows[offsets]] = values[offsets]
        is_stat = tags == _EVENT_STAT_TAG
        _decode_stats(buffer, rows[is_stat], after[is_stat], facts, columns)
        at[rows] = np.where(is_stat, after + values, after)
        rows = rows[at[rows] < ends[rows]]
    return columns


def _decode_stats(
    buffer: Any, rows: Any, at: Any, facts: Mapping[int, str], columns: dict[str, Any]
) -> None:
    import numpy as np

    is_named = buffer[at] == _STAT_ID_TAG
    rows, at = rows[is_named], at[is_named]
    numbers, at = _varints(buffer, at + 1)
    for number in np.unique(numbers):
        name = facts.get(int(number))
        if name is not None:
            here = numbers == number
            here &= np.isin(buffer[at], _NUMBER_TAGS)
            columns[name][rows[here]], _ = _varints(buffer, at[here] + 1)


def _varints(buffer: Any, at: Any) -> tuple[Any, Any]:
    """Read the number that stands at each place, and give the place after it."""
    import numpy as np

    byte = buffer[at]
    values = (byte & 0x7F).astype(np.int64)
    after = at + 1
    more = np.flatnonzero(byte >= _MORE)
    shift = 7
    while len(more):
        byte = buffer[after[more]]
        values[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more = more[byte >= _MORE]
        shift += 7
    return values, after


def _tapes(
    columns: Mapping[str, Any], texts: Mapping[int, str], taped: Taped, role_of: RoleOf
) -> Iterator[Tape]:
    import numpy as np

    for number in np.unique(columns["allocator_name"]):
        device = _device_of(texts.get(int(number), ""))
        if device:
            here = np.flatnonzero(columns["allocator_name"] == number)
            order = here[np.argsort(columns["times_s"][here], kind="stable")]
            since_s = -inf if taped.whole_from_s is None else taped.whole_from_s
            order = order[columns["times_s"][order] > since_s]
            if not len(order):
                continue
            own = {name: column[order] for name, column in columns.items()}
            tape = _tape(device, own, texts, role_of)
            yield replace(
                tape,
                steps=tuple(step for step in taped.steps if step[0] >= since_s),
                is_whole=taped.is_whole,
                names_before=taped.names_before,
                names_after=taped.names_after,
            )


def _device_of(allocator: str) -> str:
    gpu = _GPU.fullmatch(allocator)
    if gpu:
        return f"GPU:{gpu[1]}"
    return "CPU:0" if _ARENA.fullmatch(allocator) else ""


def _tape(device: str, own: Mapping[str, Any], texts: Mapping[int, str], role_of: RoleOf) -> Tape:
    import numpy as np

    sizes = np.where(own["frees"], -own["allocation_bytes"], own["allocation_bytes"])
    workspace = [number for number, text in texts.items() if text == _WORKSPACE]
    temporary = np.isin(own["region_type"], workspace)
    op_keys, op_numbers = np.unique(own["tf_op"] * 2 + temporary, return_inverse=True)
    ops = [_text(texts, key >> 1) for key in op_keys.tolist()]
    roles = [role_of(op, bool(key & 1)) for op, key in zip(ops, op_keys.tolist(), strict=True)]
    roles = layers.in_order(ops, roles, op_numbers[~own["frees"]].tolist())
    # One number for each pair: as NumPy compares pairs, it makes an error of an interrupt.
    kinds = int(own["data_type"].max()) + 1
    tensor_keys, tensor_numbers = np.unique(
        own["shape"] * kinds + own["data_type"], return_inverse=True
    )
    return Tape(
        device=device,
        before_bytes=int(own["bytes_allocated"][0] - sizes[0]),
        times_s=array("d", own["times_s"].tobytes()),
        addresses=_integers(own["addr"]),
        bytes=_integers(sizes),
        requested_bytes=_integers(own["requested_bytes"]),
        in_use_bytes=_integers(own["bytes_allocated"]),
        op_numbers=_integers(op_numbers),
        tensor_numbers=_integers(tensor_numbers),
        temporary=array("b", temporary.astype(np.int8).tobytes()),
        ops=tuple(ops),
        roles=tuple(roles),
        tensors=tuple(_tensor(texts, *divmod(key, kinds)) for key in tensor_keys.tolist()),
    )


def _integers(column: Any) -> "array[int]":
    return array("q", column.astype("int64").tobytes())


def _text(texts: Mapping[int, str], number: int) -> str:
    text = texts.get(number, "")
    return "" if text in _NO_TEXT else text


def _tensor(texts: Mapping[int, str], shape: int, kind: int) -> tuple[Shape, str]:
    return _shape(_text(texts, shape)), _dtype(kind)


def _shape(text: str) -> Shape:
    """Read `[64,28,28,1]`; where a size is unknown there is no shape."""
    if not re.fullmatch(r"\[(?:\d+(?:,\d+)*)?\]", text):
        return None
    return tuple(int(size) for size in text[1:-1].split(",") if size)


def _dtype(number: int) -> str:
    """Give TensorFlow's name for its data type of that number; 0 is none."""
    dtypes = sys.modules.get("tensorflow.python.framework.dtypes")
    if dtypes is None or not number:
        return ""
    try:
        return str(dtypes.as_dtype(number).name)
    except TypeError:
        return ""


def worth_keeping(tapes: Sequence[Tape]) -> tuple[Tape, ...]:
    """Keep for each device the tape on which it was fullest, and the one that lasted to the end."""
    tapes = [tape for tape in _with_left(tapes) if tape.bytes]
    kept: dict[str, Tape] = {}
    for tape in tapes:
        other = kept.get(tape.device)
        if other is None or max(tape.in_use_bytes) > max(other.in_use_bytes):
            kept[tape.device] = tape
    fullest = kept.values()
    return (*fullest, *(tape for tape in tapes if tape.is_whole and tape not in fullest))


def _with_left(tapes: Sequence[Tape]) -> Iterator[Tape]:
    """Add to each tape what the earlier ones of its device left behind."""
    for device, left in _living.items():
        _living[device] = {
            address: replace(one, is_of_this_run=False)
            for address, one in left.items()
            if one.bytes - one.requested_bytes >= _WORTH_REMEMBERING_BYTES
        }
    for tape in tapes:
        left = _living[tape.device]
        yield _until_names_were_looked_up(replace(tape, left=tuple(left.values())))
        allocated: dict[int, int] = {}
        for event, (address, size) in enumerate(zip(tape.addresses, tape.bytes, strict=True)):
            left.pop(address, None)
            allocated.pop(address, None)
            if size > 0:
                allocated[address] = event
        left |= {address: _left(tape, event) for address, event in allocated.items()}


def _until_names_were_looked_up(tape: Tape) -> Tape:
    """Leave out what was recorded later: it may have moved what they held."""
    if tape.names_after is None:
        return tape
    count = bisect_right(tape.times_s, tape.names_after.time_s)
    return replace(
        tape,
        times_s=tape.times_s[:count],
        addresses=tape.addresses[:count],
        bytes=tape.bytes[:count],
        requested_bytes=tape.requested_bytes[:count],
        in_use_bytes=tape.in_use_bytes[:count],
        op_numbers=tape.op_numbers[:count],
        tensor_numbers=tape.tensor_numbers[:count],
        temporary=tape.temporary[:count],
    )


def _left(tape: Tape, event: int) -> Left:
    op = tape.op_numbers[event]
    shape, dtype = tape.tensors[tape.tensor_numbers[event]]
    return Left(
        address=tape.addresses[event],
        bytes=tape.bytes[event],
        requested_bytes=tape.requested_bytes[event],
        op=tape.ops[op],
        role=tape.roles[op],
        shape=shape,
        dtype=dtype,
        time_s=tape.times_s[event],
    )
