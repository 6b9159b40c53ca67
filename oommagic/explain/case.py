"""One failure, as each cause judges it, and what a cause may say of it."""

from dataclasses import dataclass
from functools import cached_property

from oommagic.explain.account import Account, Confidence, account_of
from oommagic.explain.clues import Clue, ClueKind
from oommagic.explain.facts import Facts
from oommagic.explain.growth import Growth, growths
from oommagic.report import Cause, Failure, LineUsage, RuledOut
from oommagic.units import format_bytes

_NEARLY_FULL = 0.8

HOW_TO_KNOW = (
    "Run the cell again with %%oomprofile on top: it records what is in use, by line, layer and "
    "name."
)


@dataclass(frozen=True, slots=True)
class Blame:
    """A cause that would explain the failure."""

    cause: Cause
    sentence: str
    part: str
    """The same in a few words, for where another cause comes first."""
    confidence: Confidence
    evidence: tuple[str, ...] = ()
    line_number: int | None = None
    line_source: str = ""
    layer: str = ""
    owner: str = ""


@dataclass(frozen=True)
class Case:
    """One failure with the sums that causes are judged by."""

    facts: Facts
    failure: Failure

    @cached_property
    def growths(self) -> tuple[Growth, ...]:
        """All that grows, the largest first."""
        return growths(self.facts)

    @cached_property
    def account(self) -> Account:
        """The sums of the place that ran out."""
        return account_of(self.facts, self.growths)

    @property
    def place(self) -> str:
        """The device's name in words."""
        return self.account.place or "the device"

    @property
    def line_number(self) -> int | None:
        """The failing line, if it stands in the source."""
        is_elsewhere = bool(self.failure.filename) and self.facts.profile is not None
        return None if is_elsewhere else self.failure.line_number

    def clue(self, *kinds: ClueKind) -> Clue | None:
        """Find a clue in the failing statement."""
        return self.facts.clues.at(self.line_number, *kinds)

    @property
    def is_in_pieces(self) -> bool:
        """Whether what was asked for was there, but not in one piece, and would have been enough.

        It is not known to be enough in the first step of a model, on a device that is nearly full:
        the rest of the step asks for more.
        """
        account = self.account
        if account.missing is None or account.missing > 0 or account.limit is None:
            return False
        is_nearly_full = account.limit + account.missing >= _NEARLY_FULL * account.limit
        return not (is_nearly_full and self.failure.layer and not self._has_run_before)

    @property
    def _has_run_before(self) -> bool:
        """Whether the failing line has run through a step before."""
        line = self.failing_line
        is_repeated = line is not None and line.hits > 1
        ran = any(run.outcome.kind == "finished" for run in self.facts.earlier_runs())
        return is_repeated or ran or any(len(tape.steps) > 1 for tape in self.facts.tapes)

    @cached_property
    def failing_line(self) -> LineUsage | None:
        """What is known of the failing line."""
        lines = self.facts.lines()
        return next((line for line in lines if line.line_number == self.line_number), None)


Judgement = Blame | RuledOut | None
"""None: there is nothing to judge the cause by."""


def of_missing(account: Account) -> str:
    """Say how much was missing, to end a sentence with."""
    if account.missing is not None and account.missing > 0:
        return f", and {format_bytes(account.missing)} were missing"
    return f" ({format_bytes(account.limit)} in all)" if account.limit is not None else ""
