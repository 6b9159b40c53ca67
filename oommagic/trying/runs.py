"""Runs of a trial's cells: in this process's children, or by an executor's workers."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path

from oommagic.errors import OommagicError
from oommagic.progress import Progress
from oommagic.report import TrialRun
from oommagic.trial import cell_task
from oommagic.trial.cell_task import CellTask, Elsewhere
from oommagic.trial.outcomes import CellRun

_NOWHERE = CellRun(TrialRun("died", message="the executor's worker cannot read what was sent"))


def run_all(
    tasks: Sequence[tuple[str, CellTask]], executor: Executor | None, say: Progress
) -> list[CellRun]:
    """Run cells one after the other here, or where an executor will."""
    if executor is None:
        return [_here(task, _saying_of(title, say)) for title, task in tasks]
    say(f"waiting for {' and '.join(title for title, _ in tasks)}")
    futures = [executor.submit(cell_task.run, task) for _, task in tasks]
    try:
        return [
            _answer(executor, future, task)
            for future, (_, task) in zip(futures, tasks, strict=True)
        ]
    finally:
        for future in futures:
            future.cancel()


def _answer(executor: Executor, future: "Future[CellRun | Elsewhere]", task: CellTask) -> CellRun:
    """Take a worker's answer; to one that has not the files they are sent."""
    answer = _answered(future)
    if not isinstance(answer, Elsewhere):
        return answer if isinstance(answer, CellRun) else _NOWHERE
    files = tuple((file.name, file.read_bytes()) for file in Path(task.folder).iterdir())
    answer = _answered(executor.submit(cell_task.run, replace(task, files=files)))
    if not isinstance(answer, CellRun):
        return _NOWHERE
    note = "It ran on another machine, to which the cell's data were copied."
    return replace(answer, notes=(*answer.notes, note))


def _here(task: CellTask, say: Progress) -> CellRun:
    answer = cell_task.run(task, say)
    return answer if isinstance(answer, CellRun) else _NOWHERE


def _answered(future: "Future[CellRun | Elsewhere]") -> CellRun | Elsewhere:
    """Wait for a worker; one that dies is a run that died."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, OommagicError):
        raise error
    text = f"the executor's worker failed: {type(error).__name__}: {error}"
    return CellRun(TrialRun("died", message=text))


def _saying_of(title: str, say: Progress) -> Callable[[str], None]:
    say(title)
    return lambda text: say(f"{title}, {text}")
