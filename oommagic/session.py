"""One run, end to end, and the runs before it."""

import datetime as dt
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from oommagic import trying
from oommagic.cell import CellText, physical_lines
from oommagic.devices import Overview
from oommagic.diagnosis import (
    EndedRun,
    Namespace,
    advice_for,
    facts_of_error,
    facts_of_run,
    forecast_of_run,
)
from oommagic.errors import UsageError
from oommagic.explain.advice.numbered import fix_numbered
from oommagic.explain.attribution import profile_of, tracing_notes
from oommagic.explain.facts import Facts
from oommagic.explain.verdict import verdict_of
from oommagic.measure.limits import available_bytes, host_limit
from oommagic.measure.nvml import open_gpus
from oommagic.measure.recorder import Recorder, Request
from oommagic.progress import Progress
from oommagic.recording import Listing, Recording
from oommagic.report import (
    Composition,
    DeviceMemory,
    Finding,
    HostMemory,
    Outcome,
    Report,
    Trial,
    Verdict,
)
from oommagic.source_files import CELL
from oommagic.tf import arena
from oommagic.tf.devices import tensorflow_now
from oommagic.tf.room_for_arrays import ask_for_room_first

if TYPE_CHECKING:
    from concurrent.futures import Executor

_KEPT_REPORTS = 20
_LONGEST_MESSAGE = 4000


@dataclass(frozen=True, slots=True)
class Advice:
    """Suggestions, and the cell that they are for: what `trying.try_fixes` asks of it."""

    findings: tuple[Finding, ...]
    source: str = ""
    head: str = ""
    """What stands above the cell's first line: the magic, as typed."""
    is_of_a_cell: bool = True
    """Else of a block, or of a file: there is no cell to put in its place."""
    devices: tuple[DeviceMemory, ...] = ()
    host: HostMemory | None = None
    report: Report | None = None
    """The report that has them; None for an error of a cell that was not profiled."""


@dataclass(slots=True)
class _Newest:
    """What came last: a profiled run, or an error in a cell that was not profiled."""

    facts: Facts | None = None
    error_id: int = 0
    """Which error ended that run: its number, since holding it would hold the user's objects."""
    is_plain_error: bool = False
    typed: str = ""
    """The cell of that plain error, as it was typed, if IPython told."""
    advice: Advice | None = None
    """What was suggested last."""
    advice_of_run: Advice | None = None
    """What was suggested for the last profiled run."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why memory ran out, and what filled the devices."""

    verdict: Verdict
    compositions: tuple[Composition, ...] = ()
    findings: tuple[Finding, ...] = ()
    trials: tuple[Trial, ...] = ()


HearTrials = Callable[[Sequence[Trial]], None]
"""Takes more trials of a report."""

_reports: deque[Report] = deque(maxlen=_KEPT_REPORTS)
_hearing: deque[tuple[Report, HearTrials]] = deque(maxlen=_KEPT_REPORTS)
_newest = _Newest()
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
        self._namespace = namespace
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

    def finish(
        self,
        listing: Listing,
        error: BaseException | None,
        shifts: Mapping[str, int],
        head: str | None = None,
    ) -> Report:
        """Stop, and keep the report.

        `shifts` has the source's file names, and how far their lines are from the listing's.
        `head` is what stands above a cell's lines; None for what is not a cell.
        """
        recording = self.stop(error)
        report = self._report(recording, listing, _outcome_of(error, listing, shifts))
        earlier = tuple(_reports)
        ended = EndedRun(
            recording=recording,
            listing=listing,
            profile=report.profile,
            error=error,
            line_number=report.outcome.line_number,
            shifts=shifts,
            earlier=earlier,
            namespace=self._namespace,
        )
        facts = facts_of_run(ended)
        verdict = verdict_of(facts) if facts.failure is not None else None
        forecast = forecast_of_run(ended)
        report = replace(
            report,
            compositions=facts.compositions,
            verdict=verdict,
            plan=forecast,
            findings=advice_for(report.source, facts, verdict, forecast, self._namespace),
        )
        _reports.append(report)
        _newest.facts, _newest.error_id, _newest.is_plain_error = facts, id(error), False
        _newest.advice = _newest.advice_of_run = Advice(
            report.findings, report.source, head or "", head is not None, report=report
        )
        return report

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the one that records."""
        return self._recorder.is_forked

    def leave(self) -> None:
        """Leave the recording to the parent process."""
        global _running  # noqa: PLW0603 (see above)
        _running = None
        self._recorder.leave()

    def stop(self, error: BaseException | None = None) -> Recording:
        """Stop, and leave nothing behind."""
        global _running  # noqa: PLW0603 (see above)
        _running = None
        return self._recorder.stop(error)

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
    device = arena.use_device(size, like=like, host_limit_bytes=host_limit().bytes)
    ask_for_room_first()
    return device


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


def note_plain_error(typed: str) -> None:
    """A cell that was not profiled has failed: from now on the question is why that one did."""
    _newest.is_plain_error, _newest.typed = True, typed


def _advice() -> Advice:
    if _newest.advice is None:
        raise UsageError(
            "There are no suggestions yet: put %%oomprofile on top of a cell and run it, or ask "
            "%oomwhy after an error."
        )
    return _newest.advice


def fixed_cell(number: int) -> str:
    """Give the cell as it would be with one of the suggestions that were shown last."""
    advice = _advice()
    fix = fix_numbered(advice.findings, number)
    if not advice.is_of_a_cell:
        raise UsageError(
            f"Suggestion {number} is for a block or a file, not for a cell: make its change there."
        )
    return advice.head + fix.source


def try_shown(
    numbers: Sequence[int], progress: Progress | None = None
) -> tuple[Trial, tuple[Finding, ...]]:
    """Measure some of the suggestions that were shown last, together; give what all of them are."""
    advice = _advice()
    if advice.report is not None:
        (trial,) = try_fixes(advice.report, numbers, progress=progress)
    else:
        names = vars(sys.modules["__main__"])
        (trial,) = trying.try_fixes(advice, names, numbers, progress=progress)
    return trial, advice.findings


def try_fixes(  # noqa: PLR0913 (each is something that a user may say)
    report: Report | None = None,
    numbers: Sequence[int] | None = None,
    *,
    executor: "Executor | None" = None,
    progress: Progress | None = None,
    steps: int | None = None,
    timeout_s: float = trying.TIMEOUT_S,
) -> tuple[Trial, ...]:
    """Measure suggestions of a report, the last one by itself, each in child processes.

    Those of these numbers are tried together, without numbers each by itself: the cell as it is
    and as it would be, under the same limit and for the same few `steps`. An executor of
    `concurrent.futures` runs them elsewhere: threads, processes, a Dask cluster.
    """
    report = last_report() if report is None else report
    trials = trying.try_fixes(
        report,
        vars(sys.modules["__main__"]),
        numbers,
        executor=executor,
        progress=progress,
        steps=steps,
        timeout_s=timeout_s,
    )
    _keep_trials(report, trials)
    return trials


def tell_of_trials(report: Report, hear: HearTrials) -> None:
    """Tell of each later trial of a report: to the panel below it, for one."""
    _hearing.append((report, hear))


def _keep_trials(report: Report, trials: Sequence[Trial]) -> None:
    """Add trials to a report of this kernel: a suggestion that was measured says both figures."""
    for at, kept in enumerate(tuple(_reports)):
        if _is_of_one_run(kept, report):
            known = {trial.numbers: trial for trial in (*kept.trials, *trials)}
            _reports[at] = replace(kept, trials=tuple(known.values()))
    for told, hear in tuple(_hearing):
        if _is_of_one_run(told, report):
            hear(trials)


def _is_of_one_run(one: Report, other: Report) -> bool:
    return (one.started_at, one.source) == (other.started_at, other.source)


def why(error: BaseException | None = None) -> Verdict:
    """Say why memory ran out: in this error, or else in whatever came last. Nothing runs again."""
    if error is not None and not isinstance(error, BaseException):
        raise UsageError(
            f"`oommagic.why` explains an error, as in `except Exception as error:`; this is a "
            f"{type(error).__name__}. Without one it explains what came last."
        )
    return _explained(error, vars(sys.modules["__main__"]))[0].verdict


def explain(error: BaseException | None, namespace: Namespace) -> Explanation:
    """Say why memory ran out, and what filled the devices; without an error, of what came last.

    From now on the suggestions are those that this has.
    """
    explanation, advice = _explained(error, namespace)
    _newest.advice = advice or _newest.advice
    return explanation


def _explained(
    error: BaseException | None, namespace: Namespace
) -> tuple[Explanation, Advice | None]:
    facts, typed = _newest.facts, ""
    if error is None and (facts is None or _newest.is_plain_error):
        error, typed = _last_error(), _newest.typed
    if error is not None and not (facts is not None and _is_of_last_report(error)):
        facts = facts_of_error(error, namespace)
        if facts is not None:
            return _advised(facts, typed or facts.source, namespace)
    elif facts is not None:
        last = _reports[-1]
        told = Explanation(verdict_of(facts), facts.compositions, last.findings, last.trials)
        return told, _newest.advice_of_run
    if error is None:
        raise UsageError(
            "Nothing has failed and nothing was profiled yet: there is nothing to explain."
        )
    sentence = f"This {type(error).__name__} is not about memory: nothing ran out."
    return Explanation(Verdict("none", sentence, confidence="certain")), None


def _advised(facts: Facts, typed: str, namespace: Namespace) -> tuple[Explanation, Advice]:
    """Explain an error of a cell that was not profiled, and suggest what helps that cell."""
    verdict = verdict_of(facts)
    head, source = _below_blank_lines(typed)
    findings = advice_for(source, facts, verdict, None, namespace)
    is_of_a_cell = facts.filename == CELL
    advice = Advice(findings, source, head, is_of_a_cell, devices=facts.devices)
    return Explanation(verdict, facts.compositions, findings), advice


def _below_blank_lines(typed: str) -> tuple[str, str]:
    """Part a cell from the blank lines above it, which IPython does not number."""
    lines = physical_lines(typed)
    at = next((at for at, line in enumerate(lines) if line.strip()), 0)
    return "".join(lines[:at]), "".join(lines[at:])


def _last_error() -> BaseException | None:
    """Give the error that Python's or IPython's shell showed last."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def _is_of_last_report(error: BaseException) -> bool:
    outcome = _reports[-1].outcome
    if id(error) != _newest.error_id:
        return False
    # A number may have gone to another error by now.
    return (outcome.error_type, outcome.message) == (type(error).__name__, _message(error))


def _outcome_of(
    error: BaseException | None, listing: Listing, shifts: Mapping[str, int]
) -> Outcome:
    """Say how a run ended, and at which line of the listing."""
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
            return _shortened("".join([message, *told[number + 1 :]]).strip())
    return ""


def _shortened(message: str) -> str:
    """Leave out the middle: TensorFlow says what happened after a graph's whole history."""
    if len(message) <= _LONGEST_MESSAGE:
        return message
    half = _LONGEST_MESSAGE // 2
    return f"{message[:half]}\n…\n{message[-half:]}"
