"""When a recording has been long enough: counted in steps, in seconds and in memory."""

import builtins
import sys
from collections import Counter
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter
from types import FrameType
from typing import Literal

from oommagic.tf.heap import heap_meter
from oommagic.units import MIB

globals()["__builtins__"] = vars(builtins).copy()  # the cell may rebind its own

Doing = Literal["tracing", "making weights", "eager operations", "something else"]

# Files of TensorFlow and Keras, by what a thread does that is in one of them.
_TRACING = ("/framework/func_graph.py", "/keras/src/backend/common/symbolic_scope.py")
_MAKING_WEIGHTS = ("/keras/src/initializers/", "/keras/src/backend/common/variables.py")
_TENSORFLOW = "/tensorflow/python/"

_LONGEST_LOOK_S = 0.1
# Without a meter of the heap, memory can be bounded by time alone.
_UNMETERED_S = 5.0
_MAKING_WEIGHTS_S = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much to record at most."""

    steps: int = 3
    """Calls of one function."""
    eager_s: float = 0.12
    """Eager operations outside of functions, the making of weights left out."""
    seconds: float = 60.0
    """Altogether, but for a call that is still running."""
    heap_bytes: int = 14 * MIB
    """What the profiler takes before it is saved; saving takes five times as much."""
    recordings: int = 4


class Progress:
    """How far one recording has come.

    The program's thread tells of its function calls; another one looks, each tick, at the
    clock, at the heap and at what the program's threads do.
    """

    def __init__(self, limits: Limits) -> None:
        """Count from now on."""
        self.names: set[str] = set()
        self.steps: list[tuple[float, float, str]] = []
        self.shortness = ""
        self._limits = limits
        self._counts: Counter[str] = Counter()
        self._running = 0
        self._is_enough = False
        self._began_s = self._looked_s = perf_counter()
        self._eager_s = self._making_s = 0.0
        self._heap = heap_meter()
        self._heap_bytes = self._heap() if self._heap else 0
        self._taken_bytes = 0

    def call_began(self, name: str) -> None:
        """A function begins."""
        self.names.add(name)
        if not self._running:
            self._note_heap(is_tape=False)
        self._running += 1

    def call_ended(self, name: str, began_s: float, ended_s: float) -> bool:
        """A function has ended, or failed; say, once, whether that was enough."""
        if began_s < self._began_s:
            return False
        self._note_heap(is_tape=True)
        self._running -= 1
        self.steps.append((began_s, ended_s, name))
        self._counts[name] += 1
        count = self._counts[name]
        # Another step like these should fit as a whole.
        next_bytes = self._taken_bytes // count
        has_room = self._taken_bytes + next_bytes < self._limits.heap_bytes
        return self._enough(is_so=count >= self._limits.steps or not has_room)

    def look(self) -> bool:
        """Say, once, whether it has been enough."""
        now_s = perf_counter()
        passed_s = min(now_s - self._looked_s, _LONGEST_LOOK_S)
        self._looked_s = now_s
        doing: Doing = "something else" if self._running else what_threads_do()
        # Graphs and models that are being made take from the heap too.
        self._note_heap(is_tape=doing not in {"tracing", "making weights"})
        if self._running:
            return self._too_much_within_a_call()
        self._eager_s += passed_s * (doing == "eager operations")
        self._making_s += passed_s * (doing == "making weights")
        longest_s = self._limits.seconds if self._heap else _UNMETERED_S
        return self._enough(
            is_so=self._eager_s > self._limits.eager_s
            or self._making_s > _MAKING_WEIGHTS_S
            or self._taken_bytes > self._limits.heap_bytes
            or now_s - self._began_s > longest_s
        )

    def _note_heap(self, *, is_tape: bool) -> None:
        """See by how much the heap has grown, and whether that was the tape."""
        if self._heap is None:
            return
        before, self._heap_bytes = self._heap_bytes, self._heap()
        if is_tape:
            self._taken_bytes += max(0, self._heap_bytes - before)

    def _too_much_within_a_call(self) -> bool:
        if self._taken_bytes <= self._limits.heap_bytes or self._is_enough:
            return False
        self.shortness = (
            "The tape ended within a step: the step allocates so often that "
            "recording all of it would take too much memory."
        )
        return self._enough(is_so=True)

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
