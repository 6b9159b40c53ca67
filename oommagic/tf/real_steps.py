"""One real step at a batch size, as `fit`, `predict` or the user's own loop would run it."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Protocol

from oommagic.tf.samples import Constant, Rows, Sample, Task, map_leaves

Step = Callable[[], object]

_MANY_VARIABLES = 150
_FLOAT_BYTES = 4


class Steps(Protocol):
    """Steps of one model or function at any batch size."""

    is_prepared_anew: bool
    """Whether each new batch size is traced or compiled again."""

    def at(self, batch: int) -> Step:
        """Make a batch, and give what runs one step on it."""


def steps_of(subject: Any, sample: Sample, task: Task) -> Steps:
    """Choose how the subject's steps are run."""
    if task == "training":
        return _Training(subject, sample)
    return _Prediction(subject, sample) if task == "prediction" else _Own(subject, sample)


class _Training:
    """Keras's function that takes an iterator, as `fit` calls it; see `_is_traced_open`."""

    def __init__(self, model: Any, sample: Sample) -> None:
        self.is_prepared_anew = not _is_traced_open(model) or bool(model.jit_compile)
        self._model = model
        self._sample = sample
        _build_for_strategy(model, sample)
        model.make_train_function(force=True)

    def at(self, batch: int) -> Step:
        if not _is_traced_open(self._model):
            self._model.make_train_function(force=True)
        iterator = iter(_dataset(self._model, self._sample, batch))
        return partial(self._model.train_function, iterator)


class _Prediction:
    """Keras's function that takes batches, as `predict` calls it; traced likewise."""

    def __init__(self, model: Any, sample: Sample) -> None:
        self.is_prepared_anew = not _is_traced_open(model) or bool(model.jit_compile)
        self._model = model
        self._sample = sample
        model.make_predict_function(force=True)

    def at(self, batch: int) -> Step:
        if not _is_traced_open(self._model):
            self._model.make_predict_function(force=True)
        iterator = iter(_dataset(self._model, self._sample, batch))
        data = [next(iterator) for _ in range(self._model.steps_per_execution)]
        return partial(self._model.predict_function, data)


class _Own:
    """A function of the user's: what it is given is made before it is called."""

    is_prepared_anew = True

    def __init__(self, function: Any, sample: Sample) -> None:
        self._function = function
        self._sample = sample

    def at(self, batch: int) -> Step:
        arguments = map_leaves(partial(_as_given, batch=batch), self._sample.content)
        return partial(self._function, *arguments)


def _as_given(part: Any, batch: int) -> Any:
    import tensorflow as tf

    if not isinstance(part, Rows | Constant):
        return part
    values = part.repeated(batch) if isinstance(part, Rows) else part.values
    return tf.constant(values) if part.is_tensor else values


def _is_traced_open(model: Any) -> bool:
    """Say whether a model's function is traced once, for batches of any size.

    Else it is traced for each size, with the size in its shapes, as where all batches of an epoch
    have one size: TensorFlow then leaves out what an open size takes. That is a tenth of what some
    recurrent layers take; large models have few of them, and take too long to be traced again.
    XLA puts the size in itself, and for an open function it tells of sizes that need not run.
    """
    return bool(model.jit_compile) or len(model.variables) > _MANY_VARIABLES


def given_out_bytes(model: Any) -> int:
    """Add up what the layers give out for one sample; 0 where Keras does not know beforehand."""
    from keras.src.models.functional import Functional

    functional = getattr(model, "_functional", None) or model
    known = functional.operations if isinstance(functional, Functional) else ()
    return sum(map(_given_out_bytes, known))


def _given_out_bytes(operation: Any) -> int:
    nodes = operation._inbound_nodes  # noqa: SLF001 (Keras has no other way)
    tensors = [tensor for node in nodes for tensor in node.output_tensors]
    values = sum(prod(side or 1 for side in tensor.shape[1:]) for tensor in tensors)
    return _FLOAT_BYTES * int(values) + given_out_bytes(operation)


def _dataset(model: Any, sample: Sample, batch: int) -> Any:
    """Give one batch again and again.

    The batch is one tensor for all steps: nothing of what makes data runs beside them.
    """
    import tensorflow as tf

    data = _as_fit_gives_it(sample.batch(batch))
    dataset = tf.data.Dataset.from_tensors(data).repeat()
    if _is_traced_open(model):
        closed = tf.data.experimental.to_variant(dataset)
        dataset = tf.data.experimental.from_variant(closed, _open_spec(data))
    return model.distribute_strategy.experimental_distribute_dataset(dataset)


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


def _has_strategy(model: Any) -> bool:
    return getattr(model, "_distribute_strategy", None) is not None


def _build_for_strategy(model: Any, sample: Sample) -> None:
    """Make what is missing within the strategy's scope, as `fit` does before its first step."""
    build = getattr(model, "_symbolic_build", None)
    if build is not None and _has_strategy(model):
        with model.distribute_strategy.scope():
            build(data_batch=_as_fit_gives_it(sample.batch(1)))
