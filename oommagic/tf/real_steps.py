"""One real step at a batch size, as `fit`, `predict` or the user's own loop would run it."""

import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any, Protocol

from oommagic.tf.samples import Constant, Rows, Sample, Task, leaves, map_leaves
from oommagic.tf.step_graphs import StepsInGraphs
from oommagic.tf.traced_steps import Traced, traced_prediction, traced_training

Step = Callable[[], object]

_FUNCTIONAL = "keras.src.models.functional"
_TRAINER = "keras.src.backend.tensorflow.trainer"
_SOME = 2
"""A batch that no metric takes for a single label."""
_MANY_VARIABLES = 150
_FLOAT_BYTES = 4


class Steps(Protocol):
    """Steps of one model or function at any batch size."""

    is_open: bool
    """Whether it is traced for batches of any size."""
    is_prepared_anew: bool
    """Whether each new batch size is traced or compiled again."""

    def at(self, batch: int) -> Step:
        """Make a batch, and give what runs one step on it."""

    def trace(self, batch: int, *, is_open: bool) -> bool:
        """Trace it for batches of any size, or for that one alone; say whether that can be.

        What cannot be traced anew may be open as it is: XLA says so.
        """


def steps_of(subject: Any, sample: Sample, task: Task) -> Steps:
    """Choose how the subject's steps are run."""
    if isinstance(subject, StepsInGraphs):
        return _InGraphs(subject, sample, task)
    if task == "training":
        _build_for_strategy(subject, sample)
        make = subject.make_train_function
        step_on = partial(_training_step, sample)
        return _OfModel(subject, sample, make, step_on, traced_training)
    if task == "prediction":
        make = subject.make_predict_function
        return _OfModel(subject, sample, make, _prediction_step, _traced_prediction)
    return _Own(subject, sample)


class _OfModel:
    """Keras's own function for a task, called as Keras calls it; see `is_traced_open`."""

    def __init__(
        self,
        model: Any,
        sample: Sample,
        make_function: Callable[..., object],
        step_on: Callable[[Any, Iterator[Any]], Step],
        trace_on: Callable[[Any, Iterator[Any]], Traced],
    ) -> None:
        self.is_open = is_traced_open(model)
        self.is_prepared_anew = not self.is_open or bool(model.jit_compile)
        self._model = model
        self._sample = sample
        self._make_function = partial(make_function, force=True)
        self._step_on = step_on
        self._trace_on = trace_on
        self._traced: list[Traced] = []
        """Kept, or TensorFlow would forget them."""
        self._make_function()

    def at(self, batch: int) -> Step:
        if not self.is_open:
            self._make_function()
        return self._step_on(self._model, self._batches(batch, is_open=self.is_open))

    def trace(self, batch: int, *, is_open: bool) -> bool:
        try:
            batches = self._batches(batch, is_open=is_open)
            self._traced.append(self._trace_on(self._model, batches))
        except Exception:  # noqa: BLE001 (the user's code may raise anything of an open size)
            return False
        return True

    def _batches(self, batch: int, *, is_open: bool) -> Iterator[Any]:
        return iterator_of(self._model, self._sample, batch, is_open=is_open)


def _training_step(sample: Sample, model: Any, batches: Iterator[Any]) -> Step:
    """Give a step of `fit`, whose function takes an iterator."""

    def step() -> object:
        # A step of the user's own may train other weights: it makes its variables itself.
        if type(model).train_step.__module__ == _TRAINER and model.built:
            _make_variables(model, sample)
        return model.train_function(batches)

    return step


def _make_variables(model: Any, sample: Sample) -> None:
    """Make the variables that a first step makes: one that makes any is traced twice.

    For a large model that takes longer than all else. A function makes them, as that step would:
    TensorFlow then gives all of them their first values at once.
    """
    import tensorflow as tf

    def make() -> None:  # called twice: the second time nothing is left to make
        for build in _builds(model, sample):
            build()

    if next(_builds(model, sample), None) is not None:
        tf.function(make, autograph=False)()
        gc.collect()  # the function's constants go now, and not amid a later step


def _builds(model: Any, sample: Sample) -> Iterator[Callable[[], object]]:
    """Give what makes an optimizer's variables and the metrics', where they are not made yet."""
    if not model.optimizer.built:
        yield partial(model.optimizer.build, model.trainable_weights)
    metrics, functional = getattr(model, "_compile_metrics", None), _functional(model)
    if metrics is None or metrics.built or functional is None or len(functional.outputs) != 1:
        return
    data = _as_fit_gives_it(sample.batch(_SOME))
    if isinstance(data, tuple) and len(data) > 1 and len(functional.outputs[0].shape) > 1:
        yield partial(metrics.build, data[1], functional.outputs[0])


def _prediction_step(model: Any, batches: Iterator[Any]) -> Step:
    """Give a step of `predict`, whose function takes batches."""
    return partial(model.predict_function, data_of(model, batches))


def _traced_prediction(model: Any, batches: Iterator[Any]) -> Traced:
    return traced_prediction(model, data_of(model, batches))


class _Own:
    """A function of the user's: what it is given is made before it is called."""

    is_open = False
    is_prepared_anew = True

    def __init__(self, function: Any, sample: Sample) -> None:
        self._function = function
        self._sample = sample

    def at(self, batch: int) -> Step:
        arguments = map_leaves(partial(_as_given, batch=batch), self._sample.content)
        return partial(self._function, *arguments)

    def trace(self, batch: int, *, is_open: bool) -> bool:  # noqa: ARG002 (that is the user's)
        return is_open


class _InGraphs:
    """Graphs of steps whose code is elsewhere, on the batches that it would be given."""

    def __init__(self, subject: StepsInGraphs, sample: Sample, task: Task) -> None:
        self.is_open = subject.is_open
        self.is_prepared_anew = subject.is_prepared_anew
        self._subject = subject
        self._sample = sample
        self._task = task

    def at(self, batch: int) -> Step:
        given = self._given(batch)
        return lambda: self._subject.run(batch, _flat(given))

    def trace(self, batch: int, *, is_open: bool) -> bool:  # noqa: ARG002 (its code is elsewhere)
        return is_open

    def _given(self, batch: int) -> Any:
        if self._task == "step":
            return list(arrays_of_step(self._sample, batch))
        batches = iterator_of(self._subject, self._sample, batch, is_open=self.is_open)
        return batches if self._task == "training" else data_of(self._subject, batches)


def _flat(given: Any) -> list[Any]:
    """Give the tensors that a function of TensorFlow's runtime takes for its arguments."""
    import tensorflow as tf

    parts = tf.nest.flatten(given, expand_composites=True)
    return [tf.convert_to_tensor(part) for part in parts]


def arrays_of_step(sample: Sample, batch: int) -> Iterator[Any]:
    """Give those arguments of a function that are arrays, as it is given them."""
    for part in leaves(sample.content):
        if is_array_of_step(part):
            yield _as_given(part, batch)


def is_array_of_step(part: object) -> bool:
    """Say whether a part of a sample is an array, not something else that a function is given."""
    return isinstance(part, Rows | Constant)


def _as_given(part: Any, batch: int) -> Any:
    import tensorflow as tf

    if not is_array_of_step(part):
        return part
    values = part.repeated(batch) if isinstance(part, Rows) else part.values
    return tf.constant(values) if part.is_tensor else values


def is_traced_open(model: Any) -> bool:
    """Say whether a model's function is traced once, for batches of any size.

    Else it is traced for each size, with the size in its shapes, as where all batches of an epoch
    have one size: TensorFlow then leaves out what an open size takes. That is a tenth of what some
    recurrent layers take; large models have few of them, and take too long to be traced again.
    """
    return len(model.variables) > _MANY_VARIABLES


def given_out_bytes(model: Any) -> int:
    """Add up what the layers give out for one sample; 0 where Keras does not know beforehand."""
    if isinstance(model, StepsInGraphs):
        return model.given_out_bytes
    functional = _functional(model)
    return 0 if functional is None else sum(map(_given_out_bytes, functional.operations))


def _functional(model: Any) -> Any | None:
    """Give the graph of layers that a model is, or that a sequential one is made of."""
    functional = getattr(model, "_functional", None) or model
    kind = getattr(sys.modules.get(_FUNCTIONAL), "Functional", None)
    return functional if kind is not None and isinstance(functional, kind) else None


def _given_out_bytes(operation: Any) -> int:
    nodes = operation._inbound_nodes  # noqa: SLF001 (Keras has no other way)
    tensors = [tensor for node in nodes for tensor in node.output_tensors]
    values = sum(prod(side or 1 for side in tensor.shape[1:]) for tensor in tensors)
    return _FLOAT_BYTES * int(values) + given_out_bytes(operation)


def data_of(model: Any, batches: Iterator[Any]) -> list[Any]:
    """Give the batches that a model's function for predictions takes at once."""
    return [next(batches) for _ in range(model.steps_per_execution)]


def iterator_of(model: Any, sample: Sample, batch: int, *, is_open: bool) -> Iterator[Any]:
    """Give one batch again and again; `is_open` leaves its size out of its shapes.

    The batch is one tensor for all steps: nothing of what makes data runs beside them.
    """
    import tensorflow as tf

    data = _as_fit_gives_it(sample.batch(batch))
    dataset = tf.data.Dataset.from_tensors(data).repeat()
    if is_open:
        closed = tf.data.experimental.to_variant(dataset)
        dataset = tf.data.experimental.from_variant(closed, _open_spec(data))
    if not isinstance(model, StepsInGraphs):
        dataset = model.distribute_strategy.experimental_distribute_dataset(dataset)
    batches: Iterator[Any] = iter(dataset)
    return batches


def _open_spec(data: Any) -> Any:
    import tensorflow as tf

    def of(array: Any) -> Any:
        dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
        return tf.TensorSpec((None, *array.shape[1:]), dtype)

    return map_leaves(of, data)


def _as_fit_gives_it(content: Any) -> Any:
    """Take inputs that are alone out of their tuple: a step of the user's own counts on it."""
    is_alone = len(content) == 1 and not isinstance(content[0], list | tuple)
    return _tuples(content[0] if is_alone else content)


def _tuples(content: Any) -> Any:
    """Make tuples of lists, as `fit` does: a data set would make one tensor of a list."""
    if isinstance(content, dict):
        return {key: _tuples(each) for key, each in content.items()}
    if isinstance(content, list | tuple):
        return tuple(_tuples(each) for each in content)
    return content


def has_strategy(model: Any) -> bool:
    """Say whether a model was made in the scope of a strategy."""
    return getattr(model, "_distribute_strategy", None) is not None


def _build_for_strategy(model: Any, sample: Sample) -> None:
    """Make what is missing within the strategy's scope, as `fit` does before its first step."""
    build = getattr(model, "_symbolic_build", None)
    if build is not None and has_strategy(model):
        with model.distribute_strategy.scope():
            build(data_batch=_as_fit_gives_it(sample.batch(1)))
