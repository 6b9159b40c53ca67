"""Readings to lines: what was measured at each physical line, told statement by statement."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from oommagic.recording import LineReading, Listing, Recording, TracedLines
from oommagic.report import DeviceUsage, FunctionProfile, LineUsage, Profile
from oommagic.source_files import CELL


def profile_of(recording: Recording, listing: Listing) -> Profile:
    """Lay out the lines of the cell or block, and those of each function asked for by name."""
    return Profile(
        lines=_lines_of(listing, recording.readings),
        functions=tuple(_function(named, recording) for named in recording.listings),
    )


def tracing_notes(recording: Recording) -> Iterator[str]:
    """Say which lines of the cell show little because TensorFlow runs a graph of them."""
    for traced in recording.traced:
        if traced.filename == CELL:
            yield f"Lines {traced.first_line}-{traced.last_line}: {_traced_sentence(traced)}"


def _function(listing: Listing, recording: Recording) -> FunctionProfile:
    lines = _lines_of(listing, recording.readings)
    return FunctionProfile(listing.name, listing.filename, lines, _note(listing, recording))


def _note(listing: Listing, recording: Recording) -> str:
    for traced in recording.traced:
        if (traced.filename, traced.first_line) == (listing.filename, listing.first_line):
            return _traced_sentence(traced)
    ours = list(_readings_of(listing, recording.readings))
    if any(reading.ran_at_tracing for reading in ours):
        return (
            "These lines ran while TensorFlow traced a graph: once per trace, not once per "
            "step. What the graph takes stands on the line that runs it."
        )
    return "" if ours else "This function did not run."


def _traced_sentence(traced: TracedLines) -> str:
    times = {0: "never yet", 1: "once"}.get(traced.traces, f"{traced.traces} times")
    return (
        f"{traced.name} is a tf.function: its Python lines ran only when TensorFlow traced them "
        f"into a graph ({times}). What the graph takes stands on the line that calls it."
    )


def _readings_of(listing: Listing, readings: Iterable[LineReading]) -> Iterator[LineReading]:
    last_line = listing.first_line + len(listing.text.lines) - 1
    for reading in readings:
        inside = listing.first_line <= reading.line_number <= last_line
        if reading.filename == listing.filename and inside:
            yield reading


def _lines_of(listing: Listing, readings: Iterable[LineReading]) -> tuple[LineUsage, ...]:
    by_statement: dict[int, list[LineReading]] = defaultdict(list)
    for reading in _readings_of(listing, readings):
        by_statement[_statement_start(listing, reading.line_number)].append(reading)
    return tuple(
        _line(number, source, by_statement.get(number, ()))
        for number, source in enumerate(listing.text.lines, listing.first_line)
    )


def _statement_start(listing: Listing, line_number: int) -> int:
    if listing.filename == CELL:
        return listing.text.statement_start(line_number)
    offset = listing.first_line - 1
    return listing.text.statement_start(line_number - offset) + offset


def _line(number: int, source: str, readings: Sequence[LineReading]) -> LineUsage:
    if not readings:
        return LineUsage(number, source)
    return LineUsage(
        line_number=number,
        source=source,
        hits=sum(reading.hits for reading in readings),
        elapsed_s=sum(reading.elapsed_s for reading in readings),
        worst_s=max(reading.worst_s for reading in readings),
        host_delta_bytes=sum(reading.host_delta_bytes for reading in readings),
        host_peak_bytes=max(reading.host_peak_bytes for reading in readings),
        file_delta_bytes=sum(reading.file_delta_bytes for reading in readings),
        children_peak_bytes=max(reading.children_peak_bytes for reading in readings),
        devices=_devices(readings),
        is_partial=any(reading.is_partial for reading in readings),
        is_shared=any(reading.is_shared for reading in readings),
    )


def _devices(readings: Sequence[LineReading]) -> dict[str, DeviceUsage]:
    names = {name for reading in readings for name in reading.devices}
    return {name: _device(name, readings) for name in sorted(names)}


def _device(name: str, readings: Sequence[LineReading]) -> DeviceUsage:
    usages = [reading.devices[name] for reading in readings if name in reading.devices]
    return DeviceUsage(
        delta_bytes=sum(usage.delta_bytes for usage in usages),
        peak_bytes=max(usage.peak_bytes for usage in usages),
    )
