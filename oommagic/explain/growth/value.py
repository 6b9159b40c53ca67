"""One thing that grew, whichever figures have shown it."""

from dataclasses import dataclass
from typing import Literal

from oommagic.report import HoldingKind

Per = Literal["step", "epoch", "iteration", "run", "second"]
WhatGrows = Literal["", "tensors", "models", "graphs", "buffer"]


@dataclass(frozen=True, slots=True)
class Growth:
    """Something that grew in one place, by how much, and what is known of it."""

    place: str
    """A device, or the host."""
    per: Per
    repeats: int
    total_bytes: int
    first_bytes: int = 0
    last_bytes: int = 0
    """What was in use when it began, and at last."""
    what: WhatGrows = ""
    owner: str = ""
    count_before: int = 0
    count_after: int = 0
    is_since_known: bool = True
    """Whether it is known what was there before; if not, the figures are of all that is there."""
    kind: HoldingKind | None = None
    op: str = ""
    layer: str = ""
    line_number: int | None = None
    line_source: str = ""
    maker: str = ""
    """The call that makes what grows, as it is written, or the function that is traced again."""

    @property
    def rate_bytes(self) -> int:
        """How much it grows each time."""
        return round(self.total_bytes / max(1, self.repeats))
