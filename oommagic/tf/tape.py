"""The tape: every allocation of the first training steps, and of whatever else runs first.

TensorFlow's profiler writes an event for each allocation and each free of a BFC allocator, into
memory, three kilobytes each by the time that it is saved. So it runs for a short while only:
until some function has run a few times, until eager code has run for a moment, or until it has
written a lot. What is told of here as a *recording* is one such while.

The first call of a function prepares its graph, which for a large one takes many more allocations
than a step. The recording begins again until that is over, and what came before that call is a
recording of its own. What the notebook's names hold is looked up then, and when the recording
ends: both by the program's own thread, while no function runs that could change it.

A cell that trains may do other things first. So the recording that ends before any function has
run is not the last: the next begins at the first call of a function that was not recorded yet
(`evaluate`, say, after `fit`), or when a device was fuller than it was on any recording (larger
batches, or something that grows). Each device keeps the recording on which it was fullest, and
the one that lasted to the end.

Another thread calls `tick`; what it finds out by looking at the clock, at the allocators and at
what the program's threads do costs the program next to nothing.
"""

import _thread
import os
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from oommagic.own_builtins import keep_builtins
from oommagic.recording import NamesThen
from oommagic.tf import arena, context
from oommagic.tf.function_calls import FunctionCalls
from oommagic.tf.heap import OwnWork
from oommagic.tf.hush import Hush
from oommagic.tf.profiler import (
    LockStandIn,
    ProfilerBusyError,
    ProfilerSession,
    is_there,
)
from oommagic.tf.tape_bounds import Limits, Progress
from oommagic.tf.tape_reader import Taped, read_tapes
from oommagic.tf.tapes_kept import worth_keeping
from oommagic.units import MIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from oommagic.recording import Held, Tape

keep_builtins(globals())

_ASYNC = "cuda_malloc_async"
# How much fuller than recorded a device has to be for another recording.
_MUCH_FULLER = 1.1
_WORTH_SAYING_BYTES = 4 * MIB


class Taping:
    """The tapes of one run: `begin`, `tick` from a thread, `end`."""

    def __init__(
        self,
        limits: Limits | None = None,
        aside: "Callable[[OwnWork], AbstractContextManager[object]]" = nullcontext,
        *,
        held_now: "Callable[[], tuple[Held, ...]]" = tuple,
    ) -> None:
        """Look at nothing yet; what is recorded will be saved `aside`.

        `held_now` tells what the notebook's names hold.
        """
        self._limits = limits or Limits()
        self._aside = aside
        self._held_now = held_now
        self._took_bytes = self._gave_back_bytes = 0
        self._phase: Literal["waiting", "recording", "armed", "over"] = "waiting"
        self._guard = Lock()  # whoever starts or ends a recording holds it
        self._lock_stand_in = LockStandIn(self._step_back)
        self._context: context.EagerContext | None = None
        self._in_use: Callable[[], int] = int
        self._peak: Callable[[], int] = int
        self._recorded_peak = 0
        self._calls: FunctionCalls | None = None
        self._hush = Hush()
        self._session: ProfilerSession | None = None
        self._progress: Progress | None = None
        # All there were: an interrupt may have come before one was put to use, or discarded.
        self._sessions: list[ProfilerSession] = []
        self._savers: list[_thread.LockType] = []
        self._taped: list[Taped] = []
        self._known: set[str] = set()
        self._notes: list[str] = []
        self.calls_begun = 0
        """Of top-level functions, on a recording or not, since the devices were there."""
        self.has_counted_calls = False
        """Whether `calls_begun` was counted until the end, by which it is known."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to say about the tapes: that there is none, or why it is short."""
        return tuple(self._notes)

    @property
    def is_recording(self) -> bool:
        """Whether TensorFlow's profiler runs for us, or is being saved."""
        return self._phase == "recording"

    @property
    def files(self) -> "tuple[Path, ...]":
        """What TensorFlow wrote so far; gone after `end`."""
        return tuple(taped.file for taped in self._taped)

    def begin(self) -> None:
        """Start to record, if TensorFlow has devices with a BFC allocator; else wait for them."""
        if self._phase == "waiting" and context.has_devices():
            self._begin()

    def tick(self) -> None:
        """Start when the devices are there, and stop when it has been enough."""
        progress = self._progress
        if self._phase == "waiting":
            self.begin()
        elif self._phase != "over" and context.current_context() is not self._context:
            self._finish()  # the program has made TensorFlow's devices anew
        elif self._phase == "armed" and self._peak() > _MUCH_FULLER * self._recorded_peak:
            self._known.clear()
        elif progress is not None:
            finding = progress.look()
            if finding == "enough":
                self._save_soon()
            elif finding == "begin again":
                self._record_again(progress)

    def end(self, origin_s: float = 0.0) -> "tuple[Tape, ...]":
        """Stop, put everything back, and give each device's tape; times count from `origin_s`."""
        try:
            self.stop()
            return self._read(origin_s)
        finally:
            self._discard()

    def stop(self) -> None:
        """Stop and put everything back; `end` reads."""
        self._finish(is_end=True)

    def close(self) -> None:
        """Stop, put everything back and read nothing; also where `end` was cut short."""
        try:
            self.stop()
        finally:
            self._discard()

    def _begin(self) -> None:
        now = context.current_context()
        names = () if now is None else self._with_tape(now)
        if now is None or not names:
            self._phase = "over"
            return
        self._context = now
        self._in_use = _reading(now, names, "current")
        self._peak = _reading(now, names, "peak")
        self._calls = FunctionCalls(now, self._on_begin, self._on_end)
        self._phase = "armed"
        self._lock_stand_in.start()
        self._calls.start()
        self._record()

    def _with_tape(self, now: context.EagerContext) -> tuple[str, ...]:
        """Name the devices whose allocator is on the profiler's tape."""
        names = [device.name for device in context.own_devices(now)] if is_there() else []
        gpus = [name for name in names if "device:GPU:" in name]
        if gpus and os.environ.get("TF_GPU_ALLOCATOR", "") == _ASYNC:
            self._notes.append(
                f"TensorFlow's {_ASYNC} keeps no tape: there is no account of what its memory held."
            )
            gpus = []
        shorts = {name: context.short_name(name) for name in names}
        arenas = [name for name in names if arena.owns(shorts[name]) and arena.trusts(shorts[name])]
        return (*gpus, *arenas)

    def _record(self, names: NamesThen | None = None) -> None:
        """Start a recording, if nobody else's profiler runs."""
        with self._guard:
            if self._phase != "armed":
                return
            try:
                self._session = self._started_session()
            except ProfilerBusyError:
                self._give_way()
                return
            self._progress = Progress(self._limits, self._in_use, names)
            self._phase = "recording"

    def _started_session(self) -> ProfilerSession:
        session = ProfilerSession(self._hush)
        self._sessions.append(session)
        with ExitStack() as undoing:
            undoing.callback(session.discard)
            session.start()
            undoing.pop_all()
        return session

    def _record_again(self, progress: Progress) -> None:
        """Keep what came before the call that prepares a graph, throw away the rest, and go on.

        To prepare a large graph takes as many allocations as a hundred steps, none of which
        stays; a tape of them all would be the largest thing in memory.
        """
        with self._guard:
            if self._session is None or self._progress is not progress:
                return
            if progress.names_at_call is progress.names_before:
                self._session.discard()
            else:
                self._keep(self._session, progress, progress.names_at_call)
            try:
                self._session = self._started_session()
            except ProfilerBusyError:
                self._session = self._progress = None
                self._give_way()
            else:
                progress.begin_again()

    def _save_soon(self) -> None:
        """Save in a thread of its own: it takes a moment, and the program goes on meanwhile."""
        running = _thread.allocate_lock()
        self._savers.append(running)
        try:
            _thread.start_new_thread(self._save_while, (running,))
        except RuntimeError:  # this process may have no more threads
            self._save_while(running)

    def _save_while(self, running: _thread.LockType) -> None:
        with running:
            self._save()

    def _save(self, *, is_end: bool = False) -> None:
        """End the recording and keep it; the next function that was not recorded starts another."""
        with self._guard:
            session, self._session = self._session, None
            progress, self._progress = self._progress, None
            if session is not None and progress is not None:
                self._keep(session, progress, progress.names_after, is_end=is_end)
            if self._phase == "recording":
                self._phase = "armed"
            if self._phase == "armed" and len(self._taped) >= self._limits.recordings:
                self._record_no_more()

    def _keep(
        self,
        session: ProfilerSession,
        progress: Progress,
        names_after: NamesThen | None,
        *,
        is_end: bool = False,
    ) -> None:
        with ExitStack() as discarding:
            discarding.callback(session.discard)
            file = self._saved(session, is_end=is_end)
            self._known.update(progress.names)
            self._recorded_peak = max(self._recorded_peak, self._peak())
            self._notes += [progress.shortness] if progress.shortness else []
            if file is None:
                self._notes.append("What TensorFlow's profiler recorded could not be written.")
                return
            taped = Taped(
                file=file,
                mark=session.mark,
                mark_s=session.mark_s,
                started_s=session.started_s,
                steps=tuple(progress.steps),
                is_whole=is_end,
                names_before=progress.names_before,
                names_after=names_after,
                whole_from_s=progress.whole_from_s(self._peak()),
            )
            self._taped.append(taped)
            discarding.pop_all()

    def _saved(self, session: ProfilerSession, *, is_end: bool) -> "Path | None":
        """Save what was recorded, which takes memory for a moment."""
        work = OwnWork()
        with self._aside(work):
            file = session.save()
            work.end()
        if not is_end:  # then the program is over, and no figure of its memory is taken any more
            self._took_bytes = max(self._took_bytes, work.took_bytes)
            self._gave_back_bytes += work.gave_back_bytes
        return file

    def _step_back(self) -> None:
        """Somebody is about to start a profiler: there can be only one."""
        self._save()
        with self._guard:
            self._give_way()

    def _give_way(self) -> None:
        if self._phase != "over":
            rest = "so the tape ended there" if self._taped else "so there is no tape"
            self._notes.append(
                f"TensorFlow's profiler was started by the program itself, {rest}: "
                "two cannot run at once."
            )
            self._put_back()

    def _finish(self, *, is_end: bool = False) -> None:
        if is_end and self._calls is not None and self._calls.stands_in:
            self.has_counted_calls = context.current_context() is self._context
        try:
            self._save(is_end=is_end)
        finally:
            self._put_back()

    def _record_no_more(self) -> None:
        """Begin no other recording; calls are counted on until the run ends."""
        self._phase = "over"
        self._lock_stand_in.stop()
        self._in_use, self._peak = int, int

    def _put_back(self) -> None:
        """Leave nothing of ours in TensorFlow's objects."""
        self._record_no_more()
        if self._calls is not None:
            self._calls.stop()
        self._context = None

    def _on_begin(self, name: str) -> None:
        """A function is about to run, in the program's own thread."""
        self.calls_begun += 1
        progress = self._progress
        if progress is not None and progress.is_between_calls and name not in progress.names:
            progress.names_at_call = self._names_now()
        elif self._phase == "armed" and name not in self._known:
            self._record(self._names_now())
        progress = self._progress
        if progress is not None:
            progress.call_began(name)

    def _on_end(self, name: str, began_s: float, ended_s: float) -> None:
        progress = self._progress
        if progress is not None and progress.call_ended(name, began_s, ended_s):
            if progress.is_between_calls:
                progress.names_after = self._names_now()
            self._save_soon()

    def _names_now(self) -> NamesThen | None:
        try:
            return NamesThen(self._held_now(), perf_counter())
        except MemoryError:  # the program may still have room for what it is about to do
            return None

    def _read(self, origin_s: float) -> "tuple[Tape, ...]":
        if not self._taped:
            return ()
        recordings = _since(self._taped, origin_s)
        tapes = [tape for taped in recordings for tape in read_tapes(taped)]
        self._say_what_saving_took()
        return worth_keeping(tapes)

    def _say_what_saving_took(self) -> None:
        took, gave_back = self._took_bytes, self._gave_back_bytes
        if max(took, gave_back) >= _WORTH_SAYING_BYTES:
            also = (
                f", and gave back about {format_bytes(gave_back)} that were kept unused"
                if gave_back
                else ""
            )
            self._notes.append(
                f"Saving the record of allocations took about {format_bytes(took)} of the host's "
                f"memory for a moment{also}. The host's figures leave {'both' if also else 'it'} "
                "out."
            )

    def _discard(self) -> None:
        for running in self._savers:
            with running:  # one that comes later finds nothing to save
                pass
        self._savers.clear()
        self._hush.end()
        for session in self._sessions:
            session.discard()
        self._sessions.clear()
        self._taped.clear()


def _reading(
    now: context.EagerContext, names: tuple[str, ...], figure: Literal["current", "peak"]
) -> "Callable[[], int]":
    """Give what reads a figure of these devices' allocators, as one sum.

    A peak is the one since somebody last reset it: lines do, and so it may be too low.
    """
    calls, handle = context.calls(), context.handle_of(now)
    if calls is None:
        return int
    reads = [partial(calls.get_info, handle, name) for name in names]
    if len(reads) == 1:
        read = reads[0]
        return lambda: read()[figure]
    return lambda: sum(read()[figure] for read in reads)


def _since(recordings: "Iterable[Taped]", origin_s: float) -> "Iterator[Taped]":
    """Count times from another moment."""
    for taped in recordings:
        steps = [(began - origin_s, ended - origin_s, name) for began, ended, name in taped.steps]
        yield replace(
            taped,
            mark_s=taped.mark_s - origin_s,
            started_s=taped.started_s - origin_s,
            steps=tuple(steps),
            whole_from_s=None if taped.whole_from_s is None else taped.whole_from_s - origin_s,
            names_before=_moved(taped.names_before, origin_s),
            names_after=_moved(taped.names_after, origin_s),
        )


def _moved(names: NamesThen | None, origin_s: float) -> NamesThen | None:
    return None if names is None else replace(names, time_s=names.time_s - origin_s)
