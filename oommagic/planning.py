"""Plans: real steps at a few sizes where that is safe, the peak at any other, and proof of one.

Steps are recorded in a child process with a training device of its own, so that the kernel takes
no risk and the model stays untouched. Where there is a GPU only that one knows what its steps
take: they are recorded in place, and the model is left as it was.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from oommagic.errors import CannotTravelError, PlanError
from oommagic.explain.plan import Plan
from oommagic.forecasts import Limit
from oommagic.measure.limits import available_bytes
from oommagic.recording import StepTapes
from oommagic.report import BatchTrial
from oommagic.tf import arena, context, steps
from oommagic.tf.allocator import Allocators
from oommagic.tf.left_as_it_was import left_as_it_was
from oommagic.tf.samples import Sample, Task, array_bytes
from oommagic.tf.sampling import is_keras_model, sample_of
from oommagic.trial import parent
from oommagic.trial.outcomes import Died, Finished, Raised, RanOut, Result, TimedOut
from oommagic.units import format_bytes, format_seconds

Progress = Callable[[str], None]

_OF_WHAT_IS_AVAILABLE = 0.7
"""A child may take so much: it and TensorFlow in it need some beside the device."""
_RECORDING_S = 300.0
_TRIAL_S = 300.0
_TRIAL_STEPS = 4
_MOST_TRIALS = 3
_WORTH_SAYING = 0.01
_NEXT_TRIAL = 0.93
"""How much smaller the next batch to try is."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a plan is asked for: whose steps, on what data, within which limit."""

    subject: Any
    sample: Sample
    task: Task
    limit: Limit | None
    data_bytes: int
    """What the batch takes that was given, where it is arrays: all of the user's data, perhaps."""

    def answer(self, progress: Progress) -> Plan:
        """Record steps, and work the peak out for every size."""
        began_s = perf_counter()
        tapes = self._tapes(progress)
        progress("working out the peak of every batch size")
        limit, note = self.limit, ""
        if limit is None:
            limit, note = _room_here(tapes, self.subject, self.data_bytes)
        plan = Plan(replace(tapes, notes=(*tapes.notes, note) if note else tapes.notes), limit)
        plan.forecast = replace(plan.forecast, elapsed_s=perf_counter() - began_s)
        return plan

    def prove(self, plan: Plan, progress: Progress) -> None:
        """Try real steps at the batch that should fit, and at smaller ones if it does not."""
        limit_bytes, batch = plan.forecast.limit_bytes, plan.max_batch()
        if limit_bytes is None:
            return
        trials: list[BatchTrial] = []
        while batch and len(trials) < _MOST_TRIALS:
            progress(f"trying {_TRIAL_STEPS} steps at batch {batch}")
            trials.append(self._try(batch, limit_bytes, progress))
            if trials[-1].outcome != "ran out":
                break
            batch = int(batch * _NEXT_TRIAL)
        plan.prove(*trials)

    def _tapes(self, progress: Progress) -> StepTapes:
        if _has_gpu():
            return self._record_here(progress)
        things = (self.subject, self.sample, self.task)
        limit_bytes = int(available_bytes() * _OF_WHAT_IS_AVAILABLE)
        progress("starting a child process")
        try:
            result = parent.run(
                "tapes",
                things,
                limit_bytes=limit_bytes,
                timeout_s=_RECORDING_S,
                on_progress=progress,
            )
        except CannotTravelError as error:
            return self._record_all_the_same(error, progress)
        return _recorded(result, self.subject)

    def _record_here(self, progress: Progress) -> StepTapes:
        with left_as_it_was(self.subject):
            return steps.record(self.subject, self.sample, self.task, progress)

    def _record_all_the_same(self, error: CannotTravelError, progress: Progress) -> StepTapes:
        """Record in place what cannot be sent, if this kernel has a device to do it on."""
        here = arena.current()
        if here is None or not here.is_running:
            raise PlanError(
                f"{error} Without that its steps can only be recorded in this kernel, which needs "
                "a training device: restart it and run `%oomdevice 2GB` first."
            ) from error
        tapes = self._record_here(progress)
        return replace(tapes, notes=(*tapes.notes, f"Recorded in this kernel: {error}"))

    def _try(self, batch: int, limit_bytes: int, progress: Progress) -> BatchTrial:
        room = available_bytes()
        if limit_bytes > room:
            message = (
                f"a device of {format_bytes(limit_bytes)} cannot be tried here: "
                f"this machine has {format_bytes(room)} left"
            )
            return BatchTrial(batch, limit_bytes, "failed", message=message)
        result = parent.run(
            "measure",
            (self.subject, self.sample, self.task, batch, _TRIAL_STEPS),
            limit_bytes=limit_bytes,
            timeout_s=_TRIAL_S,
            on_progress=progress,
        )
        return _trial(batch, limit_bytes, result)


def plan(  # noqa: PLR0913 (each is something that a user may say)
    subject: Any,
    batch: Any = None,
    *,
    predict: bool = False,
    limit: str | int | None = None,
    like: str | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Predict the device's peak for every batch size, for a Keras model or a training step.

    `batch` is a sample of the data (arrays, tensors, a `tf.data.Dataset`, or a function that makes
    n samples); without one it is made from the model's shapes. `predict` plans `model.predict`.
    The limit is the device's own, or `limit` (such as "15GB"), or that of a card (`like="T4"`).
    """
    asked = question(subject, batch, predict=predict, limit=limit, like=like)
    with saying(progress) as say:
        return asked.answer(say)


def max_batch(  # noqa: PLR0913 (likewise)
    subject: Any,
    batch: Any = None,
    *,
    predict: bool = False,
    limit: str | int | None = None,
    like: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Give the largest batch that fits, proven by real steps in a child process of that limit."""
    asked = question(subject, batch, predict=predict, limit=limit, like=like)
    with saying(progress) as say:
        found = asked.answer(say)
        asked.prove(found, say)
    return proven_batch(found)


def question(
    subject: Any,
    batch: Any = None,
    *,
    predict: bool = False,
    limit: str | int | None = None,
    like: str | None = None,
) -> Question:
    """Check what is asked for, and take a few rows of the data."""
    if not context.is_imported():
        raise PlanError("TensorFlow is not imported in this kernel, so there is nothing to plan.")
    kind: Task = "prediction" if predict else "training"
    task: Task = kind if predict or is_keras_model(subject) or not callable(subject) else "step"
    sample = sample_of(subject, batch, task)
    return Question(subject, sample, task, _asked_limit(limit, like), array_bytes(batch))


def proven_batch(plan: Plan) -> int:
    """Give the batch that real steps have proven; else say what they showed."""
    for trial in plan.forecast.trials:
        if trial.outcome == "fits":
            return trial.batch
    if not plan.max_batch():
        raise PlanError(_why_none_fits(plan))
    last = plan.forecast.trials[-1]
    raise PlanError(f"No batch was proven to fit: at batch {last.batch}, {last.message}.")


def _why_none_fits(plan: Plan) -> str:
    limit, smallest = plan.forecast.limit_bytes or 0, plan.forecast.rows[0]
    fixed = plan.forecast.fixed_bytes
    if fixed > limit:
        return (
            f"No batch fits {format_bytes(limit)}: the weights alone, with what the optimizer "
            f"keeps, take {format_bytes(fixed)}."
        )
    return (
        f"No batch fits {format_bytes(limit)}: a single sample takes "
        f"{format_bytes(smallest.peak_bytes)}."
    )


def _asked_limit(limit: str | int | None, like: str | None) -> Limit | None:
    if limit is None and like is None:
        return None
    size, card = arena.asked_size(limit, like)
    if size < 1:
        raise PlanError(f"A limit of {limit} leaves room for nothing: ask for more, as in 15GB.")
    return Limit(card or "the limit", size)


def _room_here(tapes: StepTapes, subject: Any, data_bytes: int) -> tuple[Limit | None, str]:
    """Give what the device of this kernel has for such steps, and a note if that is not all.

    A GPU's tapes began with what was there; on a training device the data that `fit` is given
    lies beside the steps.
    """
    if _has_gpu():
        return (Limit(tapes.device, tapes.limit_bytes) if tapes.limit_bytes else None), ""
    here = arena.current()
    if here is None:
        return None, ""
    others = max(_in_use_bytes() - _own_bytes(subject), 0) + data_bytes
    name = here.like or "this device"
    if others < _WORTH_SAYING * here.limit_bytes:
        return Limit(name, here.limit_bytes - others), ""
    note = (
        f"Of the device's {format_bytes(here.limit_bytes)}, {format_bytes(others)} are left out: "
        "what the notebook holds there already, and the data itself."
    )
    return Limit(name, max(here.limit_bytes - others, 0)), note


def _in_use_bytes() -> int:
    """Give what the training device of this kernel has handed out."""
    allocators = Allocators()
    try:
        return sum(allocators.peek()) if allocators.find() else 0
    finally:
        allocators.close()


def _own_bytes(subject: Any) -> int:
    """Give what a model's weights and its optimizer's slots take."""
    optimizer = getattr(getattr(subject, "optimizer", None), "variables", ())
    variables = {id(one): one for one in (*getattr(subject, "variables", ()), *optimizer)}
    return sum(int(one.numpy().nbytes) for one in variables.values())


def _has_gpu() -> bool:
    now = context.current_context()
    devices = [] if now is None else context.own_devices(now)
    return any(device.device_type == "GPU" for device in devices)


def _recorded(result: Result, subject: Any) -> StepTapes:
    if isinstance(result, Finished):
        tapes: StepTapes = result.value
        return tapes
    name = getattr(subject, "name", None) or getattr(subject, "__name__", "the step")
    match result:
        case Raised(error_type, message, traceback):
            what = f"A step of {name} fails, and not for want of memory: {error_type}: {message}"
            raise PlanError(f"{what}\n\n{traceback.rstrip()}")
        case RanOut():
            room = format_bytes(available_bytes())
            raise PlanError(
                f"Even the smallest batch that was tried with {name} does not fit into what this "
                f"machine has left for it ({room}). Free some memory, or plan on a larger machine."
            )
        case Died(how):
            raise PlanError(f"The child process that ran steps of {name} {how}.")
        case TimedOut(after_s):
            raise PlanError(
                f"Steps of {name} were not over after {format_seconds(after_s)}, so there is no "
                "plan. Plan a smaller model, or pass a batch of shorter samples."
            )


def _trial(batch: int, limit_bytes: int, result: Result) -> BatchTrial:
    trial = BatchTrial(batch, limit_bytes, "failed", steps=_TRIAL_STEPS)
    match result:
        case Finished((peak_bytes, elapsed_s)):
            return replace(trial, outcome="fits", peak_bytes=peak_bytes, elapsed_s=elapsed_s)
        case RanOut(failure, peak_bytes):
            text = f"it ran out ({failure.text})"
            return replace(trial, outcome="ran out", peak_bytes=peak_bytes, message=text)
        case Died(how):
            return replace(trial, outcome="died", message=f"the child process {how}")
        case TimedOut(after_s):
            text = f"it was not over after {format_seconds(after_s)}"
            return replace(trial, outcome="timed out", message=text)
        case Raised(error_type, message):
            return replace(trial, message=f"the step failed with {error_type}: {message}")
    return replace(trial, message="the child process gave no figures")


@contextmanager
def saying(progress: Progress | None = None) -> Iterator[Progress]:
    """Give what was asked for, or one line on the screen that goes away again."""
    if progress is not None:
        yield progress
        return
    widths = [0]

    def say(text: str) -> None:
        line = f"Planning: {text} …"
        sys.stderr.write(f"\r{line:<{widths[-1]}}")
        sys.stderr.flush()
        widths.append(len(line))

    try:
        yield say
    finally:
        sys.stderr.write(f"\r{'':<{widths[-1]}}\r")
        sys.stderr.flush()
