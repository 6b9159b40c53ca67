"""How a trial ended: as a value, so that nothing that happens to a child is taken for a success."""

from dataclasses import dataclass
from typing import Any

from oommagic.report import Failure, TrialRun

_LAST_LINES = 12
"""Of what a child wrote to its screen."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The task came to its end."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The user's own code raised an error that has nothing to do with memory."""

    error_type: str
    message: str
    traceback: str
    log: str = ""
    """The last that the child wrote to its screen, here and below."""


@dataclass(frozen=True, slots=True)
class RanOut:
    """The device was too small, or the host's memory was."""

    failure: Failure
    peak_bytes: int | None
    """The device's highest point; None where it has no figures."""
    log: str = ""


@dataclass(frozen=True, slots=True)
class Died:
    """The child process ended without an answer."""

    how: str
    """In words: `was killed by the system (SIGKILL): …`, `could not be started: …`."""
    log: str = ""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The child was still at it when its time was over, and was ended."""

    after_s: float
    log: str = ""


@dataclass(frozen=True, slots=True)
class CellRun:
    """How a cell went in a child, and what is to be said of that."""

    run: TrialRun
    notes: tuple[str, ...] = ()
    before_bytes: int | None = None
    """What was in use on the device before the cell."""
    fits: int = 0
    """After how many calls of `fit` the cell was ended; 0 where it was not."""
    ended_by: str = ""
    """The error that ended the cell behind its training, which may come of that having been cut."""


Result = Finished | Raised | RanOut | Died | TimedOut


def last_words(log: str) -> str:
    """Give the end of what a child wrote to its screen: where it says why, it is there."""
    lines = log.splitlines()[-_LAST_LINES:]
    return "\n\n".join(["", "\n".join(lines)]) if lines else ""
