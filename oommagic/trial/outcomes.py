"""How a trial ended: as a value, so that nothing that happens to a child is taken for a success."""

from dataclasses import dataclass
from typing import Any

from oommagic.report import Failure


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


Result = Finished | Raised | RanOut | Died | TimedOut
