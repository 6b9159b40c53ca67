"""Records one run with one tracer and the meters, and puts everything back.

What is profiled need not exist yet when a recording begins: IPython compiles a cell statement
by statement, and hands each over to `watch` just before it runs.
"""

import platform
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from os import getpid
from time import perf_counter
from types import CodeType, FrameType, FunctionType

from oommagic._version import __version__
from oommagic.cell import CellText, Statement
from oommagic.measure import engines
from oommagic.measure.evidence import Evidence, Witness
from oommagic.measure.functions import code_and_nested, find_function, line_span, listing_of
from oommagic.measure.host import open_host_meter
from oommagic.measure.lanes import Lanes
from oommagic.measure.ledger import Ledger
from oommagic.measure.limits import LowestLimit
from oommagic.measure.line_marks import LineMarks
from oommagic.measure.nvml import open_gpus
from oommagic.measure.programs_memory import ProgramsMemory
from oommagic.measure.tallies import Tally
from oommagic.measure.ticker import Ticker
from oommagic.own_builtins import keep_builtins
from oommagic.recording import LineReading, Listing, Recording, TracedLines
from oommagic.report import DeviceMemory, DeviceUsage, HostMemory
from oommagic.source_files import CELL
from oommagic.tf import arena
from oommagic.tf.allocator import Allocators
from oommagic.tf.functions import traced_functions
from oommagic.tf.heap import OwnWork

keep_builtins(globals())

# Walking through all processes for children costs milliseconds: five times a second will do.
_CHILDREN_EVERY = 4


@dataclass(frozen=True, slots=True)
class Request:
    """What to record, and how."""

    functions: tuple[str, ...] = ()
    engine: str = "auto"
    include_children: bool = False
    tape_steps: int = 3
    """How many training steps to record with every allocation; 0 for none."""
    compile_s: float = 5.0
    """How long compiling a step once more may take, to tell what it keeps in its memory."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the lines of one code object stand; `shift` leads from its lines to the listing's."""

    code: CodeType
    filename: str
    text: CellText
    shift: int = 0

    def statement_of(self, line: int) -> Statement:
        """Name the statement that a line belongs to."""
        return self.text.statement(self.filename, line + self.shift)


class Recorder:
    """One recording: `start`, `watch` what runs, `stop`."""

    def __init__(self, request: Request, namespace: Mapping[str, object]) -> None:
        self._request = request
        self._namespace = namespace
        self.engine, make_engine = engines.choose(request.engine)
        self._host = ProgramsMemory(open_host_meter())
        self._devices = Allocators()
        self._gpus = open_gpus()
        self._ledger = Ledger(self._host, self._devices, self._statement_of)
        self._line_engine = make_engine(self._ledger)
        self._witness = Witness(namespace, request.tape_steps, request.compile_s, self._aside)
        self._ticker = Ticker(self._on_tick)
        self._lanes = Lanes(self._host, self._devices, self._gpus)
        self._limit = LowestLimit()
        self._places: dict[int, Place] = {}
        self._listings: dict[str, Listing] = {}
        # Codes, not functions: those hold the user's objects.
        self._asked_for: dict[str, CodeType] = {}
        self._notes: list[str] = []
        self._thread_id = threading.get_ident()
        self._marks = LineMarks(self._thread_id)
        self._process_id = getpid()
        self._started = 0.0

    def start(self) -> None:
        """Begin to measure; nothing is reported before code is watched."""
        with ExitStack() as undoing:
            undoing.callback(self._close_meters)
            undoing.callback(self._witness.close)
            self._witness.begin()
            self._host.start()
            self._ledger.open()
            self._started = perf_counter()
            self._mark_lines()
            self._ticker.start()
            undoing.callback(self._ticker.stop)
            self._line_engine.start()
            undoing.callback(self._line_engine.stop)
            self._watch_functions()
            undoing.pop_all()

    def watch(self, code: CodeType, text: CellText, shift: int = 0) -> None:
        """Profile a piece of the cell, and all functions that it defines."""
        # What the cell imported or defined meanwhile may be what was asked for.
        self._watch_functions()
        self._watch_nested(code, text, shift)

    def statement_failed(self) -> None:
        """An error has ended the statement that ran."""
        self._line_engine.statement_failed()

    def watch_frame(self, frame: FrameType, text: CellText) -> None:
        """Profile a frame that runs already, from its next line on."""
        self._watch_nested(frame.f_code, text, 0)
        self._line_engine.adopt(frame)
        # The line that it is at has begun already, and is perhaps all that there is.
        self._ledger.at_line(id(frame), id(frame.f_code), frame.f_lineno)

    def stop(self, error: BaseException | None = None) -> Recording:
        """Stop measuring and leave nothing behind, whatever happens on the way.

        `error` is what ended the run early.
        """
        with ExitStack() as closing:
            closing.callback(self._close_meters)
            closing.callback(self._witness.close)
            closing.callback(self._stop_ticker)
            note = self._line_engine.stop()
            elapsed_s = perf_counter() - self._started
            self._ledger.close()
            # The ticker adds to what is read next.
            self._stop_ticker()
            self._notes += [note] if note else []
            evidence = self._witness.end(self._started, error)
            return self._recording(elapsed_s, evidence)

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the one that records."""
        return getpid() != self._process_id

    def leave(self) -> None:
        """Let a forked child go on without the tracer; all else is its parent's."""
        self._line_engine.stop()

    def _close_meters(self) -> None:
        with ExitStack() as closing:
            closing.callback(self._host.close)
            closing.callback(self._devices.close)
            closing.callback(self._gpus.close)

    def _stop_ticker(self) -> None:
        # A forked child runs on without the thread, and would wait for it forever.
        if getpid() == self._process_id:
            self._ticker.stop()

    def _watch_functions(self) -> None:
        """Watch the functions that were asked for, as soon as they are found or made anew."""
        for name in self._request.functions:
            function = find_function(name, self._namespace)
            if function is not None and self._asked_for.get(name) is not function.__code__:
                self._asked_for[name] = function.__code__
                self._watch_function(name, function)

    def _watch_nested(self, code: CodeType, text: CellText, shift: int) -> None:
        for inner in code_and_nested(code):
            self._watch_code(Place(inner, CELL, text, shift))
            name = _asked_name(inner, self._request.functions)
            if name:
                self._list_defined_here(name, inner, text, shift)

    def _watch_function(self, name: str, function: FunctionType) -> None:
        place = self._places.get(id(function.__code__))
        if place is not None and place.filename == CELL:
            self._list_defined_here(name, place.code, place.text, place.shift)
            return
        listing = listing_of(name, function)
        if listing is None:
            return
        self._listings[name] = listing
        for code in code_and_nested(function.__code__):
            self._watch_code(Place(code, listing.filename, listing.text, 1 - listing.first_line))

    def _watch_code(self, place: Place) -> None:
        self._places[id(place.code)] = place
        guarded = frozenset(line - place.shift for line in place.text.guarded_lines)
        self._line_engine.watch(place.code, guarded)

    def _list_defined_here(self, name: str, code: CodeType, text: CellText, shift: int) -> None:
        first, last = (line + shift for line in line_span(code))
        part = replace(text, lines=text.lines[first - 1 : last])
        self._listings[name] = Listing(name, CELL, first, part)

    def _mark_lines(self) -> None:
        """Note when lines begin as long as a tape records: its allocations belong to them."""
        self._ledger.mark_lines(self._marks if self._witness.is_taping else None)

    @contextmanager
    def _aside(self, work: OwnWork) -> Iterator[None]:
        """What our own work amid the program takes is no line's."""
        self._ledger.look()
        with self._host.without(work):
            yield
        self._ledger.look()

    def _number_of(self, tally: Tally) -> int:
        is_in_cell = self._places[tally.code_id].filename == CELL
        return tally.statement.first_line if is_in_cell else 0

    def _statement_of(self, code_id: int, line: int) -> Statement:
        return self._places[code_id].statement_of(line)

    def _on_tick(self, count: int) -> None:
        silenced = self._ledger.dark_threads()
        self._look_at(silenced)
        self._limit.look()
        self._witness.tick(count)
        self._mark_lines()
        self._ledger.tick()
        self._line_engine.tick(silenced=bool(silenced))
        # A sampling engine writes its account from this very thread.
        ledger = self._ledger
        line = ledger.line_of(self._thread_id) or ledger.line_of(threading.get_ident())
        self._lanes.sample(count, perf_counter() - self._started, self._cell_line(line))
        if self._request.include_children and count % _CHILDREN_EVERY == 0:
            self._ledger.note_children(self._lanes.children_bytes())

    def _look_at(self, threads: list[int]) -> None:
        """See where threads are whose lines are silenced."""
        for thread_id in threads:
            # All frames in a variable of ours would hold themselves, and what the program's held.
            frame = sys._current_frames().get(thread_id)  # noqa: SLF001 (no public way)
            while frame is not None and id(frame.f_code) not in self._places:
                frame = frame.f_back
            # A jump back to a loop's head may be of no line.
            if frame is not None and frame.f_lineno is not None:
                self._ledger.sight(thread_id, id(frame.f_code), frame.f_lineno)

    def _cell_line(self, at: tuple[int, int] | None) -> int:
        place = self._places.get(at[0]) if at else None
        return at[1] + place.shift if at and place and place.filename == CELL else 0

    def _recording(self, elapsed_s: float, evidence: Evidence) -> Recording:
        return Recording(
            readings=tuple(map(self._reading, self._ledger.tallies)),
            engine=self.engine,
            elapsed_s=elapsed_s,
            host=self._host_memory(),
            devices=tuple(self._device_memory()),
            gpus=self._lanes.gpus_now,
            timeline=self._lanes.store.timeline(),
            listings=tuple(self._listings.values()),
            traced=tuple(self._traced_lines()),
            tapes=evidence.tapes,
            compiled=evidence.compiled,
            line_times=self._marks.line_times(self._started, self._number_of),
            held_before=evidence.held_before,
            held_after=evidence.held_after,
            failure=evidence.failure,
            caught_in=evidence.caught_in,
            notes=(*self._notes, *self._more_notes(), *evidence.notes),
            versions={
                "oommagic": __version__,
                "Python": platform.python_version(),
                **self._devices.version(),
            },
        )

    def _reading(self, tally: Tally) -> LineReading:
        place = self._places[tally.code_id]
        return LineReading(
            filename=place.filename,
            line_number=tally.line + (place.shift if place.filename == CELL else 0),
            hits=tally.hits,
            elapsed_s=tally.elapsed,
            worst_s=tally.worst,
            host_delta_bytes=tally.own_delta,
            host_peak_bytes=tally.own_peak,
            file_delta_bytes=tally.file_delta,
            children_peak_bytes=tally.children_peak,
            devices={
                name: DeviceUsage(tally.device_deltas.get(name, 0), peak)
                for name, peak in tally.device_peaks.items()
            },
            is_partial=tally.is_partial or self.engine.name == "sampling",
            is_shared=tally.is_shared,
            ran_at_tracing=tally.ran_at_tracing,
        )

    def _host_memory(self) -> HostMemory:
        totals, limit = self._ledger.totals, self._limit.limit
        return HostMemory(
            before_bytes=totals.own_before,
            after_bytes=totals.own_now,
            peak_bytes=totals.own_peak,
            file_peak_bytes=totals.file_peak,
            source=self._host.source,
            is_exact=self._host.is_exact,
            limit_bytes=limit.bytes,
            limit_source=limit.source,
            limit_counts_reserved=limit.counts_reserved,
            children_peak_bytes=totals.children_peak if self._request.include_children else None,
        )

    def _device_memory(self) -> Iterator[DeviceMemory]:
        totals = self._ledger.totals
        for name, peak in totals.device_peak.items():
            yield DeviceMemory(
                name=name,
                before_bytes=totals.device_before[name],
                after_bytes=totals.device_now[name],
                peak_bytes=peak,
                limit_bytes=self._devices.limit_bytes(name),
                is_part_of_host=arena.owns(name),
            )

    def _traced_lines(self) -> Iterator[TracedLines]:
        for function in traced_functions(self._namespace):
            place = self._places.get(id(function.code))
            if place is not None:
                shift = place.shift if place.filename == CELL else 0
                first, last = (line + shift for line in line_span(function.code))
                yield TracedLines(function.name, place.filename, first, last, function.traces)

    def _more_notes(self) -> Iterator[str]:
        for name in self._request.functions:
            if name in self._listings:
                continue
            if name in self._asked_for:
                yield f"{name}: Python cannot find this function's source to show its lines."
            else:
                yield (
                    f"{name}: there is no Python function of that name here or in an imported "
                    "module; import its module first, or check the spelling."
                )
        if not self._devices.names:
            yield self._devices.status()
        yield self._gpus.status
        yield from self._gpus.notes


def _asked_name(code: CodeType, asked: tuple[str, ...]) -> str:
    """Return under which of these names a function was asked for, if it was.

    A function inside another one may be called by the name that it has there.
    """
    within = code.co_qualname.rpartition("<locals>.")[2]
    return next((name for name in (code.co_qualname, within) if name in asked), "")
