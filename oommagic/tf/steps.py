"""Real steps of a model at a few small batch sizes, with every allocation that they make.

What is recorded here is all that a plan is made from. In a child process the model is the child's
own; in the user's kernel this belongs within `left_as_it_was`.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Self

from oommagic.errors import PlanError
from oommagic.recording import CompiledSize, StepTapes, Tape, TapedStep
from oommagic.tf import arena, step_sizes, xla
from oommagic.tf.allocator import Allocators
from oommagic.tf.failures import failure_of
from oommagic.tf.hush import Hush
from oommagic.tf.inventory import held_by
from oommagic.tf.profiler import ProfilerBusyError, ProfilerSession
from oommagic.tf.real_steps import Step, Steps, given_out_bytes, steps_of
from oommagic.tf.samples import Sample, Task
from oommagic.tf.step_sizes import Pace
from oommagic.tf.tape_reader import Taped, read_tapes
from oommagic.tf.undoing import Undoing

Progress = Callable[[str], None]

DEFAULT_BUDGET_S = 14.0
_COMPILED_SIZES = (64, 256, 1024)


@dataclass(frozen=True, slots=True)
class _Device:
    name: str
    limit_bytes: int | None


class Making:
    """Within `with`, what is allocated for the model itself is recorded: for `StepTapes.made`."""

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


def record(
    subject: Any,
    sample: Sample,
    task: Task,
    on_progress: Progress,
    budget_s: float = DEFAULT_BUDGET_S,
) -> StepTapes:
    """Run steps of a Keras model, or of a function, at a few batch sizes, one tape a step.

    An error of the model's own is raised as it is; so is running out at the smallest size. What
    was allocated before is not in it: see `Making`.
    """
    return _Run(subject, sample, task, on_progress, perf_counter() + budget_s).record()


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
    on_progress: Progress
    until_s: float
    notes: list[str] = field(default_factory=list)

    def record(self) -> StepTapes:
        device, mark = _device(), xla.last_number()
        held = held_by({_title(self.subject): self.subject})
        steps = steps_of(self.subject, self.sample, self.task)
        sides = self.sample.fixed_sides() | _sides(self.subject)
        first = step_sizes.first_size(sides, given_out_bytes(self.subject))
        self.on_progress(f"tracing and running the first step, at batch {first}")
        step = steps.at(first)
        taped = [self._tape_of(step, first, device)]
        began_s = perf_counter()
        taped.append(self._tape_of(step, first, device))
        pace = self._pace(taped, perf_counter() - began_s, device, steps)
        compiled = tuple(self._compiled(mark, first))
        more = step_sizes.more_at_first(pace, self._left_s())
        taped += self._taped(lambda: step, first, more, device)
        if second := step_sizes.second_run(pace, self._left_s(), sides):
            size, count = second
            taped += self._taped(lambda: steps.at(size), size, count, device)
        return StepTapes(
            title=_title(self.subject),
            task=self.task,
            device=device.name,
            limit_bytes=device.limit_bytes,
            is_arena=arena.owns(device.name),
            made=None,
            steps=tuple(taped),
            batch_bytes={step.batch: step.batch * self.sample.row_bytes for step in taped},
            compiled=compiled,
            held=tuple(one for one in held if one.device == device.name),
            notes=(*self.sample.notes, *self.notes),
        )

    def _taped(
        self, prepare: Callable[[], Step], size: int, count: int, device: _Device
    ) -> Iterator[TapedStep]:
        """Run more steps, as many as fit."""
        self.on_progress(f"running steps at batch {size}")
        try:
            step = prepare()
            yield from (self._tape_of(step, size, device) for _ in range(count))
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

    def _compiled(self, mark: int, first: int) -> Iterator[CompiledSize]:
        """Ask XLA what the step takes at sizes that need not run, as long as that is quick."""
        if xla.last_number() == mark:
            return
        took_s = 0.0
        for size in (first, *_COMPILED_SIZES):
            left_s = self._left_s()
            if took_s > left_s:
                return
            self.on_progress(f"compiling for batch {size}")
            began_s = perf_counter()
            temporary_bytes = xla.temporary_bytes(mark, size, left_s)
            if temporary_bytes is None:
                return
            took_s = perf_counter() - began_s
            yield CompiledSize(size, temporary_bytes)

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
            raise PlanError("TensorFlow's profiler did not write what it recorded.")
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


def _sides(subject: Any) -> frozenset[int]:
    """Give the sides of a model's weights."""
    return frozenset(side for weight in getattr(subject, "variables", ()) for side in weight.shape)


def _title(subject: Any) -> str:
    return str(getattr(subject, "name", None) or getattr(subject, "__name__", "step"))


def _tensorflow_error() -> type[Exception]:
    from tensorflow.python.framework import errors_impl

    error: type[Exception] = errors_impl.OpError
    return error
