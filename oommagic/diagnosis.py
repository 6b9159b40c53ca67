"""From the raw facts of a run, or from an error alone, to who held what and why it ran out."""

import linecache
import re
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from textwrap import dedent
from time import perf_counter
from types import CodeType

from oommagic.explain.advice.engine import findings_of
from oommagic.explain.advice.from_facts import situation_of
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.clues import clues_in
from oommagic.explain.composition import (
    Hints,
    composition_at_failure,
    composition_at_peak,
    composition_of_names,
)
from oommagic.explain.facts import Facts, SetLimit
from oommagic.explain.own_steps import CellSteps, forecast_of_cell
from oommagic.forecasts import Limit as ForecastLimit
from oommagic.measure.evidence import what_is_held
from oommagic.measure.functions import line_span
from oommagic.measure.limits import Limit, machine_bytes, set_limits
from oommagic.measure.nvml import open_gpus
from oommagic.recording import Held, Listing, Recording, Tape, TracedLines
from oommagic.report import (
    Composition,
    DeviceMemory,
    Failure,
    Finding,
    Forecast,
    Gpu,
    HostMemory,
    Profile,
    Report,
    Verdict,
)
from oommagic.source_files import CELL, is_cell
from oommagic.tf import arena, context
from oommagic.tf.context import limits_set
from oommagic.tf.culprits import Frame, frames_of
from oommagic.tf.devices import tensorflow_now
from oommagic.tf.failures import failed_in_own_line, failure_of
from oommagic.tf.functions import traced_functions
from oommagic.tf.looking import functions_of, is_plain, reached_from
from oommagic.tf.names_now import names_now, outputs_now
from oommagic.tf.notebook_names import outputs_meant

Namespace = Mapping[str, object]

_FUNCTION_IN_TEXT = re.compile(r'File "[^"]+", line \d+, in (\w+)')
_MOST_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that is over, with what the kernel alone knows of it."""

    recording: Recording
    listing: Listing
    profile: Profile
    error: BaseException | None
    line_number: int | None
    """The listing's line that ran when it failed."""
    shifts: Mapping[str, int]
    """The listing's source files, and how far their lines are from the listing's."""
    earlier: tuple[Report, ...]
    namespace: Namespace


def facts_of_run(run: EndedRun) -> Facts:
    """Put together what one run has shown."""
    recording, listing = run.recording, run.listing
    failure = recording.failure and _in_listing(recording.failure, listing, run.shifts)
    source = "\n".join(listing.text.lines)
    reached, in_functions = _names_reached(source, run.namespace)
    return Facts(
        failure=failure,
        source=source,
        first_line=listing.first_line,
        line_number=(None if recording.caught_in else run.line_number) or _own_line(failure),
        stack=recording.caught_in or _functions_in(run.error),
        names_used=reached,
        names_in_functions=in_functions,
        profile=run.profile,
        host=recording.host,
        devices=recording.devices,
        gpus=recording.gpus,
        timeline=recording.timeline,
        compositions=tuple(_compositions(recording, failure)),
        tapes=recording.tapes,
        held_before=recording.held_before,
        held_after=recording.held_after,
        traced=_traced(run.namespace),
        earlier=run.earlier,
        limits=(*_host_limits(recording.host), *_device_limits(recording.gpus)),
    )


def forecast_of_run(run: EndedRun) -> Forecast | None:
    """Predict other batch sizes from the steps of a run; None where they do not tell enough."""
    began_s, recording = perf_counter(), run.recording
    if len({tape.device for tape in recording.tapes}) != 1:
        return None  # several devices share a batch
    for tape in recording.tapes:
        forecast = forecast_of_cell(_cell_steps(run, tape))
        if forecast is not None:
            return replace(forecast, elapsed_s=perf_counter() - began_s)
    return None


def advice_for(
    typed: str,
    facts: Facts,
    verdict: Verdict | None,
    forecast: Forecast | None,
    namespace: Namespace,
) -> tuple[Finding, ...]:
    """Suggest what would help a cell, as it was typed, or a block of one."""
    below = facts.first_line - 1
    try:
        cell = TypedCell(dedent(typed))
        names = names_now(namespace, cell.names)
        known = situation_of(cell, facts, verdict, forecast, names, outputs_now(namespace))
        cards = {card.name: card.usable_bytes for card in arena.CARDS}
        found = findings_of(cell, replace(known, keras_has=context.keras_offers(), cards=cards))
    except MemoryError:
        return ()  # the host is still so full: why it is comes first
    return tuple(
        one if one.line_number is None else replace(one, line_number=one.line_number + below)
        for one in found
    )


def _cell_steps(run: EndedRun, tape: Tape) -> CellSteps:
    names, is_arena = tape.names_before, arena.owns(tape.device)
    here = arena.current() if is_arena else None
    limits = (one.limit_bytes for one in run.recording.devices if one.name == tape.device)
    limit_bytes = next(limits, None)
    name = tape.device if here is None else here.like or "this device"
    return CellSteps(
        tape=tape,
        held=run.recording.held_before if names is None else names.held,
        limit=ForecastLimit(name, limit_bytes) if limit_bytes else None,
        is_arena=is_arena,
        has_failed=run.recording.failure is not None,
    )


def facts_of_error(error: BaseException, namespace: Namespace) -> Facts | None:
    """Put together what is known of an error by itself; None if it is not about memory."""
    failure = failure_of(error)
    if failure is None:
        return None
    called = _call_in_notebook(error)
    filename = called.filename if called is not None else failure.filename
    source = "".join(linecache.getlines(filename)) if filename else ""
    held = what_is_held(namespace, include_unnamed=True)
    devices, gpus = tuple(_devices_now()), _gpus_now() if failure.place == "device" else ()
    told_filename = CELL if is_cell(filename) else filename
    reached, in_functions = _names_reached(source, namespace)
    if failure.filename == filename:
        failure = replace(failure, filename=told_filename)
    return Facts(
        failure=failure,
        source=source,
        filename=told_filename,
        line_number=called.line_number if called is not None else None,
        stack=_functions_in(error),
        names_used=reached,
        names_in_functions=in_functions,
        devices=devices,
        gpus=gpus,
        compositions=tuple(_of_names(devices, held)),
        held_after=held,
        is_as_it_failed=failed_in_own_line(error),
        traced=_traced(namespace),
        limits=(*_host_limits(None), *_device_limits(gpus)),
        host_limit_bytes=min([machine_bytes(), *(limit.bytes for limit in set_limits())]),
    )


def _devices_now() -> Iterator[DeviceMemory]:
    _, now = tensorflow_now()
    for one in now:
        if one.in_use_bytes is not None and one.peak_bytes is not None:
            yield DeviceMemory(
                one.name,
                one.in_use_bytes,
                one.in_use_bytes,
                one.peak_bytes,
                one.limit_bytes,
                is_part_of_host=arena.owns(one.name),
            )


def _call_in_notebook(error: BaseException) -> Frame | None:
    """Find the line that stands in no function: of the cell, or of the program, that ran."""
    frames = frames_of(error)
    return next((frame for frame in frames if frame.is_users and frame.is_top_level), None)


def _in_listing(failure: Failure, listing: Listing, shifts: Mapping[str, int]) -> Failure:
    """Say where the failing line stands in the cell, if it does."""
    if failure.line_number is None or failure.filename not in shifts:
        return failure
    number = failure.line_number + shifts[failure.filename]
    at = number - listing.first_line
    lines = listing.text.lines
    source = lines[at] if 0 <= at < len(lines) else failure.line_source
    return replace(failure, line_number=number, line_source=source, filename="")


def _own_line(failure: Failure | None) -> int | None:
    """Give the failing line, if it stands in the listing itself."""
    return failure.line_number if failure is not None and not failure.filename else None


def _compositions(recording: Recording, failure: Failure | None) -> Iterator[Composition]:
    before, after = recording.held_before, recording.held_after
    hints = Hints(recording.compiled, recording.line_times)
    for device in dict.fromkeys(tape.device for tape in recording.tapes):
        tapes = [tape for tape in recording.tapes if tape.device == device]
        # A caught error's step has given back what it had: there is only the peak to look at.
        if failure is not None and not recording.caught_in and _is_on(device, failure):
            # The one that lasted to the end has the failure on it.
            tape = next((tape for tape in tapes if tape.is_whole), tapes[0])
            yield composition_at_failure(tape, before, after, failure, hints)
        else:
            yield composition_at_peak(tapes[0], before, after, _peak(tapes[0], recording), hints)


def _is_on(device: str, failure: Failure) -> bool:
    return failure.place == "device" and failure.device in {"", device}


def _peak(tape: Tape, recording: Recording) -> int | None:
    peaks = (device.peak_bytes for device in recording.devices if device.name == tape.device)
    return next(peaks, None)


def _of_names(devices: Iterable[DeviceMemory], held: tuple[Held, ...]) -> Iterator[Composition]:
    for device in devices:
        if device.after_bytes:
            yield composition_of_names(device.name, device.after_bytes, held, "failure")


def _functions_in(error: BaseException | None) -> tuple[str, ...]:
    """Name the functions that ran, and those that TensorFlow's text says made the failing op."""
    if error is None:
        return ()
    ran = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    told = "".join(traceback.format_exception_only(error))
    return (*ran, *_FUNCTION_IN_TEXT.findall(told))


def _names_reached(source: str, namespace: Namespace) -> tuple[frozenset[str], frozenset[str]]:
    """Name what a cell uses, also in the notebook's functions that it calls; and what those use."""
    called = _called(namespace)
    waiting = list(clues_in(source).names_used)
    reached: set[str] = set()
    in_functions: set[str] = set()
    while waiting and len(reached) < _MOST_NAMES:
        name = waiting.pop()
        if name in reached:
            continue
        reached.update((name, *outputs_meant(name, namespace)))
        value = namespace.get(name)
        names = [each for function in functions_of(value) for each in _names_in(function.__code__)]
        in_functions.update(names)
        waiting += names
        for held in reached_from(value):
            waiting += called.pop(id(held), ())  # all names of a value, once
    return frozenset(reached), frozenset(in_functions)


def _called(namespace: Namespace) -> dict[int, list[str]]:
    """Give the names of each value: a model may have several, IPython's `_3` among them.

    Not of `3` or `None`: whoever uses that uses no name of it.
    """
    called: dict[int, list[str]] = defaultdict(list)
    for name, value in list(namespace.items()):
        if type(name) is str and not is_plain(value):
            called[id(value)].append(name)
    return called


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the names that a function uses, and the functions and comprehensions within it."""
    yield from code.co_names
    for inner in code.co_consts:
        if type(inner) is CodeType:
            yield from _names_in(inner)


def _traced(namespace: Namespace) -> tuple[TracedLines, ...]:
    """Say how often the notebook's tf.functions were traced, in whichever cell they stand."""
    return tuple(
        TracedLines(each.name, each.code.co_filename, *line_span(each.code), each.traces)
        for each in traced_functions(namespace)
    )


def _host_limits(host: HostMemory | None) -> Iterator[SetLimit]:
    """Yield the limit that counted in the run, or else those of now, where someone has set it."""
    total, limits = machine_bytes(), set_limits()
    if host is not None and host.limit_bytes is not None:
        limits = (Limit(host.limit_bytes, host.limit_source),)
    for limit in limits:
        if limit.bytes < total:
            yield SetLimit(limit.source, limit.bytes, hardware_bytes=total)


def _device_limits(gpus: Iterable[Gpu]) -> Iterator[SetLimit]:
    """Yield what the program allows TensorFlow's devices of each card."""
    totals = {gpu.index: gpu.total_bytes for gpu in gpus}
    for limit in limits_set():
        text = "the logical device's memory_limit"
        yield SetLimit(text, limit.bytes, limit.device, totals.get(limit.card))


def _gpus_now() -> tuple[Gpu, ...]:
    gpus = open_gpus()
    try:
        return gpus.read()
    finally:
        gpus.close()
