"""Reads the facts of a tape's events into columns, thousands of events at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.tf.tape_events import Found, find_events, kinds_in, with_more_ops
from oommagic.tf.xspace import MORE, host_plane

keep_builtins(globals())

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
NO_TEXT = frozenset({"", "(null)"})

# Tags: a field's number and how its value is written.
_OFFSET_TAG, _STAT_TAG, _STAT_ID_TAG = 0x10, 0x22, 0x08
_NUMBER_TAGS = (0x18, 0x20, 0x38)  # unsigned, signed, and a text by its number

# So many events are read at a time: they fit into the processor's cache.
_BATCH = 1 << 15


@dataclass(frozen=True, slots=True)
class Columns:
    """What a file tells of allocations and frees, in the order in which it does."""

    of_events: Mapping[str, Any]
    """One for each fact, and `times_s` by the profiler's clock; `frees` is which are frees."""
    texts: Mapping[int, str]
    """What the numbers stand for of facts that are texts."""
    mark_s: float | None
    """When the marked event was, by the profiler's clock."""


def read_columns(data: bytes, mark: str) -> Columns | None:
    """Give what a file tells; None where nothing was allocated."""
    import numpy as np

    plane = host_plane(data)
    if plane is None:
        return None
    plane = with_more_ops(plane)
    kinds = kinds_in(plane, mark)
    read = _Reading(data, plane.stat_names)
    parts: list[dict[str, Any]] = []
    mark_s = None
    for first, last, began_ns in plane.events:
        found = find_events(data, first, last, kinds)
        if found.mark is not None:
            mark_s = (began_ns * 1000 + found.mark) / 1e12
        parts += read.columns(found, began_ns)
    if not parts:
        return None
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Columns(whole, plane.stat_names, mark_s)


class _Reading:
    """What is needed to read events of one file."""

    def __init__(self, data: bytes, texts: Mapping[int, str]) -> None:
        import numpy as np

        # A number near the end is read past it.
        self._buffer = np.frombuffer(data + bytes(16), np.uint8)
        self._facts = {number: name for number, name in texts.items() if name in _FACTS}
        self._nameless = [0, *(number for number, text in texts.items() if text in NO_TEXT)]

    def columns(self, found: Found, began_ns: int) -> Iterator[dict[str, Any]]:
        """Read one line's events, which count from the time when it began."""
        import numpy as np

        for since in range(0, len(found.places), _BATCH):
            batch = slice(since, since + _BATCH)
            columns = _decode(self._buffer, np.array(found.places[batch], np.int64), self._facts)
            _name_by_surroundings(columns, found.around, self._nameless)
            columns["times_s"] = (columns.pop("times") + began_ns * 1000) / 1e12
            columns["frees"] = np.array(found.frees[batch], bool)
            yield columns


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
        offsets = tags == _OFFSET_TAG
        columns["times"][rows[offsets]] = values[offsets]
        is_stat = tags == _STAT_TAG
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
    more = np.flatnonzero(byte >= MORE)
    shift = 7
    while len(more):
        byte = buffer[after[more]]
        values[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more = more[byte >= MORE]
        shift += 7
    return values, after
