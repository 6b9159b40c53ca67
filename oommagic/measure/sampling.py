"""Which line is running, looked at from outside: for when another tool holds the trace hook."""

import sys
from _thread import get_ident
from types import CodeType, FrameType

from oommagic.measure.ledger import Ledger

# All samples are one track of one frame: what lies between two looks is not known anyway.
_THE_FRAME = 0


class SamplingEngine:
    """At each tick, looks at the line that the cell's thread is at."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._thread = get_ident()
        self._watched: dict[int, CodeType] = {}
        # A line that is still the same was hit once, as far as one can know.
        self._seen: tuple[int, int] | None = None

    def start(self) -> None:
        """Take nothing: there is no hook to take."""

    def watch(self, code: CodeType, guarded_lines: frozenset[int]) -> None:  # noqa: ARG002
        """Recognise the lines of one code object from now on."""
        self._watched[id(code)] = code

    def adopt(self, frame: FrameType) -> None:
        """Do nothing more: every frame is found by looking."""

    def statement_failed(self) -> None:
        """Do nothing: this engine never pauses."""

    def tick(self, *, silenced: bool) -> None:  # noqa: ARG002 (nothing is ever silenced)
        """Look where the cell is."""
        frame = self._innermost_watched()
        if frame is None:
            self._ledger.left(_THE_FRAME)
            self._seen = None
        elif frame.f_lineno is not None:  # a jump may be of no line: then it is still at the last
            seen = (id(frame.f_code), frame.f_lineno)
            self._ledger.at_line(_THE_FRAME, *seen, hit=int(seen != self._seen))
            self._seen = seen

    def stop(self) -> str:
        """Give nothing back."""
        return ""

    def _innermost_watched(self) -> FrameType | None:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 (no public way)
        while frame is not None and id(frame.f_code) not in self._watched:
            frame = frame.f_back
        return frame
