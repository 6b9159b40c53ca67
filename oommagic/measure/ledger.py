"""Which line is charged with what: the account that the engines write to.

An engine says which line of which frame runs now. The ledger reads the meters and charges
what happened since the last reading to the line that ran until now. Three rules keep it cheap:

- A line that fires for the first time in a tick is read in full, before and after.
- A line that fires often is read in full as long as that costs little. Between full readings
  its hits and its time are still exact; memory is shared out among the lines that ran.
- A line that fires more often still may be silenced until the next tick. What happened
  meanwhile is measured as a whole and shared out among the silenced lines.

Memory is the whole process's. Where several threads run profiled lines at once, a change is
shared out among them by the processor time that each one used: one that waits allocates nothing.
"""

import os
import threading
from _thread import get_ident
from collections.abc import Callable, Collection, Container
from time import perf_counter

from oommagic.cell import Statement
from oommagic.measure.line_marks import LineMarks
from oommagic.measure.memory_charges import DeviceMeter, HostReadings, MemoryCharges
from oommagic.measure.sharing import Part, part_of, time_shares
from oommagic.measure.tallies import Frame, Tally, Track
from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

# In a tick of 50 ms. A full reading costs 5 µs in a small process and 20 µs beside TensorFlow's
# threads, so readings are limited by what they cost; a counted event costs about 1 µs. Together
# they stay near 1 % of the time, beside what the hook itself costs. Lines that are rare in a tick
# are read beyond that, to a limit.
READING_S_PER_TICK = 0.0001
RARE_READING_S_PER_TICK = 0.0005
# One reading that takes longer was held up by other programs.
LONGEST_READING_S = 0.00004
EVENTS_PER_TICK = 80
HOT_FIRES = 10
AWAKENINGS_PER_TICK = 20

_CLOSED = -1

# A forked child's meters still speak of its parent, and would reset the parent's peak.
_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 (the number of forks that led to this process)
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Ledger:
    """Charges time and memory to lines. Engines call `at_line` and `left`, a ticker `tick`."""

    def __init__(
        self,
        host: HostReadings,
        devices: DeviceMeter,
        statement_of: Callable[[int, int], Statement],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._memory = MemoryCharges(host, devices)
        self.totals = self._memory.totals
        self._is_tracing = devices.tracing_graph
        self._statement_of = statement_of
        # Equal statements are made one object, since they are compared at every event.
        self._statements: dict[Statement, Statement] = {}
        self._clock = clock
        self._tallies: dict[tuple[int, int], Tally] = {}
        self._tracks: dict[int, Track] = {}
        self._tick = 0
        self._forks = _forks
        # Never taken twice by one thread: the interpreter reports no lines inside a callback.
        self._reading = threading.Lock()
        # An engine that can silence single lines puts here how it hears all of them again.
        self.hear_again: Callable[[], None] | None = None
        # While a tape records: which line its allocations belong to.
        self._marks: LineMarks | None = None

    @property
    def tallies(self) -> Collection[Tally]:
        """Every line that ran."""
        return self._tallies.values()

    @property
    def is_open(self) -> bool:
        """Whether events still count: not after the end, and not in a forked child."""
        return self._forks == _forks

    def open(self) -> None:
        """Take the first reading; all later ones are changes from it."""
        self._memory.begin()

    def close(self) -> None:
        """Charge what is still open, in whichever thread; later events change nothing."""
        if not self.is_open:
            return
        with self._reading:
            now = self._clock()
            for track in list(self._tracks.values()):
                self._charge_time(track, now)
            self._charge_memory(self._track())
            self._forks = _CLOSED
        for track in list(self._tracks.values()):
            track.end()

    def tick(self) -> None:
        """Begin a new tick: every line may be read in full again."""
        self._tick += 1

    def look(self) -> None:
        """Read the meters while lines go on, from whichever thread."""
        with self._reading:
            if self.is_open:
                self._memory.charge(self._parts_of_all(), list(self._tracks.values()))
                for track in list(self._tracks.values()):
                    track.unread = {frame.tally: None for frame in track.stack[-1:]}

    def dark_threads(self) -> list[int]:
        """Return the threads in which lines are silenced."""
        return [thread for thread, track in list(self._tracks.items()) if track.dark]

    def sight(self, thread_id: int, code_id: int, line: int) -> None:
        """The ticker saw a thread at a line; that tells something while lines run unseen."""
        track = self._tracks.get(thread_id)
        # A thread that is at other code has just left the silenced lines.
        if track is not None and track.is_dark and _is_dark_code(track, code_id):
            tally = self.tally(code_id, line)
            tally.is_partial = True
            track.sightings[tally] = track.sightings.get(tally, 0) + 1

    def note_children(self, children_bytes: int) -> None:
        """Remember what the child processes held while the lines that run now were running."""
        self.totals.children_peak = max(self.totals.children_peak, children_bytes)
        for track in list(self._tracks.values()):
            for frame in list(track.stack):
                frame.tally.children_peak = max(frame.tally.children_peak, children_bytes)

    def line_of(self, thread_id: int) -> tuple[int, int] | None:
        """Return the code and line at which a thread is, as far as the ledger knows."""
        track = self._tracks.get(thread_id)
        innermost = track.stack[-1:] if track else []
        return (innermost[0].tally.code_id, innermost[0].tally.line) if innermost else None

    def mark_lines(self, marks: LineMarks | None) -> None:
        """From now on note when lines begin, or no more; a ticker says so again and again."""
        before = self._marks
        if marks is None:
            self._marks = None
            if before is not None:
                before.note(self._clock(), None)
        elif before is None and marks.has_room:
            track = self._tracks.get(marks.thread_id)
            if track is not None and track.stack:
                marks.begin(track.since, track.stack[-1].tally)
            self._marks = marks

    def at_line(self, frame_id: int, code_id: int, line: int, hit: int = 1) -> bool:
        """A frame begins a line; return whether the line may be silenced until the next tick.

        This runs at every line: what comes most often is decided here, without further calls.
        """
        if self._forks != _forks:
            return True
        track = self._tracks.get(get_ident()) or self._track()
        tally = self._tallies.get((code_id, line)) or self.tally(code_id, line)
        stack = track.stack
        if self._marks is not None:
            self._mark(track, self._marks, tally)
        if stack:
            frame = stack[-1]
            ran = frame.tally
            if tally.statement is ran.statement and _goes_on(frame, frame_id, tally):
                track.fires += 1
                return track.fires > EVENTS_PER_TICK and self._is_hot(track, tally)
            if (
                frame.frame_id == frame_id
                and tally.counted_tick == ran.counted_tick == self._tick
                and not track.dark
            ):
                return self._count(track, frame, tally, hit)
        return self._visit(track, frame_id, tally, hit)

    def _mark(self, track: Track, marks: LineMarks, tally: Tally) -> None:
        """Note that the line begins, and let none be silenced as long as that is wanted."""
        if marks.thread_id != get_ident():
            return
        marks.note(self._clock(), tally)
        if marks.has_room:
            track.fires = 0
        else:
            self.mark_lines(None)

    def darken(self, code_id: int) -> None:
        """The engine silenced a whole frame: all its lines may now run unseen."""
        track = self._track()
        for tally in list(self._tallies.values()):
            if tally.code_id == code_id and tally.fired_tick == track.tick:
                track.darken(tally)

    def left(self, frame_id: int) -> bool:
        """A frame ends or pauses; its caller's line goes on. Return as `at_line` does."""
        track = self._tracks.get(get_ident())
        if track is None or not track.stack or track.stack[-1].frame_id != frame_id:
            return False
        if self._forks != _forks:
            return True
        tally = track.stack[-1].tally
        self._settle(track, tally)
        track.drop()
        if track.stack:
            track.unread[track.stack[-1].tally] = None
            if self._marks is not None:
                self._mark(track, self._marks, track.stack[-1].tally)
        track.since = self._clock()
        return tally in track.dark

    def forget_ended(self, living_frames: Container[int], *, were_lines_lost: bool) -> None:
        """Drop frames that ended unheard; what went by since is on the last line, which says so."""
        track = self._tracks.get(get_ident())
        if track is None or not track.stack or not self.is_open:
            return
        tally = track.stack[-1].tally
        tally.is_partial |= were_lines_lost
        self._settle(track, tally)
        while track.stack and track.stack[-1].frame_id not in living_frames:
            track.drop()
        track.since = self._clock()

    def tally(self, code_id: int, line: int) -> Tally:
        """Return the account of one line, opened when it first runs."""
        known = self._tallies.get((code_id, line))
        if known is not None:
            return known
        statement = self._statement_of(code_id, line)
        tally = Tally(code_id, line, self._statements.setdefault(statement, statement))
        tally.ran_at_tracing = self._is_tracing()
        return self._tallies.setdefault((code_id, line), tally)

    def _track(self) -> Track:
        """Return this thread's track, a new one if it ran no profiled line lately."""
        known = self._tracks.get(get_ident())
        if known is not None:
            return known
        track = Track(self._clock())
        for each in [track, *self._tracks.values()]:
            each.cpu_s()
        return self._tracks.setdefault(get_ident(), track)

    def _count(self, track: Track, frame: Frame, tally: Tally, hit: int) -> bool:
        """Charge the time, and leave memory to the next full reading."""
        now = self._clock()
        elapsed = now - track.since
        track.since = now
        ran = frame.tally
        ran.elapsed += elapsed
        elapsed += frame.elapsed
        ran.worst = max(ran.worst, elapsed)
        frame.tally = tally
        frame.elapsed = 0.0
        tally.hits += hit
        tally.fires += 1
        track.unread[tally] = None
        track.fires += 1
        if track.fires <= EVENTS_PER_TICK or tally.fires < HOT_FIRES:
            return False
        track.darken(tally)
        return True

    def _visit(self, track: Track, frame_id: int, tally: Tally, hit: int) -> bool:
        self._settle(track, tally)
        frame = track.unwind_to(frame_id, tally.code_id)
        if frame is None:
            track.push(Frame(frame_id, tally))
        else:
            frame.tally.worst = max(frame.tally.worst, frame.elapsed)
            frame.tally, frame.elapsed = tally, 0.0
        tally.hits += hit
        tally.own_peak = max(tally.own_peak, self.totals.own_now)
        track.unread[tally] = None
        silence = self._may_silence(track, tally)
        if track.dark and tally.fires == 1 and track.awakenings < AWAKENINGS_PER_TICK:
            self._awake(track)
        track.since = self._clock()
        return silence

    def _awake(self, track: Track) -> None:
        """Hear the line after a rare one, or what that one took would be lost among the rest."""
        if self.hear_again is not None:
            track.awakenings += 1
            track.awake()
            self.hear_again()

    def _settle(self, track: Track, tally: Tally) -> None:
        """Charge what happened since the last event, as exactly as the budget allows."""
        self._charge_time(track, self._clock())
        ran = track.stack[-1].tally if track.stack else None
        ran_is_rare = ran is not None and (ran.fired_tick != self._tick or ran.fires <= 1)
        if track.tick != self._tick:
            if track.dark:
                self._read(track)
            track.renew(self._tick)
        track.fires += 1
        is_rare = ran_is_rare or tally.fired_tick != track.tick
        if (
            track.reading_s < READING_S_PER_TICK
            or not tally.hits
            or (is_rare and track.reading_s < RARE_READING_S_PER_TICK)
        ):
            self._read(track)

    def _may_silence(self, track: Track, tally: Tally) -> bool:
        is_hot = self._is_hot(track, tally)
        if tally.fires == 1 or track.reading_s < READING_S_PER_TICK:
            return False
        tally.counted_tick = track.tick
        if not is_hot or track.fires <= EVENTS_PER_TICK:
            return False
        track.darken(tally)
        return True

    def _is_hot(self, track: Track, tally: Tally) -> bool:
        """Count that the line fired, and say whether it alone wears out the budget."""
        if tally.fired_tick != track.tick:
            tally.fired_tick = track.tick
            tally.fires = 0
        tally.fires += 1
        return tally.fires >= HOT_FIRES

    def _charge_time(self, track: Track, now: float) -> None:
        elapsed = now - track.since
        track.since = now
        if not track.stack:
            return
        if track.is_dark:
            for tally, share in time_shares(track, elapsed):
                tally.elapsed += share
            return
        frame = track.stack[-1]
        frame.elapsed += elapsed
        frame.tally.elapsed += elapsed

    def _read(self, track: Track) -> None:
        """Read the meters, unless another thread has ended the run meanwhile."""
        with self._reading:
            if self.is_open:
                self._charge_memory(track)
        track.reading_s += min(self._clock() - track.since, LONGEST_READING_S)

    def _charge_memory(self, reader: Track) -> None:
        parts = [part_of(reader)] if len(self._tracks) == 1 else self._parts_of_all()
        self._memory.charge(parts, list(self._tracks.values()))
        if len(self._tracks) > 1:
            self._begin_anew(reader)
        reader.unread = {}

    def _parts_of_all(self) -> list[Part]:
        busy = [(track, track.cpu_s()) for track in list(self._tracks.values())]
        return [part_of(track, cpu_s) for track, cpu_s in busy if track.unread or track.is_dark]

    def _begin_anew(self, reader: Track) -> None:
        """Let the other threads' next reading be of the lines that they are at now."""
        for thread_id, track in list(self._tracks.items()):
            if track is not reader:
                track.unread = {frame.tally: None for frame in track.stack[-1:]}
                if not track.stack:
                    del self._tracks[thread_id]


def _goes_on(frame: Frame, frame_id: int, tally: Tally) -> bool:
    """Whether this is another line, or an inner frame, of the statement that runs already."""
    if frame.frame_id != frame_id:
        return tally.code_id != frame.tally.code_id
    return tally is not frame.tally or tally.statement.comes_back


def _is_dark_code(track: Track, code_id: int) -> bool:
    return any(tally.code_id == code_id for tally in list(track.dark))
