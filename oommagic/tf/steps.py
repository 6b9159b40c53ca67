"""Real steps of a model at a few small batch sizes, with every allocation that they make.

What is recorded here is all that a plan is made from. In a child process the model is the child's
own; in the user's kernel this belongs within `left_as_it_was`.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import Any, Self

from oommagic.errors import PlanError
from oommagic.recording import CompiledSize, Held, StepTapes, Tape, TapedStep
from oommagic.tf import arena, run_graphs, step_sizes, xla
from oommagic.tf.allocator import Allocators
from oommagic.tf.compiled_sizes import CompiledSizes, Wanted, no_more
from oommagic.tf.failures import failure_of
from oommagic.tf.hush import Hush
from oommagic.tf.inventory import held_by
from oommagic.tf.profiler import ProfilerBusyError, ProfilerSession
from oommagic.tf.real_steps import Step, Steps, given_out_bytes, steps_of
from oommagic.tf.samples import Sample, Task
from oommagic.tf.step_graphs import StepsInGraphs
from oommagic.tf.step_sizes import Pace
from oommagic.tf.tape_reader import Taped, read_tapes
from oommagic.tf.undoing import Undoing
from oommagic.tf.xla_functions import CompiledElsewhere
from oommagic.units import MIB

Progress = Callable[[str], None]

DEFAULT_BUDGET_S = 14.0
_UNSURE_SHARE = 0.4
"""Of that, until XLA is asked about sizes only to be surer."""
_SCRATCH_BYTES = MIB
"""Less is not looked after where one size takes it and another does without."""


@dataclass(frozen=True, slots=True)
class _Device:
    name: str
    limit_bytes: int | None


class Making:
    """Within `with`, what is allocated for the model, or for data, is recorded."""

    def __init__(self) -> None:
        """Record nothing yet."""
        self.tape: Tape | None = None
        self._recording = _Recording()
        self._undoing = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(Undoing(self._recording.discard))
            self._recording.start()
            self._undoing = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        with self._undoing:
            if error == (None, None, None):
                self.tape = _of_device(self._recording.stop(), _device().name)


def record(  # noqa: PLR0913 (the last three are said by name)
    subject: Any,
    sample: Sample,
    task: Task,
    on_progress: Progress,
    budget_s: float = DEFAULT_BUDGET_S,
    *,
    first: int | None = None,
    told: Iterable[CompiledSize] = (),
    wanted: Wanted = no_more,
) -> StepTapes:
    """Run steps of a Keras model, or of a function, at a few batch sizes, one tape a step.

    An error of the model's own is raised as it is; so is running out at the first size. What was
    allocated before is not in it: see `Making`. `wanted` chooses sizes that XLA is asked about,
    beyond the usual ones and those that it has `told` before.
    """
    began_s = perf_counter()
    ends_s = began_s + budget_s, began_s + _UNSURE_SHARE * budget_s
    run = _Run(subject, sample, task, tuple(told), wanted, on_progress, *ends_s)
    return run.record(first or first_batch(subject, sample))


def run_steps(
    subject: Any, sample: Sample, task: Task, batch: int, steps: int
) -> tuple[int, float]:
    """Run so many steps at one size, and give the device's peak and the seconds they took."""
    import tensorflow as tf

    device = _device().name
    tf.config.experimental.reset_memory_stats(device)
    step = steps_of(subject, sample, task).at(batch)
    began_s = perf_counter()
    for _ in range(steps):
        _finished(step, device)
    elapsed_s = perf_counter() - began_s
    return int(tf.config.experimental.get_memory_info(device)["peak"]), elapsed_s


@dataclass(slots=True)
class _Run:
    """One recording of steps at several sizes."""

    subject: Any
    sample: Sample
    task: Task
    told: tuple[CompiledSize, ...]
    wanted: Wanted
    on_progress: Progress
    until_s: float
    unsure_until_s: float
    notes: list[str] = field(default_factory=list)
    needs: dict[str, frozenset[str]] = field(default_factory=dict)

    def record(self, first: int) -> StepTapes:
        device, mark = _device(), xla.last_number()
        steps = steps_of(self.subject, self.sample, self.task)
        sides = self.sample.fixed_sides() | sides_of(self.subject)
        self.on_progress(f"tracing and running the first step, at batch {first}")
        with Making() as making:  # the data, around which steps come to lie
            step = steps.at(first)
        taped = [self._first_of(step, first, device)]
        held = _held_by(self.subject)
        began_s = perf_counter()
        taped.append(self._tape_of(step, first, device))
        pace = self._pace(taped, perf_counter() - began_s, device, steps)
        tapes = StepTapes(
            title=title_of(self.subject),
            task=self.task,
            device=device.name,
            limit_bytes=device.limit_bytes,
            is_arena=arena.owns(device.name),
            made=None,
            steps=tuple(taped),
            row_bytes=self.sample.row_bytes,
            prepared=making.tape,
            held=tuple(one for one in held if one.device == device.name),
            needs=dict(self.needs),
            processors=os.cpu_count() or 1,
        )
        if self._is_compiled(mark) and not _names_layers(taped[-1].tape):
            tapes = self._told_by_xla(tapes, steps, mark)
        if not tapes.compiled:  # else one step is as the other, and sizes need not run
            more = step_sizes.more_at_first(pace, self._left_s())
            taped += self._taped(lambda: step, first, more, device)
            tapes = replace(tapes, steps=tuple(taped))
            tapes = self._at_other_sizes(tapes, pace, steps, device, sides)
        if self._is_compiled(mark):
            ran = {step.batch for step in tapes.steps}
            self._check_sizes(ran | {one.batch for one in tapes.compiled})
        return replace(tapes, needs=dict(self.needs), notes=(*self.sample.notes, *self.notes))

    def _told_by_xla(self, tapes: StepTapes, steps: Steps, mark: int) -> StepTapes:
        """Ask XLA for sizes that need not run: the usual ones, and those that somebody wants."""
        ends_s = self.until_s, self.unsure_until_s
        sizes = CompiledSizes(steps, mark, self._elsewhere, self.on_progress, *ends_s)
        sizes.ask_usual(tapes.steps[-1], self.told)
        if len(sizes.known) > 1:
            sizes.ask_wanted(lambda told: self.wanted(replace(tapes, compiled=told)))
            if not self.told:
                sizes.ask_unsure(tapes.steps[-1].tape.before_bytes)
        # One size does not tell how the step grows.
        told = tuple(sizes.known.values()) if len(sizes.known) > 1 else ()
        return replace(tapes, compiled=told)

    def _at_other_sizes(
        self, tapes: StepTapes, pace: Pace, steps: Steps, device: _Device, sides: frozenset[int]
    ) -> StepTapes:
        """Run steps at a smaller size and a larger one, and between where that is in doubt."""
        taped = list(tapes.steps)
        for choose in (step_sizes.small_run, step_sizes.second_run):
            if chosen := choose(pace, self._left_s(), sides):
                size, count = chosen
                taped += self._taped(partial(steps.at, size), size, count, device)
        taped += self._between(tuple(taped), steps, device, sides)
        return replace(tapes, steps=tuple(taped))

    def _check_sizes(self, known: set[int]) -> None:
        """Refuse to tell of a compiled step what one size alone does not show."""
        if len(known) == 1:
            raise PlanError(
                f"XLA compiles {title_of(self.subject)}, or a part of it, and it is known at one "
                "batch size alone, which does not show how it grows: there is no plan. "
                "Without `jit_compile=True` there is one, for the step that is not compiled."
            )

    def _between(
        self, taped: Sequence[TapedStep], steps: Steps, device: _Device, sides: frozenset[int]
    ) -> Iterator[TapedStep]:
        """Run sizes between two of which one takes scratch memory that the other does without."""
        tapes: dict[int, list[Tape]] = defaultdict(list)
        for step in taped:
            tapes[step.batch].append(step.tape)
        until_s = min(perf_counter() + step_sizes.BETWEEN_S, self.until_s)
        while perf_counter() < until_s and (size := _size_in_doubt(tapes, sides)):
            for step in self._taped(partial(steps.at, size), size, step_sizes.EACH, device):
                tapes[size].append(step.tape)
                yield step
            if size not in tapes:
                return

    def _taped(
        self, prepare: Callable[[], Step], size: int, count: int, device: _Device
    ) -> Iterator[TapedStep]:
        """Run more steps, as many as fit."""
        self.on_progress(f"running steps at batch {size}")
        try:
            step = prepare()
            yield self._first_of(step, size, device)
            yield from (self._tape_of(step, size, device) for _ in range(count - 1))
        except (RuntimeError, MemoryError, _tensorflow_error()) as error:
            if failure_of(error) is None:
                raise
            self.notes.append(f"Batch {size} did not fit when it was tried.")

    @staticmethod
    def _pace(taped: list[TapedStep], took_s: float, device: _Device, steps: Steps) -> Pace:
        first, second = taped
        return Pace(
            batch=first.batch,
            step_s=second.elapsed_s,
            fixed_s=took_s - second.elapsed_s,
            size_s=max(first.elapsed_s - second.elapsed_s, 0.0) if steps.is_prepared_anew else 0.0,
            most=_most(first.batch, second.tape, device),
        )

    def _first_of(self, step: Step, batch: int, device: _Device) -> TapedStep:
        """Tape a step that may be prepared anew, as graphs with other ops."""
        with run_graphs.collected() as needs:
            taped = self._tape_of(step, batch, device)
        for op, needed in needs.items():
            self.needs[op] = self.needs.get(op, frozenset()) | needed
        return taped

    def _tape_of(self, step: Step, batch: int, device: _Device) -> TapedStep:
        recording = _Recording()
        with Undoing(recording.discard):
            recording.start()
            began_s = perf_counter()
            _finished(step, device.name)
            elapsed_s = perf_counter() - began_s
            tape = _of_device(recording.stop(), device.name)
        if tape is None:
            raise PlanError(
                f"The step allocates nothing on {device.name}: there is no plan to make."
            )
        return TapedStep(batch, tape, elapsed_s)

    def _is_compiled(self, mark: int) -> bool:
        """Say whether XLA compiles something of the step, traced here or elsewhere."""
        return xla.last_number() > mark or bool(self._elsewhere())

    def _elsewhere(self) -> Sequence[CompiledElsewhere]:
        return self.subject.compiled if isinstance(self.subject, StepsInGraphs) else ()

    def _left_s(self) -> float:
        return self.until_s - perf_counter()


class _Recording:
    """One run of TensorFlow's profiler, and its tapes."""

    def __init__(self) -> None:
        self._hush = Hush()
        self._session = ProfilerSession(self._hush)

    def start(self) -> None:
        """Begin, unless somebody else's profiler runs."""
        import tensorflow.python.profiler.profiler_v2  # noqa: F401 (TensorFlow loads it late)

        try:
            self._session.start()
        except ProfilerBusyError as error:
            raise PlanError(
                "TensorFlow's profiler is running, and there can be only one: stop it first."
            ) from error

    def stop(self) -> tuple[Tape, ...]:
        """End, and read what was written."""
        session = self._session
        file = session.save()
        if file is None:
            raise PlanError(
                "TensorFlow's profiler did not write what it recorded: is there room in the folder "
                "for temporary files?"
            )
        taped = Taped(file, session.mark, session.mark_s, session.started_s, (), is_whole=True)
        return read_tapes(taped)

    def discard(self) -> None:
        """Leave nothing behind, finished or not."""
        self._hush.end()
        self._session.discard()


def _device() -> _Device:
    """Give the device that trains: the first GPU, or the CPU where it is a training device."""
    import tensorflow as tf

    tf.config.list_logical_devices()  # makes them, as the first operation would
    allocators = Allocators()
    try:
        if not allocators.find():
            raise PlanError(f"No device here has figures of its own. {allocators.status()}")
        name = min(allocators.names, key=lambda name: (not name.startswith("GPU"), name))
        return _Device(name, allocators.limit_bytes(name))
    finally:
        allocators.close()


def _size_in_doubt(tapes: Mapping[int, Sequence[Tape]], sides: frozenset[int]) -> int | None:
    """Give a size between two of which one alone takes scratch memory."""
    for small, large in pairwise(sorted(tapes)):
        if _takes_more(tapes[small], tapes[large]) or _takes_more(tapes[large], tapes[small]):
            size = step_sizes.size_between(small, large, sides)
            if size is not None:
                return size
    return None


def _takes_more(some: Sequence[Tape], others: Sequence[Tape]) -> bool:
    """Say whether an op always has scratch memory of note in some steps, and never in others."""
    always = frozenset.intersection(*(_scratch(tape, _SCRATCH_BYTES) for tape in some))
    return not always <= frozenset.union(*(_scratch(tape, 1) for tape in others))


def _scratch(tape: Tape, least_bytes: int) -> frozenset[str]:
    """Give the ops of layers that have scratch memory; other ops' names change with each trace."""
    events = zip(tape.op_numbers, tape.bytes, tape.temporary, strict=True)
    numbers = {number for number, size, temporary in events if temporary and size >= least_bytes}
    return frozenset(tape.ops[number] for number in numbers if tape.roles[number].layer)


def _names_layers(tape: Tape) -> bool:
    """Say whether layers' ops take most of a step: then XLA has compiled a part of it alone."""
    events = zip(tape.op_numbers, tape.bytes, strict=True)
    sizes = [(size, tape.roles[number].layer) for number, size in events if size > 0]
    return 2 * sum(size for size, layer in sizes if layer) > sum(size for size, _ in sizes)


def _of_device(tapes: tuple[Tape, ...], name: str) -> Tape | None:
    return next((tape for tape in tapes if tape.device == name), None)


def _finished(step: Step, device: str) -> None:
    """Run a step to its end; a GPU goes on when the call is over."""
    import tensorflow as tf

    step()
    if device.startswith("GPU"):
        tf.test.experimental.sync_devices()


def _most(batch: int, tape: Tape, device: _Device) -> int:
    """Give the largest batch that takes no more than half of the device."""
    if device.limit_bytes is None:
        return sys.maxsize
    grows_bytes = max(max(tape.in_use_bytes) - tape.before_bytes, 1)
    return batch * max(device.limit_bytes // 2 - tape.before_bytes, 0) // grows_bytes


def _held_by(subject: Any) -> tuple[Held, ...]:
    """Tell what the subject holds when its first step is over: its weights and their slots."""
    if isinstance(subject, StepsInGraphs):
        return tuple(subject.held_here())
    return held_by({title_of(subject): subject})


def first_batch(subject: Any, sample: Sample) -> int:
    """Choose the batch that the first step is tried with."""
    sides = sample.fixed_sides() | sides_of(subject)
    is_compiled = bool(getattr(subject, "jit_compile", False))
    return step_sizes.first_size(sides, given_out_bytes(subject), is_compiled=is_compiled)


def sides_of(subject: Any) -> frozenset[int]:
    """Give the sides of a model's weights."""
    if isinstance(subject, StepsInGraphs):
        return subject.sides
    return frozenset(side for weight in getattr(subject, "variables", ()) for side in weight.shape)


def title_of(subject: Any) -> str:
    """Give the name of a model or a function."""
    return str(getattr(subject, "name", None) or getattr(subject, "__name__", "step"))


def _tensorflow_error() -> type[Exception]:
    from tensorflow.python.framework import errors_impl

    error: type[Exception] = errors_impl.OpError
    return error
