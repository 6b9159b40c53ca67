"""Which line is charged with what: the account that the engines write to.

An engine says which line of which frame runs now. The ledger reads the meters and charges
what happened since the last reading to the line that ran until now. Three rules keep it cheap:

- A line that fires for the first time in a tick is read in full, before and after.
- A line that fires often is read in full some thousand times a second. Between full readings
  its hits and its time are still exact; memory is shared out among the lines that ran.
- A line that fires more often still may be silenced until the next tick. What happened
  meanwhile is measured as a whole and shared out among the silenced lines.
"""

import os
import threading
import time
from _thread import get_ident
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from oommagic.cell import Statement

FULL_READINGS_PER_TICK = 100
COUNTS_PER_TICK = 400

# Shares of less than this are the allocator's noise: the line is not marked for them.
_NOISE_BYTES = 64 * 1024


# A forked child's meters still speak of its parent, and would reset the parent's peak.
_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 (the number of forks that led to this process)
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class HostMeter(Protocol):
    """The host's figures: own bytes, bytes of files, peak of own bytes since the last reading."""

    def read(self) -> tuple[int, int, int]: ...


class DeviceMeter(Protocol):
    """The devices' figures: for each name, current bytes and the peak since the last reading."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def find(self) -> bool: ...

    def read(self) -> tuple[tuple[int, int], ...]: ...

    def tracing_graph(self) -> bool: ...


class Tally:
    """All that was charged to one physical line so far."""

    __slots__ = (
        "children_peak",
        "code_id",
        "dark_tick",
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
        # How often the line fired in the current tick, and the tick in which it was silenced.
        self.fires = 0
        self.fired_tick = self.dark_tick = -1


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


class Track:
    """One thread's stack of profiled frames, and its budget for the current tick."""

    __slots__ = ("dark", "fires", "sightings", "since", "stack", "tick", "unread")

    def __init__(self, now: float) -> None:
        self.stack: list[Frame] = []
        self.since = now
        self.tick = -1
        self.fires = 0
        # Lines that ran since the last full reading, and lines that are silenced.
        self.unread: dict[Tally, None] = {}
        self.dark: dict[Tally, None] = {}
        # Lines at which the ticker saw the thread while lines were silenced, and how often.
        self.sightings: dict[Tally, int] = {}

    @property
    def is_dark(self) -> bool:
        """Whether lines may have run unseen since the last event."""
        return bool(self.dark) and bool(self.stack) and self.stack[-1].tally in self.dark


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


class Ledger:
    """Charges time and memory to lines. Engines call `at_line` and `left`, a ticker `tick`."""

    def __init__(
        self,
        host: HostMeter,
        devices: DeviceMeter,
        statement_of: Callable[[int, int], Statement],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.totals = Totals()
        self._host = host
        self._devices = devices
        self._statement_of = statement_of
        # Equal statements are made one object, since they are compared at every event.
        self._statements: dict[Statement, Statement] = {}
        self._clock = clock
        self._tallies: dict[tuple[int, int], Tally] = {}
        self._tracks: dict[int, Track] = {}
        self._tick = 0
        self._forks = _forks
        # Only ever tried, never waited for: a fork or a signal must not find it locked for good.
        self._reading = threading.Lock()

    @property
    def tallies(self) -> Collection[Tally]:
        """Every line that ran."""
        return self._tallies.values()

    def open(self) -> None:
        """Take the first reading; all later ones are changes from it."""
        self._devices.find()
        own, files, _ = self._host.read()
        totals = self.totals
        totals.own_before = totals.own_now = totals.own_peak = own
        totals.files_now = totals.file_peak = files
        for name, (current, _) in zip(self._devices.names, self._devices.read(), strict=True):
            totals.device_before[name] = totals.device_now[name] = current
            totals.device_peak[name] = current

    def close(self) -> None:
        """Charge what is still open, in whichever thread."""
        now = self._clock()
        for track in list(self._tracks.values()):
            self._charge_time(track, now)
        self._charge_memory(self._tracks.get(get_ident()) or self._new_track())
        for track in self._tracks.values():
            self._drop_frames(track, keep=0)

    def tick(self) -> None:
        """Begin a new tick: every line may be read in full again."""
        self._tick += 1

    def dark_threads(self) -> list[int]:
        """Return the threads in which lines are silenced."""
        return [thread for thread, track in list(self._tracks.items()) if track.dark]

    def sight(self, thread_id: int, code_id: int, line: int) -> None:
        """The ticker saw a thread at a line; that tells something while lines run unseen."""
        track = self._tracks[thread_id]
        if track.is_dark:
            tally = self.tally(code_id, line)
            tally.is_partial = True
            track.sightings[tally] = track.sightings.get(tally, 0) + 1

    def note_children(self, children_bytes: int) -> None:
        """Remember what the child processes held while the lines that run now were running."""
        self.totals.children_peak = max(self.totals.children_peak, children_bytes)
        for tally in self._running():
            tally.children_peak = max(tally.children_peak, children_bytes)

    def line_of(self, thread_id: int) -> tuple[int, int] | None:
        """Return the code and line at which a thread is, as far as the ledger knows."""
        track = self._tracks.get(thread_id)
        stack = track.stack[-1:] if track else []
        return (stack[0].tally.code_id, stack[0].tally.line) if stack else None

    def at_line(self, frame_id: int, code_id: int, line: int, hit: int = 1) -> bool:
        """A frame begins a line; return whether the line may be silenced until the next tick."""
        if self._forks != _forks:
            return True
        track = self._tracks.get(get_ident()) or self._new_track()
        tally = self.tally(code_id, line)
        if self._goes_on(track, frame_id, tally):
            track.fires += 1
            return track.fires > FULL_READINGS_PER_TICK + COUNTS_PER_TICK
        if not self._reading.acquire(blocking=False):
            return False
        try:
            self._settle(track, tally)
            self._begin_visit(track, frame_id, tally, hit)
            return self._may_silence(track, tally)
        finally:
            track.since = self._clock()
            self._reading.release()

    def darken(self, code_id: int) -> None:
        """The engine silenced a whole frame: all its lines may now run unseen."""
        track = self._tracks[get_ident()]
        for tally in list(self._tallies.values()):
            if tally.code_id == code_id and tally.fired_tick == track.tick:
                tally.is_partial = True
                track.dark[tally] = None

    def left(self, frame_id: int) -> bool:
        """A frame ends or pauses; its caller's line goes on. Return as `at_line` does."""
        track = self._tracks.get(get_ident())
        if track is None or not track.stack or track.stack[-1].frame_id != frame_id:
            return False
        if self._forks != _forks:
            return True
        if not self._reading.acquire(blocking=False):
            return False
        try:
            tally = track.stack[-1].tally
            self._settle(track, tally)
            self._drop_frames(track, keep=len(track.stack) - 1)
            if track.stack:
                track.unread[track.stack[-1].tally] = None
            return tally in track.dark
        finally:
            track.since = self._clock()
            self._reading.release()

    def _goes_on(self, track: Track, frame_id: int, tally: Tally) -> bool:
        """Whether this is another line, or an inner frame, of the statement that runs already."""
        if not track.stack:
            return False
        frame = track.stack[-1]
        current = frame.tally
        if tally.statement is not current.statement:
            return False
        if frame.frame_id != frame_id:
            return tally.code_id != current.code_id
        return tally is not current or tally.statement.comes_back

    def _settle(self, track: Track, tally: Tally) -> None:
        """Charge what happened since the last event, as exactly as the budget allows."""
        self._charge_time(track, self._clock())
        was_rare = bool(track.stack) and self._is_rare(track, track.stack[-1].tally)
        if track.tick != self._tick:
            self._renew(track)
        track.fires += 1
        if was_rare or track.fires <= FULL_READINGS_PER_TICK or tally.fired_tick != track.tick:
            self._charge_memory(track)

    def _is_rare(self, track: Track, tally: Tally) -> bool:
        return tally.fired_tick != self._tick or tally.fires <= 1

    def _renew(self, track: Track) -> None:
        if track.dark:
            self._charge_memory(track)
        track.tick = self._tick
        track.fires = 0
        track.dark.clear()
        track.sightings.clear()

    def _may_silence(self, track: Track, tally: Tally) -> bool:
        if tally.fired_tick != track.tick:
            tally.fired_tick = track.tick
            tally.fires = 0
        tally.fires += 1
        if tally.fires == 1 or track.fires <= FULL_READINGS_PER_TICK + COUNTS_PER_TICK:
            return False
        tally.is_partial = True
        track.dark[tally] = None
        return True

    def _begin_visit(self, track: Track, frame_id: int, tally: Tally, hit: int) -> None:
        stack = track.stack
        depth = len(stack)
        while depth and stack[depth - 1].frame_id != frame_id:
            depth -= 1
        if depth:
            self._drop_frames(track, keep=depth)
            frame = stack[-1]
            frame.tally.worst = max(frame.tally.worst, frame.elapsed)
            frame.tally, frame.elapsed = tally, 0.0
        else:
            stack.append(Frame(frame_id, tally))
        tally.hits += hit
        tally.own_peak = max(tally.own_peak, self.totals.own_now)
        track.unread[tally] = None

    def _drop_frames(self, track: Track, keep: int) -> None:
        """Forget frames that ended; what they peaked at, their callers' lines peaked at too."""
        stack = track.stack
        while len(stack) > keep:
            frame = stack.pop()
            frame.tally.worst = max(frame.tally.worst, frame.elapsed)
            if stack:
                _raise_peaks(stack[-1], frame.own_peak, frame.device_peaks)

    def _charge_time(self, track: Track, now: float) -> None:
        elapsed = now - track.since
        track.since = now
        if not track.stack:
            return
        if track.is_dark:
            for tally, share in _time_shares(track, elapsed):
                tally.elapsed += share
            return
        frame = track.stack[-1]
        frame.elapsed += elapsed
        frame.tally.elapsed += elapsed

    def _charge_memory(self, track: Track) -> None:
        lines: dict[Tally, None] = track.unread
        if track.is_dark:
            lines = {**lines, **track.dark, **dict.fromkeys(track.sightings)}
        self._charge_host(track, lines)
        if self._devices.find():
            self._charge_devices(track, lines)
        track.unread = {}

    def _charge_host(self, track: Track, lines: Collection[Tally]) -> None:
        totals = self.totals
        own, files, peak = self._host.read()
        own_delta, file_delta = own - totals.own_now, files - totals.files_now
        if len(lines) > 1:
            quiet = max(own, totals.own_now)
            _mark_shared(lines, max(abs(own_delta), abs(file_delta), peak - quiet))
        if own_delta:
            for tally, share in _shares(track, lines, _own_delta_towards(own_delta), own_delta):
                tally.own_delta += share
        if file_delta:
            for tally, share in _shares(track, lines, _elapsed, file_delta):
                tally.file_delta += share
        totals.own_now, totals.files_now = own, files
        totals.own_peak, totals.file_peak = max(totals.own_peak, peak), max(totals.file_peak, files)
        for tally in lines:
            tally.own_peak = max(tally.own_peak, peak)
        self._raise_running(track, peak, {})

    def _charge_devices(self, track: Track, lines: Collection[Tally]) -> None:
        totals = self.totals
        peaks: dict[str, int] = {}
        for name, (current, peak) in zip(self._devices.names, self._devices.read(), strict=True):
            delta = current - totals.device_now.setdefault(name, 0)
            totals.device_before.setdefault(name, 0)
            if len(lines) > 1:
                _mark_shared(lines, max(abs(delta), peak - current))
            for tally, share in _shares(track, lines, _device_delta_towards(name, delta), delta):
                tally.device_deltas[name] = tally.device_deltas.get(name, 0) + share
                tally.device_peaks[name] = max(tally.device_peaks.get(name, 0), peak)
            totals.device_now[name] = current
            totals.device_peak[name] = max(totals.device_peak.get(name, 0), peak)
            peaks[name] = peak
        self._raise_running(track, 0, peaks)

    def _raise_running(self, track: Track, own_peak: int, device_peaks: dict[str, int]) -> None:
        """A peak is the whole process's: each thread's current line has seen it."""
        for other in list(self._tracks.values()) if len(self._tracks) > 1 else (track,):
            if other.stack:
                _raise_peaks(other.stack[-1], own_peak, device_peaks)

    def _running(self) -> Iterable[Tally]:
        return [track.stack[-1].tally for track in list(self._tracks.values()) if track.stack]

    def _new_track(self) -> Track:
        return self._tracks.setdefault(get_ident(), Track(self._clock()))

    def tally(self, code_id: int, line: int) -> Tally:
        """Return the account of one line, opened when it first runs."""
        known = self._tallies.get((code_id, line))
        if known is not None:
            return known
        statement = self._statement_of(code_id, line)
        tally = Tally(code_id, line, self._statements.setdefault(statement, statement))
        tally.ran_at_tracing = self._devices.tracing_graph()
        return self._tallies.setdefault((code_id, line), tally)


def _raise_peaks(frame: Frame, own_peak: int, device_peaks: dict[str, int]) -> None:
    tally = frame.tally
    tally.own_peak = max(tally.own_peak, own_peak)
    frame.own_peak = max(frame.own_peak, own_peak)
    for name, peak in device_peaks.items():
        tally.device_peaks[name] = max(tally.device_peaks.get(name, 0), peak)
        frame.device_peaks[name] = max(frame.device_peaks.get(name, 0), peak)


def _mark_shared(lines: Iterable[Tally], weight_bytes: int) -> None:
    if weight_bytes >= _NOISE_BYTES:
        for tally in lines:
            tally.is_shared = True


def _shares(
    track: Track, lines: Collection[Tally], weight_of: Callable[[Tally], float], amount: int
) -> Iterable[tuple[Tally, int]]:
    """Share bytes among lines by where the thread was seen, or by what they took before.

    Every line gets its share, be it nothing, and nothing of the amount is lost.
    """
    if len(lines) == 1:
        return [(tally, amount) for tally in lines]
    seen = track.sightings if track.is_dark else {}
    weights = [float(seen.get(tally, 0)) if seen else weight_of(tally) for tally in lines]
    whole = sum(weights)
    if not whole:
        weights, whole = [1.0] * len(lines), len(lines)
    shares = [int(amount * weight / whole) for weight in weights]
    if shares:
        shares[weights.index(max(weights))] += amount - sum(shares)
    return zip(lines, shares, strict=True)


def _time_shares(track: Track, elapsed: float) -> Iterable[tuple[Tally, float]]:
    weights = dict(track.sightings) or {tally: tally.elapsed for tally in track.dark}
    whole = sum(weights.values())
    if not whole:
        return [(tally, elapsed / len(weights)) for tally in weights]
    return [(tally, elapsed * weight / whole) for tally, weight in weights.items()]


def _elapsed(tally: Tally) -> float:
    return tally.elapsed


def _own_delta_towards(delta: int) -> Callable[[Tally], float]:
    """Weigh lines by how much they were seen to take (or, for a fall, to give back)."""
    return lambda tally: max(0, tally.own_delta if delta > 0 else -tally.own_delta)


def _device_delta_towards(name: str, delta: int) -> Callable[[Tally], float]:
    sign = 1 if delta > 0 else -1
    return lambda tally: max(0, sign * tally.device_deltas.get(name, 0))
