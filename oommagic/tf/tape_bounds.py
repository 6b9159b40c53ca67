"""When a recording has been long enough: counted in steps, in seconds and in events."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter, process_time
from types import FrameType
from typing import TYPE_CHECKING, Literal

from oommagic.own_builtins import keep_builtins
from oommagic.tf.tape_size import TapeSize

if TYPE_CHECKING:
    from oommagic.recording import NamesThen

keep_builtins(globals())

Doing = Literal["tracing", "making weights", "eager operations", "something else"]
Finding = Literal["go on", "begin again", "enough"]

# Files of TensorFlow and Keras, by what a thread does that is in one of them.
_TRACING = ("/framework/func_graph.py", "/keras/src/backend/common/symbolic_scope.py")
_MAKING_WEIGHTS = ("/keras/src/initializers/", "/keras/src/backend/common/variables.py")
_TENSORFLOW = "/tensorflow/python/"

_LONGEST_LOOK_S = 0.1
_MAKING_WEIGHTS_S = 2.0
_PREPARING_S = 0.5
"""Preparing a graph that takes no longer may stay on the tape: to begin again leaves a gap."""
_LITTLE = 0.03


@dataclass(frozen=True, slots=True)
class Limits:
    """How much to record at most."""

    steps: int = 3
    """Calls of one function."""
    eager_s: float = 0.12
    """Eager operations outside of functions, the making of weights left out."""
    seconds: float = 60.0
    """Altogether, but for a call that is still running."""
    events: int = 25_000
    """Allocations and frees; each takes 3 kB while the profiler saves it."""
    recordings: int = 12


class Progress:
    """How far one recording has come.

    The program's thread tells of its function calls; another one looks, each tick, at the
    clock, at the allocators and at what the program's threads do.
    """

    def __init__(
        self, limits: Limits, in_use: Callable[[], int], names_before: "NamesThen | None"
    ) -> None:
        """Count from now on; `in_use` tells what the devices' allocators have handed out."""
        self.names: set[str] = set()
        self.steps: list[tuple[float, float, str]] = []
        self.shortness = ""
        self.names_before = self.names_at_call = names_before
        """What the notebook's names held when this began, and when a new function was called."""
        self.names_after: NamesThen | None = None
        self._cut_bytes = 0
        self._whole_from_s: float | None = None
        self._limits = limits
        self._counts: Counter[str] = Counter()
        self._running = 0
        self._is_enough = False
        self._began_s = self._looked_s = self._prepared_s = perf_counter()
        self._worked_s = process_time()
        self._eager_s = self._making_s = 0.0
        self._size = TapeSize(in_use)

    @property
    def is_between_calls(self) -> bool:
        """Whether no function runs."""
        return not self._running

    def whole_from_s(self, peak_bytes: int) -> float | None:
        """Say when a step was over that had begun before the recording did, if others followed it.

        Where it had taken little until then, the step is worth more than that.
        """
        since = self._whole_from_s
        if since is None or self._cut_bytes <= _LITTLE * peak_bytes:
            return None
        return since if any(began_s >= since for began_s, _, _ in self.steps) else None

    def call_began(self, name: str) -> None:
        """A function begins."""
        if not self._running:
            self._prepared_s = perf_counter()
            self._size.call_began(is_first=name not in self.names)
        self.names.add(name)
        self._running += 1

    def call_ended(self, name: str, began_s: float, ended_s: float) -> bool:
        """A function has ended, or failed; say, once, whether that was enough."""
        if began_s < self._began_s:
            return False
        self._size.call_ended()
        self._running -= 1
        if self._cut_bytes and self._whole_from_s is None:
            self._whole_from_s = ended_s
        self.steps.append((began_s, ended_s, name))
        self._counts[name] += 1
        count = self._counts[name]
        # Another step like these should fit as a whole.
        events = self._size.events
        has_room = events + events // count < self._limits.events
        return self._enough(is_so=count >= self._limits.steps or not has_room)

    def begin_again(self) -> None:
        """Forget what was recorded so far."""
        self.steps.clear()
        self._prepared_s = perf_counter()
        self.names_before = self.names_at_call
        # It may have begun to run while the recording began again.
        self._cut_bytes = self._size.changed_bytes
        self._size.begin_again()

    def look(self) -> Finding:
        """Say whether to go on, to begin again, or, once, that it has been enough."""
        now_s = perf_counter()
        passed_s = self._passed_until(now_s)
        if self._running and self._size.prepares():
            return "begin again" if now_s - self._prepared_s > _PREPARING_S else "go on"
        self._size.look()
        if self._running:
            return self._within_a_call()
        doing = what_threads_do()
        self._eager_s += passed_s * (doing == "eager operations")
        self._making_s += passed_s * (doing == "making weights")
        is_enough = self._enough(
            is_so=self._eager_s > self._limits.eager_s
            or self._making_s > _MAKING_WEIGHTS_S
            or self._size.events > self._limits.events
            or now_s - self._began_s > self._limits.seconds
        )
        return "enough" if is_enough else "go on"

    def _passed_until(self, now_s: float) -> float:
        """Say how long the program has worked since the last look: others may keep the machine."""
        worked_s = process_time()
        passed_s = min(now_s - self._looked_s, worked_s - self._worked_s, _LONGEST_LOOK_S)
        self._looked_s, self._worked_s = now_s, worked_s
        return passed_s

    def _within_a_call(self) -> Finding:
        if self._size.events <= self._limits.events or self._is_enough:
            return "go on"
        self._is_enough = True
        self.shortness = (
            "The tape ended within a step: the step allocates so often that "
            "recording all of it would take too much memory."
        )
        return "enough"

    def _enough(self, *, is_so: bool) -> bool:
        is_news = is_so and not self._is_enough
        self._is_enough |= is_so
        return is_news


def what_threads_do() -> Doing:
    """Say what the program does with TensorFlow right now, by where its threads are."""
    frames = sys._current_frames()  # noqa: SLF001 (no public way)
    frames.pop(get_ident(), None)
    found = {_what_one_does(frame) for frame in frames.values()}
    order: tuple[Doing, ...] = ("tracing", "making weights", "eager operations")
    return next((doing for doing in order if doing in found), "something else")


def _what_one_does(frame: FrameType | None) -> Doing:
    innermost = "" if frame is None else frame.f_code.co_filename
    is_making = False
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith(_TRACING):
            return "tracing"
        is_making = is_making or any(part in name for part in _MAKING_WEIGHTS)
        frame = frame.f_back
    if is_making:
        return "making weights"
    return "eager operations" if _TENSORFLOW in innermost else "something else"
