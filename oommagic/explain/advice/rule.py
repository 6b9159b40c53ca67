"""What a rule is: one piece of advice, on one screen, with its cases and its page of the docs."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Cause, Edit, Safety, Saving

STEP: frozenset[Cause] = frozenset(
    {
        "step too big",
        "fragmentation",
        "evaluation",
        "compiling",
        "a limit",
        "data on the device",
        "unknown",
    }
)
"""The causes where a smaller step helps."""
HOST_CAUSES: frozenset[Cause] = frozenset({"host memory", "a limit", "unknown"})
"""The causes where less data in the host's memory helps."""


@dataclass(frozen=True, slots=True)
class Found:
    """A place in the cell where a rule has something to say."""

    title: str
    """What to do here, in a few words with the numbers: `Batches of 96 instead of 128`."""
    message: str
    """Why here: one or two sentences, with what was measured."""
    place: str
    """Where it saves: a device, or the host."""
    saving: Saving | None = None
    edits: tuple[Edit, ...] = ()
    """None: a hint."""
    line_number: int | None = None
    changes: str = ""
    """How results differ here; else what the rule says of it."""
    runs_then: bool | None = None
    """Whether memory would suffice; else it is worked out from the saving."""


@dataclass(frozen=True, slots=True)
class Case:
    """A cell and its run for which a rule speaks up or keeps silent: docs, and tests."""

    source: str
    here: Situation = field(default_factory=Situation)
    becomes: str = ""
    """The cell with the fix; empty where the rule keeps silent, or has a hint only."""


class Rule(ABC):
    """One piece of advice. A subclass has one file, and everything below is said in its docs."""

    name: ClassVar[str]
    """`smaller-batch`."""
    title: ClassVar[str]
    """`A smaller batch`."""
    what: ClassVar[str]
    """What it sees, and what it does."""
    why: ClassVar[str]
    """Why that matters."""
    example: ClassVar[str]
    instead: ClassVar[str]
    safety: ClassVar[Safety]
    fix_safety: ClassVar[str]
    """Whether results stay the same, or how they change."""
    cost: ClassVar[str]
    """What one pays, in a few words; empty if nothing."""
    effort: ClassVar[float] = 1.0
    """How much that weighs against the saving: 1 for nothing, 4 for another model."""
    causes: ClassVar[frozenset[Cause]] = frozenset()
    """Where memory ran out, the causes against which it helps."""
    is_a_defect: ClassVar[bool] = False
    """It is worth saying whether memory is short or not."""
    speaks: ClassVar[tuple[Case, ...]]
    """Cases where it has something to say, with the code that they become."""
    is_silent: ClassVar[tuple[Case, ...]]
    """Cases that look alike, and are fine."""

    @abstractmethod
    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Yield what there is to say of this cell and its run."""


def expected(place: str, saving_bytes: float, low: float = 0.8, high: float = 1.2) -> Saving:
    """Say a saving with its range, as shares of what is expected."""
    return Saving(place, *(int(saving_bytes * share) for share in (low, 1.0, high)))
