"""One failure, as each cause judges it, and what a cause may say of it."""

from dataclasses import dataclass
from functools import cached_property

from oommagic.explain.account import Account, Confidence, account_of
from oommagic.explain.clues import Clue, ClueKind
from oommagic.explain.facts import Facts
from oommagic.explain.growth import Growth, growths
from oommagic.report import Cause, Failure, LineUsage, RuledOut
from oommagic.units import format_bytes

OF_TRAINING = frozenset({"fit", "train_on_batch", "train_step"})
"""The functions of Keras's that run only in training."""

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
        is_here = self.failure.filename in {"", self.facts.filename}
        return self.failure.line_number if is_here else None

    @property
    def line_told(self) -> int | None:
        """The failing line, to be told: of a recorded cell those that stand in it."""
        is_recorded = self.facts.profile is not None
        return self.line_number if is_recorded else self.failure.line_number

    @property
    def own_line(self) -> int | None:
        """The source's line that failed, or that called what failed."""
        return self.facts.line_number if self.line_number is None else self.line_number

    def clue(self, *kinds: ClueKind) -> Clue | None:
        """Find a clue in the statement that failed, or in the one that called it."""
        clues = self.facts.clues
        return clues.at(self.line_number, *kinds) or clues.at(self.facts.line_number, *kinds)

    @property
    def is_in_pieces(self) -> bool:
        """Whether what was asked for was there, but not in one piece, and would have been enough.

        It is not known to be enough in the first step of a model, on a device that is nearly full
        or has no room for as much again: the rest of the step asks for more. Nor is it in other
        code on a device that is nearly full, unless the same has fitted before.
        """
        account = self.account
        if account.missing is None or account.missing > 0:
            return False
        if account.is_nearly_full and not self.failure.layer:
            return self._has_finished_before
        asks_on = account.is_nearly_full or self._lacks_room_for_gradient
        return not (asks_on and self.failure.layer and not self._has_run_before)

    def is_explained_by(self, size: int) -> bool:
        """Say whether memory would have sufficed without that much.

        Where the first step of all had no room for a layer's output, the rest of it was to come:
        at least the output's gradient, which is as large.
        """
        is_first = bool(self.failure.layer) and not self._has_run_before
        to_come = (self.account.asked or 0) if is_first and self._is_before_gradients else 0
        return self.account.explained_by(size - to_come)

    @property
    def _is_before_gradients(self) -> bool:
        """Whether it failed in training, while the layers' outputs were computed."""
        return bool(OF_TRAINING & set(self.facts.stack)) and "gradient" not in self.failure.op

    @property
    def _lacks_room_for_gradient(self) -> bool:
        """Whether a layer's output is too big in training: its gradient will be as large."""
        account = self.account
        return self._is_before_gradients and (account.missing or 0) + (account.asked or 0) > 0

    @property
    def _has_run_before(self) -> bool:
        """Whether the failing line has run through a step before."""
        line = self.failing_line
        is_repeated = line is not None and line.hits > 1
        ran = self._has_finished_before
        return is_repeated or ran or any(len(tape.steps) > 1 for tape in self.facts.tapes)

    @property
    def _has_finished_before(self) -> bool:
        """Whether the same cell has."""
        return any(run.outcome.kind == "finished" for run in self.facts.earlier_runs())

    @cached_property
    def failing_line(self) -> LineUsage | None:
        """What is known of the failing line."""
        lines = self.facts.lines()
        return next((line for line in lines if line.line_number == self.own_line), None)


Judgement = Blame | RuledOut | None
"""None: there is nothing to judge the cause by."""


def of_missing(account: Account) -> str:
    """Say how much was missing, to end a sentence with."""
    if account.missing is not None and account.missing > 0:
        return f", and {format_bytes(account.missing)} were missing"
    return f" ({format_bytes(account.limit)} in all)" if account.limit is not None else ""
