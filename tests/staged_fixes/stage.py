"""What a staged program is, and all there are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """Cells of a notebook, the last of which gets a certain suggestion when it is profiled."""

    rule: str
    cell: str
    """What is profiled."""
    before: str = ""
    """What an earlier cell has made: imports, data, models."""
    device: str = "300MB"
    """The size of the training device."""
    host: str = ""
    """The host's limit that the advice is told, where it is the host's memory that is short."""
