"""The child process: imports TensorFlow, opens the parcel, does one task, says how it went.

What it says goes through a pipe of its own, since TensorFlow and the user's code write to standard
output and standard error. When its parent lets go of the other pipe, or has died, the process ends.
"""

import faulthandler
import importlib
import json
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, BinaryIO, NoReturn

from oommagic.errors import CannotTravelError, OommagicError
from oommagic.recording import StepTapes
from oommagic.tf import arena
from oommagic.tf.folders import remove
from oommagic.tf.room_for_arrays import ask_for_room_first
from oommagic.trial import cell_run, guard, held_back, rebuild
from oommagic.trial.outcomes import Finished, Raised, RanOut
from oommagic.trial.wire import GraphWanted, Progress, Refused, SizeWanted, to_bytes

_INPUT, _OUTPUT, _SCREEN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class _Pipes:
    """The two ends of the parent's, where nobody else finds them."""

    orders: BinaryIO
    answers: BinaryIO


class _Answers:
    """Says things to the parent, which answers some of them by an order."""

    def __init__(self, pipe: BinaryIO, orders: "_Orders") -> None:
        self._pipe = pipe
        self._orders = orders
        self.is_opening = False
        """Whether an error of now would come of what was sent, and not of the task."""

    def progress(self, text: str) -> None:
        """Say what goes on."""
        self._say(Progress(text))

    def graph(self, batch: int) -> Any:
        """Ask for the graph of a step at that batch size."""
        self._say(GraphWanted(batch))
        return _opened(self._orders.get(), self)

    def next_size(self, tapes: StepTapes) -> int | None:
        """Ask at which size XLA shall tell more of the step, if at any."""
        self._say(SizeWanted(tapes))
        size: int | None = self._orders.get()["size"]
        return size

    def finished(self, value: object) -> NoReturn:
        """Give the task's result, and end: what TensorFlow would still tidy up takes time."""
        self._say(Finished(value))
        os._exit(0)

    def failed(
        self, kind: type[BaseException], error: BaseException, calls: TracebackType | None
    ) -> NoReturn:
        """Say which error ended the task, in place of Python, which would write it down."""
        self._say(self._outcome(kind, error, calls))
        os._exit(1)

    def _outcome(
        self, kind: type[BaseException], error: BaseException, calls: TracebackType | None
    ) -> Refused | Raised | RanOut:
        from oommagic.tf import failures

        if isinstance(error, OommagicError):
            return Refused(kind.__name__, tuple(map(str, error.args)))
        failure = failures.failure_of(error)
        if failure is not None:
            return RanOut(failure, arena.peak_bytes())
        message = "".join(traceback.format_exception_only(error)).strip()
        if self.is_opening:
            return Refused(CannotTravelError.__name__, ("What was sent", _WHY_NOT_OPENED + message))
        lines = "".join(traceback.format_exception(kind, error, calls))
        return Raised(kind.__name__, message.partition(": ")[2], lines)

    def _say(self, message: object) -> None:
        self._pipe.write(to_bytes(message))
        self._pipe.flush()


_WHY_NOT_OPENED = "there it could not be put together again. "

_Orders = SimpleQueue[dict[str, Any]]
_Task = Callable[[Callable[[], Any], _Answers], object]


def _record(open_parcel: Callable[[], Any], answers: _Answers) -> object:
    """Record steps of a model: what a plan is made from."""
    from oommagic.tf import steps

    with steps.Making() as making:
        subject, sample, task, first, told = open_parcel()

    def wanted(tapes: StepTapes) -> int | None:
        return answers.next_size(replace(tapes, made=making.tape))

    asked = (subject, sample, task, answers.progress)
    tapes = steps.record(*asked, first=first, told=told, wanted=wanted)
    return replace(tapes, made=making.tape)


def _measure(open_parcel: Callable[[], Any], _answers: _Answers) -> object:
    """Run real steps at one batch size, and give their peak and their time."""
    from oommagic.tf import steps

    subject, sample, task, batch, count = open_parcel()
    return steps.run_steps(subject, sample, task, batch, count)


_TASKS: dict[str, _Task] = {"tapes": _record, "measure": _measure}


def main() -> None:
    """Do what the parent asks for."""
    faulthandler.enable()  # a crash leaves a word on the screen, of which the parent keeps the end
    pipes = _take_pipes()
    orders: _Orders = SimpleQueue()
    answers = _Answers(pipes.answers, orders)
    sys.excepthook = answers.failed
    threading.Thread(target=_listen, args=(pipes.orders, orders), daemon=True).start()
    guard.offer_to_be_ended()
    if arena.current() is not None:
        ask_for_room_first()
    first = orders.get()
    is_held = first["is_for_cell"] and held_back.hold_to(Path(first["folder"]))
    for name in first["modules"]:
        importlib.import_module(name)
    order = orders.get()
    if first["is_for_cell"]:
        open_parcel = partial(_opened, order, answers)
        answers.finished(cell_run.run(order, open_parcel, answers.progress, is_held=is_held))
    guard.limit_host_memory(order["limit_bytes"])
    answers.finished(_do(order, answers))


def _do(order: dict[str, Any], answers: _Answers) -> object:
    def open_parcel() -> Any:
        things = _opened(order, answers)
        return (_able_to_ask(things[0], answers), *things[1:])

    return _TASKS[order["task"]](open_parcel, answers)


def _opened(order: dict[str, Any], answers: _Answers) -> Any:
    answers.is_opening = True
    rebuild.look_in(Path(order["parcel"]).parent)
    with Path(order["parcel"]).open("rb") as file:
        things = pickle.load(file)  # noqa: S301 (the parent's own)
    answers.is_opening = False
    return things


def _able_to_ask(subject: Any, answers: _Answers) -> Any:
    """Let steps whose code has stayed in the kernel ask for their graphs."""
    from oommagic.tf.step_graphs import StepsInGraphs

    if isinstance(subject, StepsInGraphs):
        subject.ask = answers.graph
    return subject


def _take_pipes() -> _Pipes:
    """Take the parent's pipes away from where the user's code reads and writes."""
    pipes = _Pipes(os.fdopen(os.dup(_INPUT), "rb"), os.fdopen(os.dup(_OUTPUT), "wb"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _INPUT)
    os.close(nothing)
    os.dup2(_SCREEN, _OUTPUT)
    return pipes


def _listen(pipe: BinaryIO, orders: _Orders) -> None:
    """Pass on the parent's orders, and end the process with its parent."""
    folder: Path | None = None
    for line in pipe:
        order = json.loads(line)
        folder = Path(order["folder"])
        orders.put(order)
    if folder is not None:
        remove(folder)
    _end_all()


def _end_all() -> NoReturn:
    """End this process, and with it those that it started."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
