"""Runs a cell in the child for a few steps, and says what that took."""

import ast
import asyncio
import gc
import importlib
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Self

from oommagic.errors import OommagicError, TrialError
from oommagic.measure.host import open_host_meter
from oommagic.report import Failure, TrialRun
from oommagic.tf import arena
from oommagic.tf.caught_errors import CaughtErrors
from oommagic.tf.failures import failure_of
from oommagic.tf.few_steps import Enough, FewSteps, loss_of, set_seed
from oommagic.tf.step_counts import Budget
from oommagic.trial import guard
from oommagic.trial.held_back import HeldBackError, Writing
from oommagic.trial.outcomes import CellRun
from oommagic.trial.parent import room_for_files
from oommagic.trial.rebuild_data import NoShell

FILENAME = "<the cell>"
_SEED = 1729
_DEVICE = "CPU:0"
_LONGEST_WORDS = 1000
_AFTERWARDS = "An error ended the cell behind its training, which was not run in full: "
_CUT = "A prediction was ended early: its results would take more in the end."


@dataclass(frozen=True, slots=True)
class CellWork:
    """What a cell's run is: its text without IPython's lines, and its bounds."""

    source: str
    own: tuple[str, ...]
    """Names whose arrays it changes or lets go of: they are in memory, and not in a file."""
    submodules: tuple[str, ...]
    """Modules that the cell reaches by the packages around them."""
    notebooks_folder: str
    budget: Budget
    room_bytes: int
    """How much of the host's memory it may take beyond what is taken before it."""


def run(
    order: dict[str, Any],
    open_parcel: Callable[[], Any],
    on_progress: Callable[[str], None],
    *,
    is_held: bool,
) -> CellRun:
    """Open what was sent, run the cell, and give what it took.

    `is_held` says whether the system keeps libraries from writing files of the user's.
    """
    work = CellWork(**{**order["work"], "budget": Budget(**order["work"]["budget"])})
    folder = Path(order["folder"]).resolve()
    sys.path += [one for one in order["search_path"] if one not in sys.path]
    set_seed(_SEED)  # a dataset may draw when it is made
    world = _opened(open_parcel, work.own, Path(order["parcel"]).parent)
    _import(work.submodules)
    writing = Writing(folder / "here", folder, is_held)
    with room_for_files(folder, TrialError):
        writing.begin(Path(work.notebooks_folder))
    few = FewSteps(work.budget, lambda step: on_progress(f"step {step}"))
    few.begin()
    set_seed(_SEED)
    guard.limit_room(work.room_bytes)
    return _measured(work, world, few, writing)


def _opened(open_parcel: Callable[[], Any], own: tuple[str, ...], sent: Path) -> dict[str, Any]:
    """Give the notebook's names, as the cell and the functions among them see them."""
    names, marker = open_parcel()
    world: dict[str, Any] = marker.__globals__
    world.update(names)
    world.update(__name__="__main__", display=_show_nothing, get_ipython=NoShell().get_ipython)
    world.update((name, _in_memory(world[name], sent)) for name in own)
    return world


def _import(modules: Iterable[str]) -> None:
    """Import what the kernel has; what cannot be, the cell may not need."""
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)


def _in_memory(value: Any, sent: Path) -> Any:
    """Give an array that is no file of the user's the memory that it has in the kernel."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.memmap) or value.filename is None:
        return value
    return numpy.array(value) if Path(value.filename).parent == sent else value


def _show_nothing(*_: object, **__: object) -> None:
    """Stand for IPython's `display`."""


def _measured(work: CellWork, world: dict[str, Any], few: FewSteps, writing: Writing) -> CellRun:
    gc.collect()
    before_bytes = arena.begin_anew()
    meter = open_host_meter()
    meter.start()
    own_bytes, _ = meter.peek()
    caught = CaughtErrors(lambda: few.steps)
    caught.begin()
    with _Ending(caught, few) as ending:
        _execute(_compiled(work.source), world)
    _, _, peak_bytes = meter.read()
    meter.close()
    main = few.main
    run = TrialRun(
        outcome="finished",
        device=_DEVICE if arena.current() is not None else "",
        device_peak_bytes=arena.peak_bytes(),
        host_peak_bytes=max(0, peak_bytes - own_bytes),
        steps=0 if main is None else main.steps,
        step_s=None if main is None else main.step_s,
        loss=loss_of(few.loss if few.loss is not None else world.get("loss")),
    )
    told = ending.told(run)
    left_out = [f"{name} was left out: it writes files." for name in few.left_out]
    cut = [_CUT] if few.has_cut else []
    if few.has_cut_fits:
        cut.append(f"The cell was ended after {few.fits} calls of `fit`: there were more to come.")
    return replace(
        told,
        notes=(*left_out, *cut, *writing.notes(), *told.notes),
        before_bytes=before_bytes,
        fits=few.fits if few.has_cut_fits else 0,
    )


def _compiled(source: str) -> CodeType:
    lines = source.splitlines(keepends=True)
    linecache.cache[FILENAME] = (len(source), None, lines, FILENAME)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(source, FILENAME, "exec", flags=flags, dont_inherit=True)
    return code


def _execute(code: CodeType, world: dict[str, Any]) -> None:
    """Run a cell, with `await` in it or not."""
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(_awaited(code, world))
    else:
        exec(code, world)  # noqa: S102 (it is what the user asked for)


async def _awaited(code: CodeType, world: dict[str, Any]) -> None:
    await eval(code, world)  # noqa: S307 (likewise)


class _Ending:
    """Takes up whatever ends the cell."""

    def __init__(self, caught: CaughtErrors, few: FewSteps) -> None:
        self._caught = caught
        self._few = few
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        calls: TracebackType | None,
    ) -> bool:  # fmt: skip
        self._error = error
        return not isinstance(error, OommagicError)

    def told(self, run: TrialRun) -> CellRun:
        """Say how the cell ended, with what it took."""
        error = self._error
        if error is None or isinstance(error, Enough):
            failure = self._caught.last() if self._caught.ended_it else None
            return CellRun(run if failure is None else _ran_out(run, failure))
        failure = failure_of(error)
        if failure is not None:
            return CellRun(_ran_out(run, failure))
        held_back, words = _held_back(error), _words(error)
        if held_back is not None and run.steps:
            end = f"{held_back.would} {held_back.filename}"
            return CellRun(run, (f"The cell was ended where it would {end}.",))
        if run.steps and self._few.changes_what_follows and not self._few.has_failed:
            return CellRun(run, (_AFTERWARDS + words,), ended_by=words)
        return CellRun(replace(run, outcome="failed", message=words))


def _held_back(error: BaseException | None) -> HeldBackError | None:
    """Find what was refused, which a library may have put into an error of its own."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, HeldBackError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def _ran_out(run: TrialRun, failure: Failure) -> TrialRun:
    return replace(run, outcome="ran out", message=failure.text)


def _words(error: BaseException) -> str:
    """Say which error it was, and where in the cell."""
    text = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, HeldBackError):
        text = f"{error.strerror}: {error.filename}"
    if len(text) > _LONGEST_WORDS:
        text = text[:_LONGEST_WORDS] + "…"
    numbers = [
        number for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == FILENAME
    ]  # fmt: skip
    return f"{text} (in line {numbers[-1]})" if numbers else text
