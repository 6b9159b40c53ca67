"""One peak per device, and several who want to reset it.

TensorFlow's allocators keep one peak each. A profiler that resets it after every line would
spoil what the user's own code reads with `tf.config.experimental.get_memory_info(...)["peak"]`,
and a user who resets it in the middle of a line would hide that line's peak from the profiler.

So every reset tells everyone who has not seen the peak yet. The user's calls go through the
eager context object (those of functions imported by name too), and there, on that one object,
two attributes stand in for its methods while somebody reads lines: what the user is told is the
higher of the allocator's peak and of what our resets took away. After the run they stay only
while a device's own peak is lower than the true one, and they take themselves away as soon as
the user resets the peak or the allocator passes it. Raising the allocator's peak again by an
allocation of our own was the other way; it can fail, and a failed allocation waits ten seconds.

A call that fails, as for a device that is not there, is TensorFlow's own error with none of our
lines in its traceback: what stands in prepares the call and returns before it is made.

What remains: a peak that another thread reaches in the fraction of a microsecond between our
reading and our reset is lost.
"""

import operator
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from typing import Self

from oommagic.own_builtins import keep_builtins
from oommagic.tf import context as tf_context
from oommagic.tf.context import AllocatorCalls, EagerContext

keep_builtins(globals())

_GET, _RESET = "get_memory_info", "reset_memory_stats"


class Reader:
    """One reader's view of one device: the peak since that reader's last reading."""

    __slots__ = ("_get_info", "_handle", "_meter", "_name", "missed_bytes")

    def __init__(self, meter: "Meter") -> None:
        """Start with the peak as it stands."""
        self.missed_bytes = 0
        self._meter = meter
        # Looked up once: this is read at every line of the user's cell.
        self._get_info = meter.calls.get_info
        self._handle = meter.handle
        self._name = meter.name

    def read(self) -> tuple[int, int]:
        """Give the current bytes and the peak since the last reading, and start a new peak."""
        info = self._get_info(self._handle, self._name)
        current = info["current"]
        peak = info["peak"]
        if peak > current:  # else a reset would change nothing
            self._meter.lower(peak)
        missed = self.missed_bytes
        if missed:
            self.missed_bytes = 0
            peak = max(peak, missed)
        return current, peak

    def peek(self) -> int:
        """Give the current bytes and leave the peak as it is."""
        return self._get_info(self._handle, self._name)["current"]


class Meter:
    """One device's allocator, and all who have a peak to lose when it is reset."""

    __slots__ = ("calls", "handle", "name", "readers", "user_bytes")

    def __init__(self, calls: AllocatorCalls, handle: object, name: str) -> None:
        """Measure the device of that name, as TensorFlow writes it."""
        self.calls = calls
        self.handle = handle
        self.name = name
        self.readers: list[Reader] = []
        # The highest peak that was reset away since the user's own last reset.
        self.user_bytes = 0

    def allocator_peak(self) -> int:
        """Give the peak that the allocator itself remembers."""
        return self.calls.get_info(self.handle, self.name)["peak"]

    def lower(self, peak: int) -> None:
        """Reset the allocator's peak after telling everyone who has not seen it."""
        self.remember(peak)
        self.calls.reset(self.handle, self.name)

    def remember(self, peak: int) -> None:
        """Keep a peak for everyone who has not seen it."""
        self.user_bytes = max(self.user_bytes, peak)
        for reader in self.readers:
            reader.missed_bytes = max(reader.missed_bytes, peak)

    def can_be_reset(self) -> bool:
        """Try it, with nothing lost; some allocators refuse or keep no figures at all."""
        try:
            self.lower(self.allocator_peak())
        except ValueError:
            return False
        return True


class SharedPeaks:
    """The meters of one context, and what stands in for its two methods.

    It holds the context weakly: a context that the user lets go must be free to end.
    """

    def __init__(self, context: EagerContext, calls: AllocatorCalls, handle: object) -> None:
        """Prepare for a context that has devices; nothing is changed on it yet."""
        self.handle = handle
        self._calls = calls
        self._context = weakref.ref(context)
        self._meters: dict[str, Meter] = {}

    @classmethod
    def of(cls, context: EagerContext) -> "SharedPeaks | None":
        """Give what a run before, or one around this one, left on the context, or a new one."""
        calls, handle = tf_context.calls(), tf_context.handle_of(context)
        if calls is None or handle is None:
            return None
        left = getattr(vars(context).get(_GET), "owner", None)
        if isinstance(left, cls) and left.handle is handle:
            return left
        return cls(context, calls, handle)

    def open(self, names: Iterable[str]) -> dict[str, Reader]:
        """Give a reader for each device whose peak can be read and reset.

        Its first reading has the peak since the device was made, or since the user reset it.
        """
        self._stand_in()
        readers: dict[str, Reader] = {}
        for name in names:
            meter = self._meters.get(name) or Meter(self._calls, self.handle, name)
            reader = Reader(meter)
            meter.readers.append(reader)
            if meter.can_be_reset():
                self._meters[name] = meter
                readers[name] = reader
        self._step_aside_if_done()
        return readers

    def close(self, readers: Iterable[Reader]) -> None:
        """Let the readers go, and keep only the corrections that are still needed."""
        leaving = set(readers)
        for meter in self._meters.values():
            meter.readers = [reader for reader in meter.readers if reader not in leaving]
            if meter.user_bytes <= meter.allocator_peak():
                meter.user_bytes = 0
        self._step_aside_if_done()

    def _plan_get(self, dev: str) -> Iterator[dict[str, int]]:
        """Prepare to answer the user as if nobody else had reset the peak."""
        context = self._living_context()
        told = partial(self._tell_true_peak, self._meter_of(context, dev))
        return map(told, map(partial(type(context).get_memory_info, context), (dev,)))

    def _tell_true_peak(self, meter: Meter | None, info: dict[str, int]) -> dict[str, int]:
        if meter is not None:
            if meter.user_bytes <= info["peak"]:
                meter.user_bytes = 0
                self._step_aside_if_done()
            info["peak"] = max(info["peak"], meter.user_bytes)
        return info

    def _plan_reset(self, dev: str) -> Iterator[None]:
        """Prepare to reset the peak for the user, and to keep it for the line that is running."""
        context = self._living_context()
        meter = self._meter_of(context, dev)
        peak = 0 if meter is None else meter.allocator_peak()
        done = partial(self._note_users_reset, meter, peak)
        return map(done, map(partial(type(context).reset_memory_stats, context), (dev,)))

    def _note_users_reset(self, meter: Meter | None, peak: int, result: None) -> None:
        if meter is not None:
            meter.remember(peak)
            meter.user_bytes = 0
            self._step_aside_if_done()
        return result

    def _living_context(self) -> EagerContext:
        context = self._context()
        if context is None:
            raise ReferenceError("This method's TensorFlow context has ended.")
        return context

    def _meter_of(self, context: EagerContext, dev: str) -> Meter | None:
        if tf_context.handle_of(context) is not self.handle:
            return None  # the context has made its devices anew
        return self._meters.get(tf_context.device_meant(context, dev) or "")

    def _stand_in(self) -> None:
        methods = vars(self._living_context())
        methods[_GET] = _StandIn(self, self._plan_get)
        methods[_RESET] = _StandIn(self, self._plan_reset)

    def _step_aside_if_done(self) -> None:
        context = self._context()
        if context is None or any(m.readers or m.user_bytes for m in self._meters.values()):
            return
        for name in (_GET, _RESET):
            if getattr(vars(context).get(name), "owner", None) is self:
                del vars(context)[name]


class _StandIn(partial):  # type: ignore[type-arg]
    """A call that runs what a plan prepared, after the plan has returned.

    `partial`, `reduce`, `@` and `next` are written in C, and so they leave no frame in the
    traceback when what was planned fails. Called with a device: `next(plan(device))`.
    """

    owner: SharedPeaks

    def __new__(cls, owner: SharedPeaks, plan: Callable[[str], Iterator[object]]) -> Self:
        """Stand in for a method by that plan."""
        call = super().__new__(cls, reduce, operator.matmul, (_applied(plan), _applied(next)))
        call.owner = owner
        return call


def _applied(function: Callable[..., object]) -> object:
    """Make `value @ applied` mean `function(value)`."""
    return type("Applied", (), {"__rmatmul__": staticmethod(function)})()
