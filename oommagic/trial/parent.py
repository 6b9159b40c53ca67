"""Runs a task in a child process with a training device of a given size."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import Empty
from threading import Lock
from typing import Any

from oommagic import errors
from oommagic.errors import OommagicError
from oommagic.tf import arena
from oommagic.trial.keeper import Keeper
from oommagic.trial.outcomes import Died, Finished, Raised, RanOut, Result, TimedOut
from oommagic.trial.parcel import pack
from oommagic.trial.wire import Progress, Refused

_HEAVY = ("tensorflow", "keras")


def run(  # noqa: PLR0913 (all but the first two are said by name)
    task: str,
    things: tuple[object, ...],
    *,
    limit_bytes: int,
    timeout_s: float,
    on_progress: Callable[[str], None],
    values: bool = False,
) -> Result:
    """Do a task of `trial.child` with these things, on a training device of that size.

    The child starts at once; the things are packed meanwhile. What cannot be sent is a
    `CannotTravelError`; what else oommagic cannot do, in the child too, is its own error. Weights
    travel as shapes, unless their `values` are wanted.
    """
    leash = Lock()
    modules = [name for name in _HEAVY if name in sys.modules]
    keeper = Keeper(leash, arena.environment(limit_bytes), modules)
    deadline = time.monotonic() + timeout_s
    try:
        with leash:
            keeper.start()
            packed = pack(things, values=values, folder=keeper.folder)
            keeper.order(_order(task, packed, keeper.folder, limit_bytes))
            return _outcome(keeper, deadline, timeout_s, on_progress)
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


def _order(task: str, packed: bytes, folder: Path, limit_bytes: int) -> dict[str, Any]:
    """Leave the parcel in the folder: it may be larger than what a pipe takes at once."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "parcel"
    path.write_bytes(packed)
    return {"task": task, "parcel": str(path), "limit_bytes": limit_bytes}


def _outcome(
    keeper: Keeper, deadline: float, timeout_s: float, on_progress: Callable[[str], None]
) -> Result:
    """Wait for the child's answer, and pass on what it says until then."""
    while True:
        try:
            message = keeper.heard.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return TimedOut(timeout_s, keeper.log())
        match message:
            case Progress(text):
                on_progress(text)
            case Refused(error_type, arguments):
                raise _own_error(error_type, arguments)
            case Raised() | RanOut():
                return replace(message, log=keeper.log())
            case Finished() | Died():
                return message
            case _:
                return Died("said something that is not an answer", keeper.log())


def _own_error(error_type: str, arguments: tuple[str, ...]) -> OommagicError:
    """Make the error of ours anew that was raised in the child."""
    kind = getattr(errors, error_type, OommagicError)
    error: OommagicError = kind(*arguments)
    return error
