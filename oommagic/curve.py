"""How many bytes are asked for at any batch size, where that is known at a few."""

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Curve:
    """How many bytes are asked for where that is on no one line: between known sizes."""

    known: tuple[tuple[int, int], ...]
    """Batch sizes, growing, and the bytes at each."""

    def at(self, batch: int) -> int:
        """Give the bytes at one batch size."""
        return max(round(self.on_line(batch)), 1)

    def on_line(self, batch: int) -> float:
        """Give what lies on the lines that join what is known; a single size stays as it is.

        Below all known sizes nothing takes more than the smallest of them.
        """
        (first, least), there = self.known[0], self._on_piece(self._place(batch), batch)
        return min(there, least) if batch < first else there

    def range_at(self, batch: int) -> tuple[int, int]:
        """Give the least and the most that it may be, if the curve bends somewhere else.

        At a known size it is what is known. Beyond all of them it may grow by as much as if all of
        it were the samples'; below them it may not shrink at all.
        """
        there = dict(self.known).get(batch)
        if there is not None:
            return there, there
        place = self._place(batch)
        pieces = (max(place - 1, 1), place, min(place + 1, len(self.known) - 1))
        values = [round(self._on_piece(piece, batch)) for piece in pieces]
        (first, least), (last, most) = self.known[0], self.known[-1]
        if batch < first:
            values = [least, *(min(value, least) for value in values)]
        values += [most * batch // last] if batch > last else []
        return min(values), max(values)

    def _place(self, batch: int) -> int:
        return min(max(bisect_left(self.known, (batch, 0)), 1), len(self.known) - 1)

    def _on_piece(self, place: int, batch: int) -> float:
        """Follow the line that ends at that known size."""
        (size, few), (larger, many) = self.known[place - 1], self.known[place]
        return few + (many - few) / max(larger - size, 1) * (batch - size)
