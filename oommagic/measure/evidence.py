"""What will be asked for when memory runs out, gathered beside the lines.

Tapes of the first steps, what the notebook's names hold before and after, and the allocator's
own dump of a failure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from oommagic.measure.interrupts import InterruptsPassedOn
from oommagic.own_builtins import keep_builtins
from oommagic.recording import CompiledMemory, Held, Tape
from oommagic.report import Failure
from oommagic.tf.caught_errors import CaughtErrors
from oommagic.tf.compiled import look_inside
from oommagic.tf.dumps import DumpFolder
from oommagic.tf.failures import failure_of
from oommagic.tf.function_calls import AT_END_OF_CALL
from oommagic.tf.heap import OwnWork
from oommagic.tf.inventory import held_by
from oommagic.tf.tape import Taping
from oommagic.tf.tape_bounds import Limits
from oommagic.tf.unnamed import last_error

keep_builtins(globals())

# Deleting old dumps is no hurry, and looks into a folder.
_PRUNE_EVERY = 20
# Where calls were not counted, what goes wrong later than this may come of anything.
_AT_ONCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was gathered in one run."""

    tapes: tuple[Tape, ...] = ()
    compiled: tuple[CompiledMemory, ...] = ()
    held_before: tuple[Held, ...] = ()
    held_after: tuple[Held, ...] = ()
    failure: Failure | None = None
    caught_in: tuple[str, ...] = ()
    """The functions that ran when it failed, where the program caught the error."""
    notes: tuple[str, ...] = ()


def what_is_held(namespace: Mapping[str, object], *, include_unnamed: bool) -> tuple[Held, ...]:
    """Tell what names hold, and what has none; less of it where the host has no memory left."""
    for unnamed_too in (True, False) if include_unnamed else (False,):
        with suppress(MemoryError):
            return held_by(namespace, include_unnamed=unnamed_too)
    return ()


def _is_after_failure() -> bool:
    """Say whether the last error was about memory."""
    error = last_error()
    return error is not None and failure_of(error) is not None


class Witness:
    """Gathers the evidence of one run: `begin`, `tick` from a thread, `end`, `close`."""

    def __init__(
        self,
        namespace: Mapping[str, object],
        tape_steps: int,
        compile_s: float,
        aside: Callable[[OwnWork], AbstractContextManager[None]],
    ) -> None:
        """Gather nothing yet; without steps there is no tape, whose work is done `aside`."""
        self._namespace = namespace
        self._compile_s = compile_s
        limits, held_now = (
            Limits(steps=tape_steps),
            partial(what_is_held, namespace, include_unnamed=False),
        )
        self._taping = Taping(limits, aside, held_now=held_now) if tape_steps else None
        self._dumps = DumpFolder()
        self._caught = CaughtErrors(self._calls_begun)
        self._interrupts = InterruptsPassedOn(AT_END_OF_CALL)
        self._held_before: tuple[Held, ...] = ()

    @property
    def is_taping(self) -> bool:
        """Whether allocations are being recorded."""
        return self._taping is not None and self._taping.is_recording

    def begin(self) -> None:
        """Look at what is there, and start the tape."""
        # A look at all objects takes a while: only where a failed step has left some.
        self._held_before = what_is_held(self._namespace, include_unnamed=_is_after_failure())
        self._dumps.open()
        self._caught.begin()
        self._interrupts.start()
        if self._taping is not None:
            self._taping.begin()

    def tick(self, count: int) -> None:
        """Let the tape see whether it has been enough."""
        self._caught.tick()
        if self._taping is not None:
            self._taping.tick()
        if (count + 1) % _PRUNE_EVERY == 0:
            self._dumps.prune()

    def end(self, origin_s: float, error: BaseException | None) -> Evidence:
        """Stop the tape, and look at what is there now; times count from `origin_s`."""
        ended_s = perf_counter()
        tapes = self._taping.end(origin_s) if self._taping is not None else ()
        self._caught.end()
        failure = failure_of(error) if error is not None else None
        is_caught = failure is None and self._is_about_what_was_caught(error, ended_s)
        failure = self._caught.last() if is_caught else failure
        # What lives without a name takes a look at all objects: only where it may be told.
        unnamed = bool(tapes) or failure is not None
        return Evidence(
            tapes=tapes,
            compiled=tuple(self._compiled(tapes)),
            held_before=self._held_before,
            held_after=what_is_held(self._namespace, include_unnamed=unnamed),
            failure=self._with_dump(failure) if failure is not None else None,
            caught_in=self._caught.functions if is_caught else (),
            notes=self._taping.notes if self._taping is not None else (),
        )

    def _calls_begun(self) -> int:
        return self._taping.calls_begun if self._taping is not None else 0

    def _is_about_what_was_caught(self, error: BaseException | None, ended_s: float) -> bool:
        """Say whether an error that the program caught is what there is to tell.

        What goes wrong next often goes wrong for want of what was not made; not what goes wrong
        once functions have run again, and not where somebody interrupts them.
        """
        if error is None or self._caught.last() is None:
            return self._caught.last() is not None
        if issubclass(type(error), KeyboardInterrupt):
            return False
        if self._taping is not None and self._taping.has_counted_calls:
            return self._caught.ended_it
        return ended_s - self._caught.noticed_s < _AT_ONCE_S

    def _with_dump(self, failure: Failure) -> Failure:
        return self._dumps.add_to(failure, self._caught.before_last_s)

    def _compiled(self, tapes: Iterable[Tape]) -> Iterator[CompiledMemory]:
        for tape in tapes:
            inside = look_inside(tape, self._compile_s)
            if inside is not None:
                yield inside

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        with ExitStack() as closing:
            closing.callback(self._dumps.close)
            closing.callback(self._caught.end)
            closing.callback(self._interrupts.stop)
            if self._taping is not None:
                self._taping.close()
