"""Which batches fit a device: all that was recorded is rehearsed on one of that size.

Steps whose ops race are searched through from below, with room to spare. A step that XLA compiled
needs nearly all of its memory in one piece: at a size where XLA has told how large that is, it
finds room or it does not, and that leads to the next size to ask XLA about.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, cycle, repeat

from oommagic.curve import Curve
from oommagic.explain.orders import Orders
from oommagic.explain.rehearsal import Device, RanOutError, Rehearsal
from oommagic.explain.scaling import Scripts, at_worst, on_lines, scripts_of
from oommagic.forecasts import Rows, fitting_rows
from oommagic.recording import StepTapes

_SURELY = 0.75
"""Of the limit: what takes no more is where the search for the largest batch begins."""
_PRECISION = 0.01
"""How far below the largest batch that fits that of one piece may lie, as a share of it."""
_SPARE_BESIDE_ONE_PIECE = 0.005
"""Of the limit: room that is left where no ops race."""
_BESIDE = (1.01, 0.985, 0.97)
"""Where ops race, these shares of a batch fit as well as it does."""
_WORTH_ASKING = 0.03
"""XLA is asked about a larger batch only if it is larger by so much."""
_LARGEST = 1 << 20

Fits = Callable[[int], bool]


class Room:
    """Tells whether a run finds room on devices of one kind."""

    def __init__(self, orders: Orders, *, grows: bool) -> None:
        """Take what need not wait for what; `grows`: they take their memory region by region."""
        self._orders = orders
        self._grows = grows

    def is_for(self, scripts: Scripts, batch: int, limit_bytes: int) -> bool:
        """Say whether all of it runs at that size on a device of so many bytes."""
        device = Device(limit_bytes, grows=self._grows)
        try:
            Rehearsal(scripts, batch, device, self._orders)
        except RanOutError:
            return False
        return True


class FitOfRacing:
    """The largest batch of steps whose ops race."""

    def __init__(
        self,
        runs: Callable[[int], Sequence[Scripts]],
        room: Room,
        spare_bytes: Callable[[int, int], int],
        precision: float,
    ) -> None:
        """Take the runs to rehearse at a batch, what they have to leave, and how close to go."""
        self._runs = runs
        self._room = room
        self._spare_bytes = spare_bytes
        self._precision = precision

    def largest(self, limit_bytes: int, rows: Rows) -> int:
        """Go up from what surely fits to the first row that does not, and look before that."""
        fits = partial(self._fits, limit_bytes)
        sure = fitting_rows(rows, round(_SURELY * limit_bytes))
        unfit = (row.batch for row in rows[sure:] if not fits(row.batch))
        too_large = next(unfit, rows[-1].batch + 1)
        for row in reversed(rows):
            if row.batch < too_large:
                if fits(row.batch):
                    return _between(row.batch, too_large, fits, self._precision)
                too_large = row.batch
        return 0

    def _fits(self, limit_bytes: int, batch: int) -> bool:
        """Say whether it fits in each run, and those beside it in one: a run may fit by luck."""
        left_bytes = limit_bytes - self._spare_bytes(batch, limit_bytes)
        runs = self._runs(batch)
        beside = (max(round(share * batch), 1) for share in _BESIDE)
        tried = chain(zip(runs, repeat(batch)), zip(cycle(runs), beside))
        return all(self._room.is_for(run, size, left_bytes) for run, size in tried)


class FitOfOnePiece:
    """The largest batch of a step that XLA compiled."""

    def __init__(self, scripts: Scripts, law: Curve, room: Room) -> None:
        """Take the step, and the law by which its piece grows: what XLA has told."""
        self._told = [size for size, _ in law.known]
        alone = {size: steps[:1] for size, steps in scripts.others.items()}
        together = replace(scripts, others=alone).together()
        self._at_worst, self._on_lines = at_worst(together), on_lines(together)
        self._room = room

    def largest(self, limit_bytes: int) -> int:
        """Give the largest that is sure to fit: what XLA has not told may be worse than a line."""
        return self._largest(self._at_worst, limit_bytes)

    def size_to_tell(self, limit_bytes: int) -> int | None:
        """Choose the size that XLA shall tell next: the largest that should fit."""
        told, _ = self._around(partial(self._fits, limit_bytes, self._on_lines))
        likely = self._largest(self._on_lines, limit_bytes)
        return likely if likely > told + max(_WORTH_ASKING * told, 1) else None

    def _largest(self, scripts: Scripts, limit_bytes: int) -> int:
        fits = partial(self._fits, limit_bytes, scripts)
        return _between(*self._around(fits), fits, _PRECISION)

    def _around(self, fits: Fits) -> tuple[int, int]:
        """Give the largest that XLA told and that fits, and the next above it that does not."""
        fitting = next(filter(fits, reversed(self._told)), 0)
        too_large = next((size for size in self._told if size > fitting), None)
        if too_large is None:
            too_large = next((size for size in _doublings(fitting) if not fits(size)), _LARGEST)
        return fitting, too_large

    def _fits(self, limit_bytes: int, scripts: Scripts, batch: int) -> bool:
        left_bytes = round((1 - _SPARE_BESIDE_ONE_PIECE) * limit_bytes)
        return self._room.is_for(scripts, batch, left_bytes)


def size_to_tell(tapes: StepTapes, limit_bytes: int) -> int | None:
    """Choose the size at which XLA shall tell what a step takes, for the largest that fits."""
    scripts, orders = scripts_of(tapes), Orders(tapes.needs, tapes.processors)
    law, room = scripts.compiled_law, Room(orders, grows=tapes.is_arena)
    return None if law is None else FitOfOnePiece(scripts, law, room).size_to_tell(limit_bytes)


def _doublings(size: int) -> Iterator[int]:
    while size < _LARGEST:
        size = 2 * size
        yield size


def _between(fitting: int, too_large: int, fits: Fits, precision: float) -> int:
    """Halve what lies between a size that fits and one that does not."""
    while too_large - fitting > max(precision * fitting, 1):
        middle = (fitting + too_large) // 2
        if fits(middle):
            fitting = middle
        else:
            too_large = middle
    return fitting
