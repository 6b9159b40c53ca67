"""A report in words: the sentence that sums it up, and the facts behind the figures.

Text and HTML say the same because both say what stands here.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from oommagic.report import DeviceMemory, Gpu, Outcome, Report
from oommagic.show.advice_view import AdviceView, advice_view
from oommagic.show.characters import cut, label, visible
from oommagic.show.facts import Fact
from oommagic.show.holdings import CompositionView, composition_views
from oommagic.show.plan_view import PlanView, plan_in_brief
from oommagic.show.table import (
    Detail,
    Table,
    all_lines,
    busy_devices,
    device_names,
    devices_on_the_host,
    has_read_files,
    peak_place,
    tables,
)
from oommagic.show.verdicts import VerdictView, verdict_view
from oommagic.units import format_bytes, format_seconds, format_time

_MOST_MESSAGE = 300
_MOST_DEVICES_IN_HEADLINE = 2
_MEMORY_ERRORS = frozenset({"MemoryError", "ResourceExhaustedError"})
_GRAPH_NODE = re.compile(r"^\{\{function_node \S+\}\} ")
_MEMORY_WORDS = ("out of memory", "oom when allocating", "resource_exhausted")

_PACKAGES = {"tensorflow": "TensorFlow", "keras": "Keras"}
"""How packages write themselves, where it is not how they are imported."""

_ENGINES = {
    "monitoring": "sys.monitoring",
    "settrace": "sys.settrace",
    "memory-profiler": "memory_profiler",
    "sampling": "a sampling thread",
}


@dataclass(frozen=True, slots=True)
class View:
    """What a page about a report says, in the order in which it says it; lanes are apart."""

    headline: str
    error: str
    is_failure: bool
    verdict: VerdictView | None
    advice: AdviceView | None
    tables: tuple[Table, ...]
    compositions: tuple[CompositionView, ...]
    plan: PlanView | None
    marks: tuple[Fact, ...]
    notes: tuple[str, ...]
    facts: tuple[Fact, ...]


def view(report: Report, detail: Detail = Detail()) -> View:  # noqa: B008 - frozen
    """Put a report into words."""
    laid_out = tables(report, detail)
    return View(
        headline=f"{_ending(report)}. {_peaks(report)}",
        error=_error(report.outcome),
        is_failure=report.outcome.kind != "finished",
        verdict=None if report.verdict is None else verdict_view(report.verdict),
        advice=advice_view(report.findings, report.trials),
        tables=laid_out,
        compositions=composition_views(report.compositions),
        plan=None if report.plan is None else plan_in_brief(report.plan),
        marks=tuple(_marks(report, laid_out)),
        notes=tuple(map(visible, _notes(report))),
        facts=tuple(replace(fact, text=visible(fact.text)) for fact in _facts(report)),
    )


def _ending(report: Report) -> str:
    outcome, took = report.outcome, format_seconds(report.elapsed_s)
    if outcome.kind == "finished":
        return f"Finished in {took}{_caught(report)}"
    place = f" at line {outcome.line_number}" if outcome.line_number is not None else ""
    return f"{_stop_words(outcome)}{place} after {took}"


def _caught(report: Report) -> str:
    """Say that memory ran out, where the cell went on all the same."""
    failure = report.verdict.failure if report.verdict is not None else None
    if failure is None:
        return ""
    at_line = f" at line {failure.line_number}" if failure.line_number is not None else ""
    return f", but memory ran out{at_line} and the cell caught the error"


def _stop_words(outcome: Outcome) -> str:
    if outcome.kind == "interrupted":
        return "Interrupted"
    if _ran_out(outcome):
        return "Ran out of memory"
    return f"Stopped by {_error_name(outcome) or 'an error'}"


def _ran_out(outcome: Outcome) -> bool:
    return _error_name(outcome) in _MEMORY_ERRORS or _speaks_of_memory(outcome.message)


def _speaks_of_memory(message: str) -> bool:
    return any(words in message.lower() for words in _MEMORY_WORDS)


def _error_name(outcome: Outcome) -> str:
    return visible(outcome.error_type.rpartition(".")[2])


def _error(outcome: Outcome) -> str:
    if outcome.kind != "failed":
        return ""
    told = cut(visible(_telling_line(outcome.message)), _MOST_MESSAGE)
    parts = (_error_name(outcome), told)
    return ": ".join(part for part in parts if part)


def _telling_line(message: str) -> str:
    """Return the line that speaks of memory: TensorFlow's messages begin with a long stack.

    Which internal function wrapped an eager operation says nothing to a reader.
    """
    lines = message.strip().splitlines() or [""]
    told = next((line for line in lines if _speaks_of_memory(line)), lines[0])
    return _GRAPH_NODE.sub("", told).removesuffix(" name:")


def _peaks(report: Report) -> str:
    host = report.host
    inside = [label(name) for name in devices_on_the_host(report)]
    included = f", {' and '.join(inside)} included" if inside else ""
    host_peak = f"host peak {_of_limit(host.peak_bytes, host.limit_bytes)}{included}"
    parts = [host_peak, *_device_peaks(report)]
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _device_peaks(report: Report) -> Iterator[str]:
    busy = set(busy_devices(report))
    devices = [device for device in _sorted_devices(report) if device.name in busy]
    if len(devices) > _MOST_DEVICES_IN_HEADLINE:
        fullest = max(devices, key=_fullness)
        yield f"{_device_peak(report, fullest)} (the fullest of {len(devices)} devices)"
        return
    for device in devices:
        yield _device_peak(report, device)


def _device_peak(report: Report, device: DeviceMemory) -> str:
    peak = f"{label(device.name)} peak {_of_limit(device.peak_bytes, device.limit_bytes)}"
    lines = [line for line in report.profile.lines if line.hits and device.name in line.devices]
    if not lines or device.peak_bytes <= device.before_bytes:
        return peak
    usages = [line.devices[device.name] for line in lines]
    place = peak_place(
        [usage.peak_bytes for usage in usages], [usage.delta_bytes for usage in usages]
    )
    return f"{peak} at line {lines[place].line_number}"


def _fullness(device: DeviceMemory) -> tuple[float, int]:
    share = device.peak_bytes / device.limit_bytes if device.limit_bytes else 0.0
    return share, device.peak_bytes


def _sorted_devices(report: Report) -> Iterable[DeviceMemory]:
    order = {name: place for place, name in enumerate(device_names(report))}
    return sorted(report.devices, key=lambda device: order[device.name])


def _of_limit(count: int, limit: int | None) -> str:
    whole = "" if limit is None else f" of {format_bytes(limit)}"
    return format_bytes(count) + whole


def _marks(report: Report, laid_out: Iterable[Table]) -> Iterator[Fact]:
    rows = [row for table in laid_out for row in table.rows]
    if any(row.is_stop for row in rows):
        yield Fact("→", "the line that the run ended at")
    if any(cell.is_peak for row in rows for cell in row.cells):
        yield Fact("▲", "the line that made the highest peak of its column")
    for name in devices_on_the_host(report):
        words = "runs in the host's memory: its columns are a part of the host's, not beside them"
        yield Fact(label(name), words)
    if any(line.is_partial for line in all_lines(report)):
        yield Fact(
            "≥ ~",
            "not every run of the line was watched: it ran at least so often, and its time and "
            "memory are its share of what several lines took together",
        )
    elif any(line.is_shared for line in all_lines(report)):
        words = "memory was read for several lines at once: this is the line's share of it"
        yield Fact("~", words)


def _notes(report: Report) -> Iterator[str]:
    if not any(line.hits for line in all_lines(report)):
        yield "No line ran, so there is nothing to tell line by line."
    yield from report.notes


def _facts(report: Report) -> Iterator[Fact]:
    engine = report.engine
    yield Fact("Lines", f"told apart by {_ENGINES[engine.name]}: {_sentence(engine.reason)}")
    yield from _host_facts(report)
    busy = set(busy_devices(report))
    for device in _sorted_devices(report):
        idle = "" if device.name in busy else " No line used it."
        yield Fact(label(device.name), _device_words(device) + idle)
    for gpu in sorted(report.gpus, key=lambda gpu: gpu.index):
        yield Fact(f"GPU {gpu.index} (NVML)", gpu_words(gpu))
    yield Fact("Run", _sentence(", ".join(_run_words(report))))


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _host_facts(report: Report) -> Iterator[Fact]:
    host = report.host
    exact = "exact" if host.is_exact else "sampled, so a short peak can be missed"
    yield Fact(
        "Host",
        f"{format_bytes(host.before_bytes)} before, {format_bytes(host.after_bytes)} after, "
        f"peak {format_bytes(host.peak_bytes)}; {exact} ({host.source}).",
    )
    for device in report.devices:
        if device.is_part_of_host:
            yield Fact("of it", _share_words(device))
    if has_read_files(report):
        files = format_bytes(host.file_peak_bytes)
        yield Fact(
            "File pages", f"peak {files}; of mapped files and shared memory, not counted above."
        )
    if host.limit_bytes is not None:
        source = f" ({host.limit_source})" if host.limit_source else ""
        yield Fact("Host limit", f"{format_bytes(host.limit_bytes)}{source}.")
    if host.children_peak_bytes is not None:
        children = format_bytes(host.children_peak_bytes)
        yield Fact("Children", f"child processes peaked at {children}.")


def _share_words(device: DeviceMemory) -> str:
    """Say how much of the host's memory is a device's: what it keeps for later is not known."""
    words = f"{label(device.name)} had up to {format_bytes(device.peak_bytes)} in use at once"
    if device.limit_bytes is None:
        return f"{words}, and keeps what it once took."
    most = format_bytes(device.limit_bytes)
    return f"{words}; with what its allocator keeps for later, {most} at most."


def _device_words(device: DeviceMemory) -> str:
    return (
        f"{format_bytes(device.before_bytes)} before, {format_bytes(device.after_bytes)} after, "
        f"peak {_of_limit(device.peak_bytes, device.limit_bytes)} ({device.source})."
    )


def gpu_words(gpu: Gpu) -> str:
    """Say everything that a GPU's driver said."""
    said = [gpu.name]
    if gpu.total_bytes is not None:
        said.append(f"{format_bytes(gpu.total_bytes)} in all")
    if gpu.used_by_others_bytes is not None:
        said.append(f"{format_bytes(gpu.used_by_others_bytes)} held by other processes")
    if gpu.utilization_percent is not None:
        said.append(f"{gpu.utilization_percent:.0f} % busy")
    if gpu.temperature_c is not None:
        said.append(f"{gpu.temperature_c:.0f} °C")
    if gpu.power_w is not None:
        said.append(f"{gpu.power_w:.0f} W")
    return f"{', '.join(said)}. {gpu.note}".strip()


def _run_words(report: Report) -> Iterator[str]:
    if report.started_at:
        yield f"started {format_time(report.started_at)}"
    for name, version in report.versions.items():
        yield f"{_PACKAGES.get(name, name)} {version}"
