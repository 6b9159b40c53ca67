"""One run of a cell, as a task that can be sent: it starts a child wherever it lands."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from oommagic.report import TrialRun
from oommagic.tf.folders import new_folder, remove
from oommagic.trial import parent
from oommagic.trial.cell_run import CellWork
from oommagic.trial.outcomes import (
    CellRun,
    Died,
    Finished,
    Raised,
    RanOut,
    Result,
    TimedOut,
    last_words,
)
from oommagic.units import format_seconds

PARCEL = "parcel"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The task has landed where the parcel cannot be read: on another machine."""


@dataclass(frozen=True, slots=True)
class CellTask:
    """All that a run of a cell needs."""

    work: CellWork
    folder: str
    """Where the parcel is, and the files of its arrays; as long as it is there, it is wanted."""
    limit_bytes: int | None
    modules: tuple[str, ...]
    search_path: tuple[str, ...]
    timeout_s: float
    files: tuple[tuple[str, bytes], ...] = ()
    """What is in the folder, for another machine."""


def run(task: CellTask, on_progress: Callable[[str], None] | None = None) -> CellRun | Elsewhere:
    """Run the cell in a child process of this machine."""
    say = on_progress or _nothing
    if not task.files:
        folder = Path(task.folder)
        if not (folder / PARCEL).exists():
            return Elsewhere()
        return _run(task, folder, say, (folder / PARCEL).exists)
    folder = new_folder()
    try:
        with parent.room_for_files(folder):
            folder.mkdir(mode=0o700)
            for name, content in task.files:
                (folder / name).write_bytes(content)
        return _run(task, folder, say, lambda: True)
    finally:
        remove(folder)


def _nothing(_: str) -> None:
    """Tell nobody: what an executor runs has no screen."""


def _run(
    task: CellTask, folder: Path, say: Callable[[str], None], is_wanted: Callable[[], bool]
) -> CellRun:
    lack = "" if task.limit_bytes is None else parent.lack_of_room(task.limit_bytes)
    if lack:
        return CellRun(TrialRun("failed", message=lack))
    order = {
        "parcel": str(folder / PARCEL),
        "work": asdict(task.work),
        "search_path": task.search_path,
    }
    result = parent.run_cell(
        order,
        limit_bytes=task.limit_bytes,
        modules=task.modules,
        timeout_s=task.timeout_s,
        on_progress=say,
        is_wanted=is_wanted,
    )
    return _in_words(result)


def _in_words(result: Result) -> CellRun:
    match result:
        case Finished(CellRun() as done):
            return done
        case RanOut(failure, peak_bytes):
            text = f"what the cell uses does not fit: {failure.text}"
            return CellRun(TrialRun("ran out", device_peak_bytes=peak_bytes, message=text))
        case Raised(error_type, message):
            return CellRun(TrialRun("failed", message=f"{error_type}: {message}"))
        case TimedOut(after_s, log):
            text = f"it was not over after {format_seconds(after_s)}"
            return CellRun(TrialRun("timed out", message=text + last_words(log)))
        case Died(how, log):
            return CellRun(TrialRun("died", message=f"the child process {how}{last_words(log)}"))
    return CellRun(TrialRun("died", message="the child process gave no figures"))
