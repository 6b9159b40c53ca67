"""Trials of suggestions: the cell as it is and as it would be, each in a child process.

Both run for the same few steps under the same limit. What the cell uses is packed once, and read
by each child from the same files; the kernel's own objects are not touched, nor are files.
"""

import atexit
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from types import FunctionType, MethodType

from oommagic.errors import TrialError
from oommagic.progress import Progress, saying
from oommagic.report import Trial
from oommagic.tf.folders import new_folder, remove
from oommagic.tf.step_counts import Budget
from oommagic.trial import cell_task, parent
from oommagic.trial.cell_run import CellWork
from oommagic.trial.cell_task import CellTask
from oommagic.trial.needs import names_changed, names_needed, submodules_used
from oommagic.trial.outcomes import CellRun
from oommagic.trial.parcel import pack_names
from oommagic.trying.asked import (
    Advised,
    Change,
    budget_of,
    changes_asked,
    device_of,
    python_of,
    text_of,
)
from oommagic.trying.notes import (
    about_changed,
    about_datasets,
    about_device,
    about_magics,
    about_missing,
)
from oommagic.trying.runs import run_all

TIMEOUT_S = 600.0
_NO_LIMIT = 1 << 62
# Two at once would take memory and time from each other, and measure that.
_ONE_AT_A_TIME = Lock()


def try_fixes(  # noqa: PLR0913 (each is something that a user may say)
    report: Advised,
    namespace: Mapping[str, object],
    numbers: Sequence[int] | None = None,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
    steps: int | None = None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[Trial, ...]:
    """Measure suggestions of a report: those of these numbers together, or else each by itself.

    Each run has `timeout_s`, and `steps` training steps; without a number they are at least four,
    and more if they are quick. An executor of `concurrent.futures` runs them where it will.
    """
    changes = changes_asked(report, numbers)
    trying = _Trying(report, namespace, changes, budget_of(steps, timeout_s), timeout_s, executor)
    if executor is None and _ONE_AT_A_TIME.locked():
        raise TrialError("Another trial is running, and both would take longer: try it afterwards.")
    one_at_a_time = _ONE_AT_A_TIME if executor is None else nullcontext()
    with one_at_a_time, saying(progress, "Trying") as say, _folder() as folder:
        return trying.trials(folder, say)


@dataclass(frozen=True, slots=True)
class _Trying:
    """Trials that share the run of the cell as it is, and what was sent for it."""

    report: Advised
    namespace: Mapping[str, object]
    changes: tuple[Change, ...]
    budget: Budget
    timeout_s: float
    executor: Executor | None

    def trials(self, folder: Path, say: Progress) -> tuple[Trial, ...]:
        """Send what the cells use, run them all, and compare."""
        source, magics = python_of(text_of(self.report))
        sources = [python_of(change.source)[0] for change in self.changes]
        say("packing what the cell uses")
        task, notes = self._task((source, *sources), folder)
        (before,) = run_all([("the cell as it is", task)], self.executor, say)
        budget = _same_steps(before, self.budget)
        after = [
            (change.title, _with(task, text, budget))
            for change, text in zip(self.changes, sources, strict=True)
        ]
        notes = (
            *about_magics(magics),
            *about_device(device_of(self.report), before.before_bytes or 0),
            *notes,
        )
        return tuple(
            self._trial(change, before, ran, notes)
            for change, ran in zip(self.changes, run_all(after, self.executor, say), strict=True)
        )

    def _trial(
        self, change: Change, before: CellRun, after: CellRun, notes: Sequence[str]
    ) -> Trial:
        device, after = device_of(self.report), _as_compared(before, after)
        missing = about_missing((before.run, after.run), self.namespace)
        return Trial(
            numbers=change.numbers,
            rules=tuple(finding.rule for finding in change.findings),
            before=before.run,
            after=after.run,
            limit_bytes=None if device is None else device.limit_bytes,
            notes=tuple(dict.fromkeys((*notes, *before.notes, *after.notes, *missing))),
        )

    def _task(self, sources: Sequence[str], folder: Path) -> tuple[CellTask, tuple[str, ...]]:
        """Pack what any of these cells needs, and give the first one's task."""
        needed = frozenset[str]().union(*map(names_needed, sources))
        changed = frozenset[str]().union(*map(names_changed, sources))
        names = sorted(name for name in needed if _is_users(name, self.namespace))
        with parent.room_for_files(folder, TrialError):
            packed = pack_names(self.namespace, names, folder)
            (folder / cell_task.PARCEL).write_bytes(packed.packed)
        own = tuple(name for name in names if name in changed)
        device = device_of(self.report)
        task = CellTask(
            work=self._work(sources, own),
            folder=str(folder),
            limit_bytes=None if device is None else device.limit_bytes,
            modules=tuple(name for name in parent.HEAVY if name in sys.modules),
            search_path=tuple(one for one in sys.path if isinstance(one, str)),
            timeout_s=self.timeout_s,
        )
        return task, (*about_datasets(packed.stood_in), *about_changed(own))

    def _work(self, sources: Sequence[str], own: tuple[str, ...]) -> CellWork:
        """Say what a run of the first of these cells is; modules are those that any of them has."""
        used = (submodules_used(each, self.namespace) for each in sources)
        return CellWork(
            source=sources[0],
            own=own,
            submodules=tuple(sorted(frozenset[str]().union(*used))),
            notebooks_folder=_notebooks_folder(),
            budget=self.budget,
            room_bytes=self._room_bytes(),
        )

    def _room_bytes(self) -> int:
        """Give what the cell may take of the host, where a limit counted what it asked for.

        Other limits hold for the child as they do for the kernel.
        """
        host = self.report.host
        if host is None or host.limit_bytes is None or not host.limit_counts_reserved:
            return _NO_LIMIT
        return host.limit_bytes - host.before_bytes


@contextmanager
def _folder() -> Iterator[Path]:
    """Give a folder for what is sent; when it goes, so does every child that reads it."""
    folder = new_folder()
    # A panel's trial runs in a thread, for which a kernel that is shut down does not wait.
    left_behind = atexit.register(partial(remove, folder))
    try:
        with parent.room_for_files(folder, TrialError):
            folder.mkdir(mode=0o700)
        yield folder
    finally:
        remove(folder)
        atexit.unregister(left_behind)


def _notebooks_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise TrialError("The notebook's folder is gone: go to another one (%cd) first.") from None


def _with(task: CellTask, source: str, budget: Budget) -> CellTask:
    return replace(task, work=replace(task.work, source=source, budget=budget))


def _as_compared(before: CellRun, after: CellRun) -> CellRun:
    """Blame the change for an error behind the training that the cell as it is does not have."""
    if not after.ended_by or before.ended_by or before.run.outcome != "finished":
        return after
    run = replace(after.run, outcome="failed", message=after.ended_by)
    return replace(after, run=run, notes=())


def _same_steps(before: CellRun, budget: Budget) -> Budget:
    """Ask for as many steps as there were before; where that ran out, for the fewest."""
    steps = before.run.steps if before.run.outcome == "finished" else 0
    steps = max(steps, 0) or budget.at_least
    return replace(budget, at_least=steps, most=steps, seconds=0.0, fits=before.fits)


def _is_users(name: str, namespace: Mapping[str, object]) -> bool:
    """Say whether a name is there, and not one that IPython puts into every notebook."""
    if name not in namespace:
        return False
    value = namespace[name]
    # Of an object it may be a property, and the user's code.
    named = value if isinstance(value, FunctionType | MethodType | type) else type(value)
    return not str(named.__module__).startswith("IPython.")
