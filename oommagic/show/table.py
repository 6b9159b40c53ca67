"""Which columns a report's tables have, and what stands in their rows."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from oommagic.report import FunctionProfile, LineUsage, Report
from oommagic.show.characters import label, visible
from oommagic.source_files import CELL, is_cell
from oommagic.units import MIB, format_bytes, format_change, format_seconds

FILE_NOISE_BYTES = MIB
"""Fewer file pages than this come from imports and the like, not from reading data."""

_NEAR_BYTES = MIB
"""Peaks no further apart than this are one peak, seen by several lines."""

Kind = Literal["count", "time", "host", "device"]


@dataclass(frozen=True, slots=True)
class Detail:
    """How much a table may show: what does not fit is drawn together or left out."""

    most_devices: int = 3
    has_worst: bool = True
    has_files: bool = True


@dataclass(frozen=True, slots=True)
class Column:
    """The head of one column of figures; neighbours of one group share a heading."""

    group: str
    title: str
    kind: Kind
    help: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure in words, its share of the column, and whether it is the column's peak."""

    text: str = ""
    fraction: float = 0.0
    is_peak: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One line of source; it has no cells if it did not run."""

    line_number: int
    source: str
    cells: tuple[Cell, ...] = ()
    is_stop: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """The lines of the cell, or of one function."""

    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class _Measure:
    """A column together with how to read and say its figure. The bar of `base` is empty."""

    column: Column
    read: Callable[[LineUsage], float | None]
    say: Callable[[float], str]
    base: float = 0.0
    change: Callable[[LineUsage], int | None] | None = None
    """Of a peak: what the line changed, to tell whose peak it is where several saw it."""
    before: float = 0.0
    """Of a peak: what was in use before. No line made one that is no higher."""


def tables(report: Report, detail: Detail) -> tuple[Table, ...]:
    """Lay out the cell's table and one for each function, all with the same columns."""
    measures = _measures(report, detail)
    stop = report.outcome.line_number
    cell = _table("", "", report.profile.lines, measures, stop)
    functions = (
        _table(
            visible(_function_title(function)),
            visible(function.note),
            function.lines,
            measures,
            None,
        )
        for function in report.profile.functions
    )
    return (cell, *functions)


def _function_title(function: FunctionProfile) -> str:
    if function.filename == CELL:
        return function.name
    if is_cell(function.filename):
        return f"{function.name}, from another cell"
    return f"{function.name} in {function.filename}"


def has_read_files(report: Report) -> bool:
    """Say whether some line read pages of files, beyond what imports and the like do."""
    return any(abs(line.file_delta_bytes) >= FILE_NOISE_BYTES for line in all_lines(report))


def device_names(report: Report) -> tuple[str, ...]:
    """Name every device of the report, `GPU:2` before `GPU:10`."""
    known = {device.name for device in report.devices}
    seen = {name for line in all_lines(report) for name in line.devices}
    return tuple(sorted(known | seen, key=_natural_order))


def busy_devices(report: Report) -> tuple[str, ...]:
    """Name the devices on which some line held or changed anything."""
    busy = {
        name
        for line in all_lines(report)
        for name, usage in line.devices.items()
        if usage.delta_bytes or usage.peak_bytes
    }
    return tuple(name for name in device_names(report) if name in busy)


def devices_on_the_host(report: Report) -> tuple[str, ...]:
    """Name the busy devices whose memory is a part of the host's."""
    inside = {device.name for device in report.devices if device.is_part_of_host}
    return tuple(name for name in busy_devices(report) if name in inside)


def all_lines(report: Report) -> tuple[LineUsage, ...]:
    """List the lines of the cell and of its functions."""
    inner = (line for function in report.profile.functions for line in function.lines)
    return (*report.profile.lines, *inner)


def peak_place(peaks: Sequence[float | None], changes: Sequence[float | None]) -> int:
    """Find the line whose peak it is: of those that saw the highest, the one that added most.

    Once the memory is in use, every later line sees the same peak, and so does the head of
    the loop that the line stands in.
    """
    highest = max(peak for peak in peaks if peak is not None)
    near = [i for i, peak in enumerate(peaks) if peak is not None and highest - peak <= _NEAR_BYTES]
    return max(near, key=lambda i: changes[i] or 0)


def _natural_order(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]{1,9})", name)
    return [(int(part), "") if i % 2 else (0, part) for i, part in enumerate(parts)]


def _measures(report: Report, detail: Detail) -> tuple[_Measure, ...]:
    return (
        *_time_measures(report, detail),
        *_host_measures(report, detail),
        *_device_measures(report, detail),
    )


def _time_measures(report: Report, detail: Detail) -> Iterable[_Measure]:
    hits = Column("", "hits", "count", "how often the line ran")
    yield _Measure(hits, lambda line: line.hits, lambda count: f"{count:,.0f}")
    time = Column("", "time", "time", "how long the line took, all its runs together")
    yield _Measure(time, lambda line: line.elapsed_s, format_seconds)
    if detail.has_worst and any(line.hits > 1 for line in all_lines(report)):
        worst = Column("", "worst", "time", "the longest single run of the line")
        yield _Measure(worst, _worst_of_several, format_seconds)


def _host_measures(report: Report, detail: Detail) -> Iterable[_Measure]:
    inside = ", ".join(map(label, devices_on_the_host(report)))
    too = f"; {inside} included" if inside else ""
    words = f"what the line added to the host memory in use{too}"
    change = Column("host", "change", "host", words)
    yield _Measure(change, _host_change, _say_change)
    words = f"the most host memory in use while the line ran{too}"
    peak = Column("host", "peak", "host", words)
    base = report.host.before_bytes
    yield _Measure(peak, lambda line: line.host_peak_bytes, _say_bytes, base, _host_change, base)
    if detail.has_files and has_read_files(report):
        files = Column("host", "file pages", "host", "pages of files that were read into memory")
        yield _Measure(files, lambda line: line.file_delta_bytes, _say_change)
    if report.host.children_peak_bytes is not None:
        children = Column("host", "children", "host", "the most memory child processes held")
        yield _Measure(children, lambda line: line.children_peak_bytes, _say_bytes)


def _device_measures(report: Report, detail: Detail) -> Iterable[_Measure]:
    names = busy_devices(report)
    groups: Iterable[tuple[str, tuple[str, ...]]] = ((label(name), (name,)) for name in names)
    if len(names) > detail.most_devices:
        groups = [(f"{len(names)} devices", names)]
    for title, members in groups:
        several = len(members) > 1
        change = Column(
            title,
            "change",
            "device",
            "what the line added to " + ("all of them together" if several else "the device"),
        )
        change_on = partial(_change_on, members)
        yield _Measure(change, change_on, _say_change)
        peak = Column(
            title,
            "peak",
            "device",
            "the most in use while the line ran" + (", on the fullest of them" if several else ""),
        )
        peak_on, before = partial(_peak_on, members), _before_on(members, report)
        yield _Measure(peak, peak_on, _say_bytes, change=change_on, before=before)


def _host_change(line: LineUsage) -> int:
    return line.host_delta_bytes


def _worst_of_several(line: LineUsage) -> float | None:
    return line.worst_s if line.hits > 1 else None


def _change_on(names: Sequence[str], line: LineUsage) -> int | None:
    found = [line.devices[name].delta_bytes for name in names if name in line.devices]
    return sum(found) if found else None


def _peak_on(names: Sequence[str], line: LineUsage) -> int | None:
    found = [line.devices[name].peak_bytes for name in names if name in line.devices]
    return max(found, default=None)


def _before_on(names: Sequence[str], report: Report) -> int:
    return max((one.before_bytes for one in report.devices if one.name in names), default=0)


def _say_bytes(count: float) -> str:
    return format_bytes(int(count))


def _say_change(count: float) -> str:
    return format_change(int(count))


def _table(
    title: str,
    note: str,
    lines: Sequence[LineUsage],
    measures: Sequence[_Measure],
    stop: int | None,
) -> Table:
    ran = [line for line in lines if line.hits]
    by_column = [_cells(measure, ran) for measure in measures]
    by_line = iter(zip(*by_column, strict=True))
    rows = tuple(
        Row(
            line.line_number,
            visible(line.source),
            next(by_line) if line.hits else (),
            is_stop=line.line_number == stop,
        )
        for line in lines
    )
    return Table(title, note, tuple(measure.column for measure in measures), rows)


def _cells(measure: _Measure, lines: Sequence[LineUsage]) -> list[Cell]:
    values = [measure.read(line) for line in lines]
    rises = [None if value is None else abs(value) - measure.base for value in values]
    top = max((rise for rise in rises if rise is not None), default=0.0)
    peak = _peak(measure, lines, values)
    return [
        Cell()
        if value is None or rise is None
        else Cell(
            _mark(measure.column, line, value) + measure.say(value),
            max(0.0, rise / top) if top > 0 else 0.0,
            is_peak=i == peak,
        )
        for i, (line, value, rise) in enumerate(zip(lines, values, rises, strict=True))
    ]


def _peak(
    measure: _Measure, lines: Sequence[LineUsage], values: Sequence[float | None]
) -> int | None:
    """Find the line that made the column's peak, if one of several did."""
    highest = max((value for value in values if value is not None), default=0.0)
    is_higher = highest > max(0.0, measure.before)
    if measure.change is None or not is_higher or len(lines) == 1:
        return None
    return peak_place(values, [measure.change(line) for line in lines])


def _mark(column: Column, line: LineUsage, value: float) -> str:
    """Mark a figure that is a lower bound or a share; memory stands in the columns with a group."""
    if not value:
        return ""
    if line.is_partial:
        return "≥" if column.title == "hits" else "~"
    return "~" if line.is_shared and column.group else ""
