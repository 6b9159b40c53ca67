"""What is charged to a line, to a frame and to a thread: the pages of the ledger."""

import time
from _thread import get_ident
from dataclasses import dataclass, field
from time import clock_gettime

from oommagic.cell import Statement
from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_thread_clock_id = getattr(time, "pthread_getcpuclockid", None)


class Tally:
    """All that was charged to one physical line so far."""

    __slots__ = (
        "children_peak",
        "code_id",
        "counted_tick",
        "device_deltas",
        "device_peaks",
        "elapsed",
        "file_delta",
        "fired_tick",
        "fires",
        "hits",
        "is_partial",
        "is_shared",
        "line",
        "own_delta",
        "own_peak",
        "ran_at_tracing",
        "statement",
        "worst",
    )

    def __init__(self, code_id: int, line: int, statement: Statement) -> None:
        self.code_id = code_id
        self.line = line
        self.statement = statement
        self.hits = 0
        self.elapsed = self.worst = 0.0
        self.own_delta = self.own_peak = self.file_delta = self.children_peak = 0
        self.device_deltas: dict[str, int] = {}
        self.device_peaks: dict[str, int] = {}
        self.is_partial = self.is_shared = self.ran_at_tracing = False
        # How often the line fired in the last tick in which it did, and the last tick in which
        # it fired so often that its visits are only counted.
        self.fires = 0
        self.fired_tick = self.counted_tick = -1


class Frame:
    """A running frame of profiled code: the line it is at, and the peaks since it began."""

    __slots__ = ("device_peaks", "elapsed", "frame_id", "own_peak", "tally")

    def __init__(self, frame_id: int, tally: Tally) -> None:
        # The id, not the frame: holding a frame would keep the user's objects alive.
        self.frame_id = frame_id
        self.tally = tally
        self.elapsed = 0.0
        self.own_peak = 0
        self.device_peaks: dict[str, int] = {}

    def raise_peaks(self, own_peak: int, device_peaks: dict[str, int]) -> None:
        """Let the frame, and the line it is at, have seen these peaks."""
        tally = self.tally
        tally.own_peak = max(tally.own_peak, own_peak)
        self.own_peak = max(self.own_peak, own_peak)
        for name, peak in device_peaks.items():
            tally.device_peaks[name] = max(tally.device_peaks.get(name, 0), peak)
            self.device_peaks[name] = max(self.device_peaks.get(name, 0), peak)

    def end(self, caller: "Frame | None") -> None:
        """Close the account of the line that the frame is at; its caller peaked where it did."""
        self.tally.worst = max(self.tally.worst, self.elapsed)
        if caller is not None:
            caller.raise_peaks(self.own_peak, self.device_peaks)


class Track:
    """One thread's stack of profiled frames, and its budget for the current tick."""

    __slots__ = (
        "_clock_id",
        "_cpu_before",
        "awakenings",
        "dark",
        "fires",
        "frame_ids",
        "reading_s",
        "sightings",
        "since",
        "stack",
        "tick",
        "unread",
    )

    def __init__(self, now: float) -> None:
        self.stack: list[Frame] = []
        self.frame_ids: set[int] = set()
        self.since = now
        self.tick = -1
        self.fires = self.awakenings = 0
        self.reading_s = 0.0
        # Lines that ran since the last full reading, and lines that are silenced.
        self.unread: dict[Tally, None] = {}
        self.dark: dict[Tally, None] = {}
        # Lines at which the ticker saw the thread while lines were silenced, and how often.
        self.sightings: dict[Tally, int] = {}
        self._clock_id = _thread_clock_id(get_ident()) if _thread_clock_id else None
        self._cpu_before = 0.0

    @property
    def is_dark(self) -> bool:
        """Whether lines may have run unseen since the last event."""
        return bool(self.stack) and self.stack[-1].tally in self.dark

    def darken(self, tally: Tally) -> None:
        """From now on this line runs unseen."""
        tally.is_partial = True
        self.dark[tally] = None

    def renew(self, tick: int) -> None:
        """Begin a tick: all lines are seen again."""
        self.tick = tick
        self.fires = self.awakenings = 0
        self.reading_s = 0.0
        self.awake()

    def awake(self) -> None:
        """No line is silenced any more."""
        self.dark.clear()
        self.sightings.clear()

    def push(self, frame: Frame) -> None:
        """A frame begins."""
        self.stack.append(frame)
        self.frame_ids.add(frame.frame_id)

    def unwind_to(self, frame_id: int, code_id: int) -> Frame | None:
        """Make this frame the innermost one; None if it is new.

        A frame that ended unheard may have left its number to another one of other code.
        """
        if frame_id not in self.frame_ids:
            return None
        while self.stack[-1].frame_id != frame_id:
            self.drop()
        if self.stack[-1].tally.code_id != code_id:
            self.drop()
            return None
        return self.stack[-1]

    def drop(self) -> None:
        """Forget the innermost frame; what it peaked at, its caller's line peaked at too."""
        frame = self.stack.pop()
        self.frame_ids.discard(frame.frame_id)
        frame.end(self.stack[-1] if self.stack else None)

    def end(self) -> None:
        """End all frames, and forget none: this track's thread may be amid an event."""
        frames = list(self.stack)
        for frame, caller in zip(reversed(frames), [*reversed(frames[:-1]), None], strict=False):
            frame.end(caller)

    def cpu_s(self) -> float:
        """Return the processor time that the thread used since this was last asked."""
        try:
            now = clock_gettime(self._clock_id) if self._clock_id is not None else 0.0
        except OSError:  # the thread has ended
            return 0.0
        used, self._cpu_before = now - self._cpu_before, now
        return used


@dataclass(slots=True)
class Totals:
    """The whole run's own figures, beside its lines'."""

    own_before: int = 0
    own_now: int = 0
    own_peak: int = 0
    files_now: int = 0
    file_peak: int = 0
    children_peak: int = 0
    device_before: dict[str, int] = field(default_factory=dict)
    device_now: dict[str, int] = field(default_factory=dict)
    device_peak: dict[str, int] = field(default_factory=dict)
