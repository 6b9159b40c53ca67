"""The file that TensorFlow's profiler writes (an `XSpace`), read as the bytes that it is.

A step of a recurrent net allocates tens of thousands of times, with fourteen facts each. Made
into protocol buffer objects they would take hundreds of megabytes and most of a minute; so only
what is of use is looked for, and nothing is made of the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

# Numbers of the fields in xplane.proto.
_SPACE_PLANES = 1
_PLANE_NAME, _PLANE_LINES, _PLANE_EVENT_NAMES, _PLANE_STAT_NAMES = 2, 3, 4, 5
_LINE_TIMESTAMP_NS, _LINE_EVENTS = 3, 4
_ENTRY_KEY, _ENTRY_VALUE, _NAME = 1, 2, 2

# Tags: a field's number and how its value is written.
_EVENTS_TAG = 0x22
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
MORE = 0x80
"""In a byte of a number: another byte follows."""

_HOST_PLANE = "/host:CPU"


@dataclass(frozen=True, slots=True)
class Plane:
    """What was heard on the host: one line of events for each thread, and their names."""

    events: tuple[tuple[int, int, int], ...]
    """Where each line's events stand in the file, and when the line began in ns."""
    event_names: Mapping[int, str]
    stat_names: Mapping[int, str]


def host_plane(data: bytes) -> Plane | None:
    """Find what was heard on the host, if anything was."""
    planes = (
        _plane(data, start, end)
        for number, start, end in fields(data, 0, len(data))
        if number == _SPACE_PLANES
    )
    return next((plane for plane in planes if plane is not None), None)


def _plane(data: bytes, start: int, end: int) -> Plane | None:
    events: list[tuple[int, int, int]] = []
    names: dict[int, dict[int, str]] = {_PLANE_EVENT_NAMES: {}, _PLANE_STAT_NAMES: {}}
    for number, at, until in fields(data, start, end):
        if number == _PLANE_NAME and data[at:until].decode() != _HOST_PLANE:
            return None
        if number == _PLANE_LINES:
            events += _line_events(data, at, until)
        elif number in names:
            key, name = _entry(data, at, until)
            names[number][key] = name
    return Plane(tuple(events), names[_PLANE_EVENT_NAMES], names[_PLANE_STAT_NAMES])


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
    while at < end and data[at] == _EVENTS_TAG:
        length = data[at + 1]
        at += 2
        if length >= MORE:
            length, at = varint(data, at - 1)
        at += length
    return at


def _entry(data: bytes, start: int, end: int) -> tuple[int, str]:
    """Read one entry of a map from numbers to things with a name."""
    key, name = 0, ""
    for number, at, until in fields(data, start, end):
        if number == _ENTRY_KEY:
            key = at
        elif number == _ENTRY_VALUE:
            inner = (data[a:b] for n, a, b in fields(data, at, until) if n == _NAME)
            name = next(inner, b"").decode(errors="replace")
    return key, name


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Give each field's number, and its value, or where its content begins; and its end."""
    while at < end:
        number, value, until = _field(data, at)
        yield number, value, until
        at = until


def _field(data: bytes, at: int) -> tuple[int, int, int]:
    tag, at = varint(data, at)
    number, kind = tag >> 3, tag & 7
    if kind == _VARINT:
        value, until = varint(data, at)
        return number, value, until
    if kind == _DELIMITED:
        length, begins = varint(data, at)
        return number, begins, begins + length
    return number, at, at + {_FIXED64: 8, _FIXED32: 4}[kind]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read the number that stands there, and give the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < MORE:
            return value, at
        shift += 7
