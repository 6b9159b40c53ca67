"""What lies in the one piece of memory of a step that XLA compiled, at any batch size.

XLA told it at a few. What each op keeps there is taken to lie on the lines that join these, as the
piece itself does: so gradients of weights stay as they are, and what a layer gives out grows.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise

from oommagic.curve import Curve
from oommagic.recording import CompiledSize
from oommagic.report import Holding, HoldingKind

Owner = tuple[HoldingKind, str, str]
"""By kind, layer and op."""

_OF_THE_MODEL: frozenset[HoldingKind] = frozenset({"weights", "optimizer slots"})
"""What lies outside the piece: in there are copies of it, for as long as the step runs."""


class CompiledPiece:
    """Who holds what of the piece, known at some batch sizes."""

    def __init__(self, told: Iterable[CompiledSize]) -> None:
        """Take up the sizes at which it was read."""
        known = {size.batch: _by_owner(size.held) for size in told if size.held}
        sizes = sorted(known)
        owners = dict.fromkeys(owner for held in known.values() for owner in held)
        self._curves = {
            owner: Curve(tuple((size, known[size].get(owner, 0)) for size in sizes))
            for owner in owners
        }

    @property
    def is_known(self) -> bool:
        """Whether it was read at any size."""
        return bool(self._curves)

    def held_at(self, batch: int, piece_bytes: int) -> Iterator[tuple[Owner, int]]:
        """Tell who holds how much of a piece of so many bytes; adds up to them."""
        bytes_there = (max(curve.on_line(batch), 0.0) for curve in self._curves.values())
        ends = list(accumulate(bytes_there, initial=0.0))
        stretch = piece_bytes / max(ends[-1], 1.0)
        rounded = (round(end * stretch) for end in ends)
        for owner, (begin, end) in zip(self._curves, pairwise(rounded), strict=True):
            if end > begin:
                yield owner, end - begin


def _by_owner(held: Iterable[Holding]) -> Mapping[Owner, int]:
    owned: dict[Owner, int] = defaultdict(int)
    for one in held:
        kind = "workspace" if one.kind in _OF_THE_MODEL else one.kind
        owned[kind, one.layer, one.op] += one.bytes
    return owned
