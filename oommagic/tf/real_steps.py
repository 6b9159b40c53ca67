"""One real step at a batch size, as `fit`, `predict` or the user's own loop would run it."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from oommagic.tf.samples import Constant, Rows, Sample, Task, map_leaves

Step = Callable[[], object]


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
    """Keras's function that takes an iterator, as `fit` calls it: traced once for all sizes."""

    def __init__(self, model: Any, sample: Sample) -> None:
        self._model = model
        self._sample = sample
        self.is_prepared_anew = bool(model.jit_compile)
        _build_for_strategy(model, sample)
        model.make_train_function(force=True)

    def at(self, batch: int) -> Step:
        iterator = iter(_dataset(self._model, self._sample, batch))
        return partial(self._model.train_function, iterator)


class _Prediction:
    def __init__(self, model: Any, sample: Sample) -> None:
        self._model = model
        self._sample = sample
        self.is_prepared_anew = bool(model.jit_compile)
        model.make_predict_function(force=True)
        self._trace_for_all_sizes()

    def at(self, batch: int) -> Step:
        iterator = iter(_dataset(self._model, self._sample, batch))
        data = [next(iterator) for _ in range(self._model.steps_per_execution)]
        return partial(self._model.predict_function, data)

    def _trace_for_all_sizes(self) -> None:
        """Leave the batch open, or the second size would trace once more, with an open one."""
        trace = getattr(self._model.predict_function, "get_concrete_function", None)
        if trace is not None and not _has_strategy(self._model):
            spec = _open_spec(self._sample.batch(1))
            trace([spec] * self._model.steps_per_execution)


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


def _dataset(model: Any, sample: Sample, batch: int) -> Any:
    """Give one batch again and again, under the open batch size that `fit` gives its data.

    The batch is one tensor for all steps: nothing of what makes data runs beside them.
    """
    import tensorflow as tf

    data = _tuples(sample.batch(batch))
    closed = tf.data.Dataset.from_tensors(data).repeat()
    dataset = tf.data.experimental.from_variant(
        tf.data.experimental.to_variant(closed), _open_spec(data)
    )
    return model.distribute_strategy.experimental_distribute_dataset(dataset)


def _open_spec(data: Any) -> Any:
    import tensorflow as tf

    def of(array: Any) -> Any:
        dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
        return tf.TensorSpec((None, *array.shape[1:]), dtype)

    return map_leaves(of, _tuples(data))


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
            build(data_batch=sample.batch(1))
