"""Plans: real steps at a few sizes where that is safe, the peak at any other, and proof of one.

Steps are recorded in a child process with a training device of its own, so that the kernel takes
no risk and the model stays untouched. Where there is a GPU only that one knows what its steps
take: they are recorded in place, and the model is left as it was.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any
from weakref import ReferenceType, ref

from oommagic.errors import CannotTravelError, PlanError
from oommagic.explain.fitting import size_to_tell
from oommagic.explain.plan import Plan
from oommagic.forecasts import Limit
from oommagic.measure.limits import available_bytes
from oommagic.progress import Progress, saying
from oommagic.recording import CompiledSize, StepTapes
from oommagic.report import BatchTrial, Failure
from oommagic.tf import arena, context, step_sizes, steps
from oommagic.tf.allocator import Allocators
from oommagic.tf.compiled_sizes import Wanted, no_more
from oommagic.tf.failures import failure_of
from oommagic.tf.left_as_it_was import left_as_it_was
from oommagic.tf.samples import Sample, Task, array_bytes
from oommagic.tf.sampling import is_step, sample_of
from oommagic.tf.tracing import Tracing
from oommagic.trial import parent
from oommagic.trial.outcomes import Died, Finished, Raised, RanOut, Result, TimedOut, last_words
from oommagic.units import format_bytes, format_seconds

_OF_WHAT_IS_AVAILABLE = 0.7
"""A child may take so much: it and TensorFlow in it need some beside the device."""
_RECORDING_S = 300.0
_TRIAL_S = 300.0
_TRIAL_STEPS = 4
_MOST_TRIALS = 3
_WORTH_SAYING = 0.01
_SAME_STEP = 0.001
"""What XLA tells of one step differs by no more from process to process."""
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

    def answer(self, progress: Progress, told: "_Told | None" = None) -> Plan:
        """Record steps, and work the peak out for every size; `told` is asked for more later."""
        began_s = perf_counter()
        tapes = self._tapes(progress)
        progress("working out the peak of every batch size")
        limit, note = self._limit_for(tapes)
        tapes = replace(tapes, notes=(*tapes.notes, note) if note else tapes.notes)
        plan = Plan(tapes, limit, more_told=told)
        plan.forecast = replace(plan.forecast, elapsed_s=perf_counter() - began_s)
        return plan

    def check_limit(self) -> None:
        """Refuse to prove a batch where there is no limit, before any step runs for it."""
        if self.limit is None and arena.current() is None and not _has_gpu():
            raise PlanError(
                "There is no limit to prove a batch under, since this CPU has none of its own: "
                "say one, as in 15GB, or a card, as in T4."
            )

    def prove(self, plan: Plan, progress: Progress) -> None:
        """Try real steps at the batch that should fit, and at smaller ones if it does not."""
        batch, limit_bytes = plan.max_batch(), plan.forecast.limit_bytes or 0
        trials: list[BatchTrial] = []
        while batch and len(trials) < _MOST_TRIALS:
            progress(f"trying {_TRIAL_STEPS} steps at batch {batch}")
            trials.append(self._try(batch, limit_bytes, progress))
            if trials[-1].outcome != "ran out":
                break
            batch = int(batch * _NEXT_TRIAL)
        plan.prove(*trials)

    def _limit_for(self, tapes: StepTapes) -> tuple[Limit | None, str]:
        """Give the limit that was asked for, or what there is here, and a note on that."""
        return _room_here(tapes, self.data_bytes) if self.limit is None else (self.limit, "")

    def _wanted(self, tapes: StepTapes) -> int | None:
        """Choose the size at which XLA shall tell more, for the largest that fits the limit."""
        limit, _ = self._limit_for(tapes)
        return None if limit is None else size_to_tell(tapes, limit.bytes)

    def more_told(self, tapes: StepTapes, progress: Progress) -> Sequence[CompiledSize]:
        """Have XLA tell more of a step that it compiled, for the largest that fits the limit."""
        ran = tapes.steps[0].batch
        new = self._tapes_from(ran, progress, tapes.compiled).compiled
        before, now = (_bytes_at(ran, told) for told in (tapes.compiled, new))
        # The model may have been compiled or frozen otherwise since.
        return new if abs(before - now) <= _SAME_STEP * before else ()

    def _tapes(self, progress: Progress) -> StepTapes:
        """Record steps; where the first size does not fit, once more from a very small one on."""
        with suppress(_DoesNotFitError):
            return self._tapes_from(None, progress)
        progress(f"that does not fit: beginning again with batch {step_sizes.LEAST}")
        return self._tapes_from(step_sizes.LEAST, progress)

    def _tapes_from(
        self, first: int | None, progress: Progress, told: Sequence[CompiledSize] = ()
    ) -> StepTapes:
        if _has_gpu():
            return self._record_here(first, progress)
        room_bytes = int(available_bytes() * _OF_WHAT_IS_AVAILABLE)
        child = _Child("tapes", room_bytes, _RECORDING_S, progress, self._wanted)
        progress("starting a child process")
        try:
            result = child.run(self.subject, self.sample, self.task, first, told)
        except CannotTravelError as error:
            return self._record_all_the_same(child, first, error, progress)
        return _recorded(result, self.subject)

    def _record_here(self, first: int | None, progress: Progress) -> StepTapes:
        try:
            with left_as_it_was(self.subject):
                asked = (self.subject, self.sample, self.task, progress)
                return steps.record(*asked, first=first, wanted=self._wanted)
        except Exception as error:  # the user's code may raise anything
            failure = failure_of(error)
            if failure is None:
                raise
        # Not while that error is there, which keeps alive what the step had on the device.
        raise _does_not_fit(self.subject, failure)

    def _record_all_the_same(
        self, child: "_Child", first: int | None, error: CannotTravelError, progress: Progress
    ) -> StepTapes:
        """Record what cannot be sent: here if there is a device to do it on, else its graph."""
        here = arena.current()
        if here is not None and here.is_running:
            tapes = self._record_here(first, progress)
            return replace(tapes, notes=(*tapes.notes, f"Recorded in this kernel: {error}"))
        try:
            result = child.run_graphs(self.subject, self.sample, self.task, first, ())
        except CannotTravelError as graphs_error:
            raise PlanError(
                f"{error} {graphs_error} So its steps can only be recorded in this kernel, which "
                "needs a training device: restart it and run `%oomdevice 2GB` first."
            ) from graphs_error
        tapes = _recorded(result, self.subject)
        return replace(tapes, notes=(*tapes.notes, f"Made from the traced graph: {error}"))

    def _try(self, batch: int, limit_bytes: int, progress: Progress) -> BatchTrial:
        lack = parent.lack_of_room(limit_bytes)
        if lack:
            return BatchTrial(batch, limit_bytes, "failed", message=lack)
        child = _Child("measure", limit_bytes, _TRIAL_S, progress)
        asked = (self.subject, self.sample, self.task, batch, _TRIAL_STEPS)
        try:
            return _trial(batch, limit_bytes, child.run(*asked))
        except CannotTravelError as error:
            first = error
        try:
            return _trial(batch, limit_bytes, child.run_graphs(*asked))
        except CannotTravelError as error:
            return BatchTrial(batch, limit_bytes, "failed", message=f"{first} {error}")


@dataclass(frozen=True, slots=True)
class _Child:
    """What a child process is to do, within which bounds."""

    task: str
    limit_bytes: int
    timeout_s: float
    progress: Progress
    wanted: Wanted = no_more

    def run(self, *things: Any) -> Result:
        """Have it done to a subject, with its sample and more."""
        return parent.run(self.task, things, **self._bounds())

    def run_graphs(
        self, subject: Any, sample: Sample, task: Task, batch: int | None, *more: object
    ) -> Result:
        """Have it done to the graphs of the subject's steps, each traced when it is asked for."""
        self.progress("tracing the graph of a step")
        with left_as_it_was(subject):
            tracing = Tracing(subject, sample, task)
            first = batch or steps.first_batch(subject, sample)
            things = (tracing.subject_at(first), tracing.sample, task, first, *more)
            return parent.run(self.task, things, **self._bounds(), give_graph=tracing.give)

    def _bounds(self) -> dict[str, Any]:
        return {
            "limit_bytes": self.limit_bytes,
            "timeout_s": self.timeout_s,
            "on_progress": self.progress,
            "choose_size": self.wanted,
        }


@dataclass(frozen=True, slots=True)
class _Told:
    """Has XLA tell more of a plan's step, while its model is there: a plan keeps no model alive."""

    subject: ReferenceType[Any]
    sample: Sample
    task: Task
    progress: Progress | None

    @classmethod
    def about(cls, asked: Question, progress: Progress | None) -> "_Told | None":
        """Make one for what was asked; of functions XLA does not tell more."""
        if asked.task == "step" or _has_gpu():
            return None
        return cls(ref(asked.subject), asked.sample, asked.task, progress)

    def __reduce__(self) -> Any:
        """Leave the model behind: a plan that was sent knows what it knows."""
        return type(None), ()

    def __call__(self, tapes: StepTapes, limit_bytes: int) -> Sequence[CompiledSize]:
        subject = self.subject()
        if subject is None:
            return ()
        limit = Limit("the limit", limit_bytes)
        # Without an answer there is what was told before.
        with saying(self.progress) as say, suppress(PlanError, CannotTravelError):
            return Question(subject, self.sample, self.task, limit, 0).more_told(tapes, say)
        return ()


def _bytes_at(batch: int, told: Sequence[CompiledSize]) -> int:
    return next((size.temporary_bytes for size in told if size.batch == batch), 0)


class _DoesNotFitError(PlanError):
    """The first step that was tried ran out of memory."""


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
        return asked.answer(say, _Told.about(asked, progress))


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
    asked.check_limit()
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
    task: Task = "step" if is_step(subject) and not predict else kind
    sample = sample_of(subject, batch, task)
    return Question(subject, sample, task, _asked_limit(limit, like), array_bytes(batch))


def proven_batch(plan: Plan) -> int:
    """Give the batch that real steps have proven; else say what they showed."""
    for trial in plan.forecast.trials:
        if trial.outcome == "fits":
            return trial.batch
    if not plan.forecast.trials:
        raise PlanError(_why_none_fits(plan))
    last = plan.forecast.trials[-1]
    how = "ran out of memory" if last.outcome == "ran out" else "proved nothing"
    raise PlanError(f"No batch was proven to fit: batch {last.batch} {how}. {last.message}")


def _why_none_fits(plan: Plan) -> str:
    limit, smallest = plan.forecast.limit_bytes or 0, plan.forecast.rows[0]
    weights = smallest.kinds.get("weights", 0)
    reason = f"a single sample takes {format_bytes(smallest.peak_bytes)}"
    if weights > limit:
        reason = f"the weights alone take {format_bytes(weights)}"
    return f"No batch fits {format_bytes(limit)}: {reason}."


def _asked_limit(limit: str | int | None, like: str | None) -> Limit | None:
    if limit is None and like is None:
        return None
    size, card = arena.asked_size(limit, like)
    if size < 1:
        raise PlanError(f"A limit of {limit} leaves room for nothing: ask for more, as in 15GB.")
    return Limit(card or "the limit", size)


def _room_here(tapes: StepTapes, data_bytes: int) -> tuple[Limit | None, str]:
    """Give what the device of this kernel has for such steps, and a note if that is not all.

    A GPU's tapes began with what was there; on a training device the data that `fit` is given
    lies beside the steps.
    """
    if _has_gpu():
        return (Limit(tapes.device, tapes.limit_bytes) if tapes.limit_bytes else None), ""
    here = arena.current()
    if here is None:
        return None, ""
    others = max(_in_use_bytes() - _own_bytes(tapes), 0) + data_bytes
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


def _own_bytes(tapes: StepTapes) -> int:
    """Give what the plan counts that was there before the first step: weights, slots, the rest."""
    if tapes.made is None:
        return tapes.steps[0].tape.before_bytes
    return tapes.made.in_use_bytes[-1]


def _has_gpu() -> bool:
    now = context.current_context()
    devices = [] if now is None else context.own_devices(now)
    return any(device.device_type == "GPU" for device in devices)


def _recorded(result: Result, subject: Any) -> StepTapes:
    if isinstance(result, Finished):
        tapes: StepTapes = result.value
        return tapes
    name = steps.title_of(subject)
    match result:
        case Raised(error_type, message, traceback):
            error = f"{error_type}: {message}" if message else error_type
            what = f"A step of {name} fails, and not for want of memory: {error}"
            raise PlanError(f"{what}\n\n{traceback.rstrip()}")
        case RanOut(failure):
            raise _does_not_fit(subject, failure)
        case Died(how, log):
            raise PlanError(f"The child process that ran steps of {name} {how}.{last_words(log)}")
        case TimedOut(after_s):
            raise PlanError(
                f"Steps of {name} were not over after {format_seconds(after_s)}, so there is no "
                "plan. Plan a smaller model, or pass a batch of shorter samples."
            )


def _does_not_fit(subject: Any, failure: Failure) -> _DoesNotFitError:
    return _DoesNotFitError(
        f"Even the smallest batch that was tried with {steps.title_of(subject)} does not fit into "
        f"what there is here ({failure.text}). Free some memory, or plan on a larger machine."
    )


def _trial(batch: int, limit_bytes: int, result: Result) -> BatchTrial:
    """Say what a trial showed: that a batch is too large is proven by the device alone."""
    trial = BatchTrial(batch, limit_bytes, "failed", message="The child process gave no figures.")
    match result:
        case Finished((peak_bytes, elapsed_s)):
            trial = BatchTrial(batch, limit_bytes, "fits", peak_bytes, _TRIAL_STEPS, elapsed_s)
        case RanOut(failure) if failure.place == "host":
            trial = replace(trial, message=f"This machine's own memory ran out: {failure.text}")
        case RanOut(failure, peak_bytes):
            trial = BatchTrial(batch, limit_bytes, "ran out", peak_bytes, message=failure.text)
        case Died(how):
            trial = replace(trial, outcome="died", message=f"The child process {how}.")
        case TimedOut(after_s):
            message = f"It was not over after {format_seconds(after_s)}."
            trial = replace(trial, outcome="timed out", message=message)
        case Raised(error_type, message):
            trial = replace(trial, message=f"The step failed with {error_type}: {message}")
    return trial
