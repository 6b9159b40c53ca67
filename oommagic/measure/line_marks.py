"""When the cell's thread came to which line, noted while a tape records."""

from array import array
from bisect import bisect_right
from collections.abc import Callable

from oommagic.measure.tallies import Tally
from oommagic.own_builtins import keep_builtins
from oommagic.recording import LineTimes

keep_builtins(globals())

_MOST_HEARD = 100_000
"""So many events are heard at most, at a microsecond each; a tape of eager code has fewer lines."""

# Nothing is allocated in less: such a line needs no mark once the next one begins.
_TOO_SHORT_S = 0.000004


class LineMarks:
    """Times, and the line that ran from each on; None where that is not known."""

    def __init__(self, thread_id: int) -> None:
        self.thread_id = thread_id
        self._marks: list[tuple[float, Tally | None]] = []
        self._heard = 0

    @property
    def has_room(self) -> bool:
        """Whether more is worth noting."""
        return self._heard < _MOST_HEARD

    def note(self, now_s: float, line: Tally | None) -> None:
        """From now on this line runs."""
        self._heard += 1
        marks = self._marks
        if not marks:
            marks.append((now_s, line))
            return
        before_s, before = marks[-1]
        if before is line:
            return
        if now_s - before_s < _TOO_SHORT_S:
            marks[-1] = now_s, line
        else:
            marks.append((now_s, line))

    def begin(self, since_s: float, line: Tally) -> None:
        """Marks are made again; this line has run since then."""
        del self._marks[bisect_right(self._marks, since_s, key=_time) :]
        self.note(since_s, line)

    def line_times(self, origin_s: float, number_of: Callable[[Tally], int]) -> LineTimes:
        """Give the times from an origin on, and the numbers of the cell's lines.

        A line of a function that stands elsewhere is that of its caller, which goes on.
        """
        times, numbers = array("d"), array("l")
        for time_s, line in sorted(self._marks, key=_time):
            number = number_of(line) if line is not None else 0
            is_elsewhere = line is not None and not number and len(numbers) > 0
            times.append(time_s - origin_s)
            numbers.append(numbers[-1] if is_elsewhere else number)
        return LineTimes(times, numbers)


def _time(mark: tuple[float, Tally | None]) -> float:
    return mark[0]
