"""One run, end to end, and the runs before it."""

import ast
import datetime as dt
import linecache
import sys
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import CodeType, FrameType, TracebackType
from typing import Self

from oommagic.cell import CellText, parse_quietly
from oommagic.devices import Overview
from oommagic.errors import UsageError
from oommagic.explain.attribution import profile_of, tracing_notes
from oommagic.measure.limits import available_bytes, host_limit
from oommagic.measure.nvml import open_gpus
from oommagic.measure.recorder import Recorder, Request
from oommagic.recording import CELL, Listing, Recording
from oommagic.report import Outcome, Report
from oommagic.tf import arena
from oommagic.tf.devices import tensorflow_now

_KEPT_REPORTS = 20
_LONGEST_MESSAGE = 4000

_reports: deque[Report] = deque(maxlen=_KEPT_REPORTS)
_running: "Run | None" = None


class Run:
    """A recording that runs, and what it needs to become a report."""

    def __init__(self, request: Request, namespace: Mapping[str, object]) -> None:
        global _running  # noqa: PLW0603 (one process has one high-water mark: one run at a time)
        if _running is not None:
            raise UsageError(
                "A recording runs already, and a process can be profiled only once at a time: use "
                "either %%oomprofile or oommagic.profile(), not one inside the other."
            )
        self._recorder = Recorder(request, namespace)
        self._started_at = dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")
        self._recorder.start()
        _running = self

    def watch(self, code: CodeType, text: CellText, shift: int = 0) -> None:
        """Profile a piece of the cell that is about to run."""
        self._recorder.watch(code, text, shift)

    def statement_failed(self) -> None:
        """An error has ended the statement that ran, and is about to be shown."""
        self._recorder.statement_failed()

    def watch_frame(self, frame: FrameType, text: CellText) -> None:
        """Profile a frame that runs already."""
        self._recorder.watch_frame(frame, text)

    def finish(self, listing: Listing, outcome: Outcome) -> Report:
        """Stop, and keep the report."""
        report = self._report(self.stop(), listing, outcome)
        _reports.append(report)
        return report

    def stop(self) -> Recording:
        """Stop, and leave nothing behind."""
        global _running  # noqa: PLW0603 (see above)
        _running = None
        return self._recorder.stop()

    def _report(self, recording: Recording, listing: Listing, outcome: Outcome) -> Report:
        return Report(
            source="\n".join(listing.text.lines),
            started_at=self._started_at,
            elapsed_s=recording.elapsed_s,
            outcome=outcome,
            engine=recording.engine,
            profile=profile_of(recording, listing),
            host=recording.host,
            devices=recording.devices,
            gpus=recording.gpus,
            timeline=recording.timeline,
            notes=(*recording.notes, *tracing_notes(recording), *_without_lines(listing)),
            versions=recording.versions,
        )


def _without_lines(listing: Listing) -> Iterator[str]:
    if not listing.text.lines:
        yield (
            "Lines are shown for the body of a `with oommagic.profile()` whose source Python can "
            "find: this block has figures as a whole only."
        )


def use_device(size: str | int | None = None, *, like: str | None = None) -> arena.Arena:
    """Turn this CPU into a training device of that size, or with the memory of a known card.

    It must come before TensorFlow is imported, and holds for the rest of the process.
    """
    return arena.use_device(size, like=like, host_limit_bytes=host_limit().bytes)


def devices() -> Overview:
    """Say what there is to train on: TensorFlow's devices, this machine's GPUs, known cards."""
    tensorflow, found = tensorflow_now()
    gpus = open_gpus()
    try:
        seen = gpus.read()
    finally:
        gpus.close()
    return Overview(
        training_device=arena.status(),
        tensorflow=tensorflow,
        gpu_status=gpus.status,
        devices=found,
        gpus=seen,
        cards=arena.CARDS,
        warnings=tuple(arena.warnings(available_bytes(), gpu_count=len(seen))),
    )


def last_report() -> Report:
    """Return the report of the last profiled cell or block."""
    if not _reports:
        raise UsageError("Nothing was profiled yet: put %%oomprofile on top of a cell and run it.")
    return _reports[-1]


def outcome_of(error: BaseException | None, listing: Listing, shifts: Mapping[str, int]) -> Outcome:
    """Say how a run ended, and at which line of the listing.

    `shifts` has the source's file names, and how far their lines are from the listing's.
    """
    if error is None:
        return Outcome("finished")
    lines = [
        number + shifts[frame.f_code.co_filename]
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename in shifts
    ]
    # A block may call a function that stands elsewhere in its file.
    shown = range(listing.first_line, listing.first_line + len(listing.text.lines))
    lines = [line for line in lines if line in shown] or lines
    return Outcome(
        kind="interrupted" if isinstance(error, KeyboardInterrupt) else "failed",
        error_type=type(error).__name__,
        message=_message(error),
        line_number=lines[-1] if lines else None,
    )


def _message(error: BaseException) -> str:
    # Python's own formatting survives a user's exception whose __str__ fails.
    told = traceback.format_exception_only(error)
    for number, part in enumerate(told):
        name, _, message = part.partition(": ")
        # What stands before it is the source line of a SyntaxError.
        if name.rpartition(".")[2] == type(error).__name__:
            return "".join([message, *told[number + 1 :]]).strip()[:_LONGEST_MESSAGE]
    return ""


class ProfiledBlock:
    """The body of a `with oommagic.profile()`; `report` is there once the body has ended."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._report: Report | None = None
        self._run: Run | None = None

    @property
    def report(self) -> Report:
        """The report of the block."""
        if self._report is None:
            raise UsageError("The block still runs: its report is there when it has ended.")
        return self._report

    def __enter__(self) -> Self:
        frame = sys._getframe(1)  # noqa: SLF001 (the block's own frame)
        self._filename = frame.f_code.co_filename
        text = CellText.of("".join(linecache.getlines(self._filename, frame.f_globals)))
        self._listing = _block_at(frame.f_lineno, text)
        # Not its locals: in a function they are a copy, which would keep what the body lets go.
        self._run = Run(self._request, frame.f_globals)
        self._run.watch_frame(frame, text)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            self._report = run.finish(
                self._listing, outcome_of(error, self._listing, {self._filename: 0})
            )


def profile(*functions: str, engine: str = "auto", include_children: bool = False) -> ProfiledBlock:
    """Profile the body of a `with`, line by line; functions are named as for `-f`."""
    return ProfiledBlock(Request(functions, engine, include_children))


def _block_at(line_number: int, text: CellText) -> Listing:
    """Find the body of the `with` statement whose head has this line."""
    for node in _with_statements(text):
        if node.lineno <= line_number <= (node.items[-1].context_expr.end_lineno or node.lineno):
            first, last = node.body[0].lineno, node.end_lineno or node.lineno
            body = replace(text, lines=text.lines[first - 1 : last])
            return Listing("the block", CELL, first, body)
    return Listing("the block", CELL, line_number, replace(text, lines=()))


def _with_statements(text: CellText) -> list[ast.With | ast.AsyncWith]:
    tree = parse_quietly("\n".join(text.lines))
    return [node for node in ast.walk(tree) if isinstance(node, ast.With | ast.AsyncWith)]
