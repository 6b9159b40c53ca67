"""What XLA asks for at batch sizes that need not run, of a step that it compiled.

A step that was traced open, for batches of any size, is compiled for each without being traced
again. Mostly XLA makes the same of it as of one that was traced closed, for a size that TensorFlow
knew, as of a data set that drops what is left over. Where it does not, each size is traced as the
one that ran.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from oommagic.curve import Curve
from oommagic.recording import CompiledSize, StepTapes, TapedStep
from oommagic.tf import step_sizes, xla
from oommagic.tf.real_steps import Steps
from oommagic.tf.xla_functions import CompiledElsewhere

Wanted = Callable[[StepTapes], int | None]
"""Chooses by what is known so far at which size XLA is asked next; None: that is enough."""


def no_more(_: StepTapes) -> None:
    """Want to know nothing beyond the usual sizes."""


_COMPILE_S = 120.0
"""What asking XLA for one size may take: without the fewest there is no plan."""
_TELLING_S = 9.0
"""After so long no size is asked for beyond the fewest."""
_SAME = 0.001
"""What is closed asks for a few bytes more or less than what is open."""
_ON_LINE = 0.01
"""Of what its samples add, so far from the line between two others a size may lie."""
_FEWEST = 2
"""One size does not tell how the one allocation grows."""
_MOST_WANTED = 6
"""So many sizes at most are asked for to find the largest that fits."""


@dataclass(slots=True)
class CompiledSizes:
    """The sizes that XLA has told of one step, and asking it for more."""

    steps: Steps
    since: int
    """Functions that were traced before that number are not the step's."""
    elsewhere: Callable[[], Sequence[CompiledElsewhere]]
    on_progress: Callable[[str], None]
    until_s: float
    unsure_until_s: float
    """By when XLA is asked where it is least sure: a plan of a small model takes seconds."""
    known: dict[int, CompiledSize] = field(default_factory=dict)
    _is_open: bool | None = None
    _is_closed: bool = False
    """Whether the step asks for more where it is traced closed."""
    _took_s: float = 0.0

    def ask_usual(self, ran: TapedStep, told_before: Iterable[CompiledSize]) -> None:
        """Ask for the size that ran, and for another; nothing is known if a part alone is told.

        `ran` is a step that had been prepared. What was told before is not asked again.
        """
        began_s = perf_counter()
        before = {size.batch: size for size in told_before}
        self.known = dict(before)
        if before:  # somebody waits for nothing but what XLA tells
            self.until_s = began_s + _TELLING_S
        self.until_s = min(self.until_s, began_s + _TELLING_S)
        told = (None if before else self._on_line(ran)) or self._first_told(ran)
        if self._is_closed:
            self.known = before
        if told is None or 2 * told.temporary_bytes < _added_bytes(ran):
            self.known = {}  # a part alone: the rest has to be seen at other sizes
            return
        self.known[told.batch] = told
        while len(self.known) < _FEWEST and self._ask(self._least_sure(0)):
            pass

    def ask_wanted(self, wanted: Callable[[tuple[CompiledSize, ...]], int | None]) -> None:
        """Ask for what somebody wants to know who is told what is known."""
        for _ in range(_MOST_WANTED):
            if not self._ask(wanted(tuple(self.known.values()))):
                return

    def ask_unsure(self, held_bytes: int) -> None:
        """Ask where it is least sure; `held_bytes` is what stays on the device beside."""
        self.until_s = min(self.until_s, self.unsure_until_s)
        while self._ask(self._least_sure(held_bytes)):
            pass

    def _least_sure(self, held_bytes: int) -> int | None:
        known = {size: told.temporary_bytes for size, told in self.known.items()}
        return step_sizes.size_to_tell(known, held_bytes)

    def _on_line(self, ran: TapedStep) -> CompiledSize | None:
        """Take the size that ran from its tape, if it is on the line through two that XLA tells.

        Then they are told in the right way, and nothing is compiled for it once more.
        """
        piece = CompiledSize(ran.batch, max(ran.tape.requested_bytes))
        while self._is_traced_open(ran) and len(self.known) < _FEWEST:
            told = {size.batch: size.temporary_bytes for size in (piece, *self.known.values())}
            if not self._ask(step_sizes.size_to_tell(told, 0)):
                break
        known = sorted((size.batch, size.temporary_bytes) for size in self.known.values())
        if len(known) < _FEWEST:
            return None
        off = abs(Curve(tuple(known)).on_line(ran.batch) - piece.temporary_bytes)
        (few, least), *_, (many, most) = known
        return piece if off <= _ON_LINE * (most - least) / (many - few) * ran.batch else None

    def _first_told(self, ran: TapedStep) -> CompiledSize | None:
        """Tell the size that ran, in the way in which XLA tells what its tape shows."""
        opened = self._told(ran.batch) if self._is_traced_open(ran) else None
        if opened is not None and _is_on_tape(opened, ran):
            return opened
        self._is_closed = True
        closed = self._told_closed(ran.batch)
        return closed if closed is not None and _is_on_tape(closed, ran) else None

    def _is_traced_open(self, ran: TapedStep) -> bool:
        """Trace it for any size if that was not done yet; say whether that can be."""
        if self._is_open is None:
            self._is_open = self.steps.is_open or self.steps.trace(ran.batch, is_open=True)
        return self._is_open

    def _ask(self, size: int | None) -> bool:
        """Ask for one more size, if there is time for it; say whether it was told."""
        has_time = len(self.known) < _FEWEST or self._took_s < self.until_s - perf_counter()
        if size is None or not has_time:
            return False
        began_s = perf_counter()
        told = self._told_closed(size) if self._is_closed else self._told(size)
        self._took_s = perf_counter() - began_s
        if told is not None:
            self.known[size] = told
        return told is not None

    def _told(self, size: int) -> CompiledSize | None:
        self.on_progress(f"compiling for batch {size}")
        return xla.size_at(self.since, size, _COMPILE_S, self.elsewhere())

    def _told_closed(self, size: int) -> CompiledSize | None:
        before = xla.last_number()
        if not self.steps.trace(size, is_open=False):
            return None
        self.on_progress(f"compiling for batch {size}")
        return xla.size_at(max(before, self.since), size, _COMPILE_S)


def _is_on_tape(told: CompiledSize, step: TapedStep) -> bool:
    """Say whether the step asked for such a piece."""
    most_off = _SAME * told.temporary_bytes
    return any(abs(size - told.temporary_bytes) <= most_off for size in step.tape.requested_bytes)


def _added_bytes(step: TapedStep) -> int:
    return max(step.tape.in_use_bytes) - step.tape.before_bytes
