"""Runs a task in a child process with a training device of a given size."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty
from threading import Lock
from typing import Any

from oommagic import errors
from oommagic.errors import OommagicError, PlanError
from oommagic.measure.limits import available_bytes
from oommagic.tf import arena
from oommagic.tf.compiled_sizes import Wanted, no_more
from oommagic.tf.xla_functions import compiling_quickly
from oommagic.trial.keeper import Keeper
from oommagic.trial.outcomes import Died, Finished, Raised, RanOut, Result, TimedOut
from oommagic.trial.parcel import pack
from oommagic.trial.wire import GraphWanted, Progress, Refused, SizeWanted
from oommagic.units import format_bytes

HEAVY = ("tensorflow", "keras")

_LOOK_S = 0.5

Give = Callable[[int], object]


def _nothing(batch: int) -> object:
    raise LookupError(batch)  # only what was sent with the means to ask asks


def run(  # noqa: PLR0913 (all but the first two are said by name)
    task: str,
    things: tuple[object, ...],
    *,
    limit_bytes: int,
    timeout_s: float,
    on_progress: Callable[[str], None],
    values: bool = False,
    give_graph: Give = _nothing,
    choose_size: Wanted = no_more,
) -> Result:
    """Do a task of `trial.child` with these things, on a training device of that size.

    The child starts at once; the things are packed meanwhile. What cannot be sent is a
    `CannotTravelError`; what else oommagic cannot do, in the child too, is its own error. Weights
    travel as shapes, unless their `values` are wanted. `give_graph` gives the graph of a step at a
    batch size, for a `StepsInGraphs` among the things; `choose_size` the size that XLA tells next.
    """

    def order(folder: Path) -> dict[str, Any]:
        parcel = _left(pack(things, values=values, folder=folder), folder)
        return {"task": task, "limit_bytes": limit_bytes, **parcel}

    leash = Lock()
    modules = [name for name in HEAVY if name in sys.modules]
    environment = arena.environment(limit_bytes)
    if task == "tapes":  # how fast its steps are only decides which sizes it tries
        environment |= compiling_quickly()
    keeper = Keeper(leash, environment, modules)
    hearing = _Hearing(timeout_s, on_progress, give_graph, choose_size)
    return _kept(keeper, leash, order, hearing)


def run_cell(  # noqa: PLR0913 (likewise)
    order: dict[str, Any],
    *,
    limit_bytes: int | None,
    modules: Sequence[str],
    timeout_s: float,
    on_progress: Callable[[str], None],
    is_wanted: Callable[[], bool],
) -> Result:
    """Run a cell of which all has been packed: see `trial.cell_run`.

    Without a limit there is no device of its own. It is ended when nobody wants it any more.
    """
    leash = Lock()
    environment = arena.hiding_gpus() if limit_bytes is None else arena.environment(limit_bytes)
    environment |= {"MPLBACKEND": "Agg"}
    keeper = Keeper(leash, environment, modules, is_for_cell=True)
    return _kept(
        keeper, leash, lambda _: order, _Hearing(timeout_s, on_progress, is_wanted=is_wanted)
    )


@dataclass(frozen=True, slots=True)
class _Hearing:
    """How a child is listened to: how long, and who wants to know."""

    timeout_s: float
    on_progress: Callable[[str], None]
    give_graph: Give = _nothing
    choose_size: Wanted = no_more
    is_wanted: Callable[[], bool] = lambda: True
    began_s: float = field(default_factory=time.monotonic)

    @property
    def until_s(self) -> float:
        """When the time is over."""
        return self.began_s + self.timeout_s


def _kept(
    keeper: Keeper, leash: Any, order: Callable[[Path], dict[str, Any]], hearing: _Hearing
) -> Result:
    """Start a child, give it its order and wait for its answer; it is gone then, come what may."""
    try:
        with leash:
            keeper.start()
            with room_for_files(keeper.folder):
                keeper.order(order(keeper.folder))
            return _outcome(keeper, hearing)
    finally:
        # A second interrupt must not leave the child to itself; it ends within moments.
        interrupts: list[KeyboardInterrupt] = []
        has_ended = False
        while not has_ended:
            try:
                keeper.is_over = True
                if keeper.is_alive():
                    keeper.join()
                has_ended = True
            except KeyboardInterrupt as interrupt:
                interrupts.append(interrupt)
        if interrupts:
            raise interrupts[0]


def lack_of_room(limit_bytes: int) -> str:
    """Say why a device of that size cannot be tried on this machine; empty where it can."""
    room = available_bytes()
    if limit_bytes <= room:
        return ""
    return (
        f"A device of {format_bytes(limit_bytes)} cannot be tried here: "
        f"this machine has {format_bytes(room)} left."
    )


@contextmanager
def room_for_files(folder: Path, kind: type[OommagicError] = PlanError) -> Iterator[None]:
    """Say what is missing where a parcel cannot be written."""
    try:
        yield
    except OSError as error:
        raise kind(
            f"What a child process needs cannot be written to {folder.parent} "
            f"({error.strerror or error}): make room there, or set TMPDIR to another folder "
            "before Python starts."
        ) from error


def _left(packed: bytes, folder: Path) -> dict[str, str]:
    """Leave a parcel in the folder: it may be larger than what a pipe takes at once."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "parcel"
    path.write_bytes(packed)
    return {"parcel": str(path)}


def _outcome(keeper: Keeper, hearing: _Hearing) -> Result:
    """Wait for the child's answer; until then pass on what it says, and give what it asks for."""
    while True:
        left_s = hearing.until_s - time.monotonic()
        try:
            message = keeper.heard.get(timeout=max(0.0, min(left_s, _LOOK_S)))
        except Empty:
            if left_s <= 0:
                return TimedOut(hearing.timeout_s, keeper.log())
            if not hearing.is_wanted():
                return Died("was ended, since nobody waits for it", keeper.log())
            continue
        match message:
            case Progress(text):
                hearing.on_progress(text)
            case GraphWanted() | SizeWanted():
                keeper.order(_given(message, keeper.folder, hearing))
            case Refused(error_type, arguments):
                raise _own_error(error_type, arguments)
            case Raised() | RanOut():
                return replace(message, log=keeper.log())
            case Finished() | Died():
                return message
            case _:
                return Died("said something that is not an answer", keeper.log())


def _given(wanted: GraphWanted | SizeWanted, folder: Path, hearing: _Hearing) -> dict[str, Any]:
    """Give what the child asks for: the graph of a step, or the next size that XLA shall tell."""
    if isinstance(wanted, SizeWanted):
        return {"size": hearing.choose_size(wanted.tapes)}
    graph, its_folder = hearing.give_graph(wanted.batch), folder / str(wanted.batch)
    with room_for_files(folder):
        return _left(pack(graph, folder=its_folder), its_folder)


def _own_error(error_type: str, arguments: tuple[str, ...]) -> OommagicError:
    """Make the error of ours anew that was raised in the child."""
    kind = getattr(errors, error_type, OommagicError)
    error: OommagicError = kind(*arguments)
    return error
