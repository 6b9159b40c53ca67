"""TensorFlow's own profiler, run quietly: it writes down every allocation of a BFC allocator.

There is one profiler in a process. A user's own one wins: TensorFlow takes a lock before it
starts one, and what stands in for that lock while ours runs ends ours first.

TensorFlow 2.20 and 2.21 take no notice of the options, and say so on the screen; what they do
without options is what is wanted, but on a GPU, where they also record its kernels.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from time import perf_counter
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.tf.folders import new_folder, remove
from oommagic.tf.hush import Hush

keep_builtins(globals())

_PROFILER = "tensorflow.python.profiler.profiler_v2"
_ERRORS = "tensorflow.python.framework.errors_impl"
_MARKS = "tensorflow.python.profiler.internal._pywrap_traceme"
_LOCK = "_profiler_lock"

# A mark takes about two microseconds.
_PROMPT_S = 0.00001
_MOST_MARKS = 10

_DEAF = ("2.20.", "2.21.")
_ALLOCATIONS_ALONE = {"host_tracer_level": 2, "python_tracer_level": 0, "device_tracer_level": 0}


class ProfilerBusyError(Exception):
    """Somebody else's profiler runs."""


def is_there() -> bool:
    """Say whether this TensorFlow has a profiler where it is looked for."""
    return _session_class() is not None


def users_is_running() -> bool:
    """Say whether the user has started TensorFlow's profiler."""
    return getattr(sys.modules.get(_PROFILER), "_profiler", None) is not None


class ProfilerSession:
    """One recording of TensorFlow's profiler: `start`, then `save`, and `discard` in the end.

    An interrupt may come anywhere; `discard` leaves nothing behind all the same.
    """

    def __init__(self, hush: Hush) -> None:
        """Prepare; the folder is only made when there is something to write."""
        self.mark = _new_mark()
        self.mark_s = 0.0
        self.started_s = 0.0
        self._hush = hush
        self._folder = new_folder()
        # No local variable holds it: a traceback would keep that, and the profiler running.
        self._session: Any = None

    def start(self) -> None:
        """Start to record, or raise that somebody else does."""
        make = _session_class()
        if make is None or users_is_running():
            raise ProfilerBusyError
        self._session = make()
        self.started_s = perf_counter()
        try:
            with self._hush:
                self._session.start(str(self._folder), _options())
        except _tensorflow_error() as error:
            self._session = None
            raise ProfilerBusyError from error
        self._leave_mark()

    def save(self) -> Path | None:
        """Stop, and give the file that TensorFlow wrote; `discard` takes it away."""
        if self._session is None:
            return None
        try:
            self._folder.mkdir(mode=0o700)
            with self._hush:
                self._session.export_to_tb()
                self._session = None
        except (OSError, _tensorflow_error()):
            return None
        # To the last: what ends a search early in pathlib has nobody to raise an interrupt to.
        found = sorted(self._folder.rglob("*.xplane.pb"))
        return found[0] if found else None

    def discard(self) -> None:
        """Stop without keeping anything, and take away what was written."""
        if self._session is not None:
            with self._hush:
                self._session = None
        remove(self._folder)

    def _leave_mark(self) -> None:
        """Record an event at a known time: the profiler's clock is another one.

        Where something came between, the time is not known well enough, and another mark counts.
        """
        make_mark = getattr(sys.modules.get(_MARKS), "TraceMe", None)
        if make_mark is None:
            return
        for _ in range(_MOST_MARKS):
            self.mark = _new_mark()
            before_s = perf_counter()
            make_mark(self.mark).Stop()
            took_s = perf_counter() - before_s
            self.mark_s = before_s + took_s / 2
            if took_s < _PROMPT_S:
                return


class LockStandIn:
    """Stands in for the lock that TensorFlow takes before it starts a user's profiler."""

    def __init__(self, before: Callable[[], None]) -> None:
        """Do `before` each time that the lock is about to be taken."""
        self._before = before
        self._lock: Any = None

    def start(self) -> None:
        """Take the lock's place."""
        module = sys.modules.get(_PROFILER)
        lock = getattr(module, _LOCK, None)
        if module is not None and lock is not None:
            self._lock = lock
            setattr(module, _LOCK, self)

    def stop(self) -> None:
        """Give the lock its place back."""
        module = sys.modules.get(_PROFILER)
        if self._lock is not None and getattr(module, _LOCK, None) is self:
            setattr(module, _LOCK, self._lock)

    def __enter__(self) -> object:
        self._before()
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def __getattr__(self, name: str) -> object:
        """Be the lock in all else."""
        return getattr(self._lock, name)


def _new_mark() -> str:
    return f"oommagic {token_hex(8)}"


def _session_class() -> Callable[[], Any] | None:
    calls = getattr(sys.modules.get(_PROFILER), "_pywrap_profiler", None)
    made: Callable[[], Any] | None = getattr(calls, "ProfilerSession", None)
    return made


def _options() -> dict[str, int]:
    version = str(getattr(sys.modules.get("tensorflow"), "__version__", ""))
    return {} if version.startswith(_DEAF) else dict(_ALLOCATIONS_ALONE)


def _tensorflow_error() -> type[Exception]:
    """Give the class of TensorFlow's own errors, which has no name before its import."""
    error: type[Exception] = getattr(sys.modules.get(_ERRORS), "OpError", RuntimeError)
    return error
