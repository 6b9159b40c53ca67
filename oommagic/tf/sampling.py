"""The sample that a plan's steps are tried with: from the user's batch, or from the model's shapes.

Runs in the user's kernel. Nothing of the user's is copied but a few rows, and what a function of
theirs draws at random is drawn again by their own code.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from types import GeneratorType
from typing import Any

from oommagic.errors import PlanError
from oommagic.tf import made_up
from oommagic.tf.left_as_it_was import left_as_it_was
from oommagic.tf.samples import (
    MOST_ROWS,
    Constant,
    Rows,
    Sample,
    Task,
    from_arrays,
    from_function,
    is_array,
    leaves,
    map_leaves,
)

_MOST_ELEMENTS = 16
_LONGEST_S = 3.0

_DATASET = "tensorflow.python.types.data"


def is_keras_model(subject: object) -> bool:
    """Say whether it is a model of Keras 3."""
    kind = getattr(sys.modules.get("keras"), "Model", None)
    return kind is not None and isinstance(subject, kind)


def is_step(subject: object) -> bool:
    """Say whether it can only be a training step: what can be called, but is no model at all.

    Models of Keras 2 can be called too; that would be the step of a prediction.
    """
    is_model = is_keras_model(subject) or hasattr(subject, "fit")
    return callable(subject) and not is_model


def sample_of(subject: Any, batch: Any, task: Task) -> Sample:
    """Take a few rows of a batch, or make some up from the shapes of a built Keras model.

    `batch` is arrays, tensors, tuples, lists and dicts of them, a `tf.data.Dataset` of batches, or
    a function that makes a batch of a given size.
    """
    if task == "step":
        return _of_step(subject, batch)
    _check_model(subject, task)
    if batch is None:
        _check_built(subject)
        return made_up.sample_of(subject, task)
    sample = _given(batch)
    if not _is_dataset(batch):
        sample = replace(sample, content=map_leaves(_as_fit_takes_it, sample.content))
    content = sample.content if isinstance(sample.content, tuple) else (sample.content,)
    content = content[:1] if task == "prediction" else _without_nones(content)
    sample = replace(sample, content=content)
    _check_arrays(content)
    _check_fits(subject, sample, task)
    return sample


def _of_step(subject: Any, batch: Any) -> Sample:
    if not callable(subject):
        raise PlanError(
            f"{type(subject).__name__} cannot be planned: pass a compiled Keras model, or a "
            "function that makes one training step."
        )
    if batch is None:
        raise PlanError(
            "What the step is called with is not known: pass its arguments, e.g. "
            "oommagic.plan(step, batch=(x, y)), or a function that makes them for n samples."
        )
    sample = _given(batch)
    is_arguments = isinstance(sample.content, tuple)
    return sample if is_arguments else replace(sample, content=(sample.content,))


def _given(batch: Any) -> Sample:
    if _is_dataset(batch):
        return _from_dataset(batch)
    if isinstance(batch, GeneratorType):
        raise PlanError(
            "A generator's first batch cannot be looked at without taking it away: pass one of "
            "its batches, or a function that makes a batch of n samples."
        )
    data_set = getattr(getattr(sys.modules.get("keras"), "utils", None), "PyDataset", None)
    if data_set is not None and isinstance(batch, data_set):
        return _from_batches(_first(map(batch.__getitem__, _numbers(batch)), _MOST_ELEMENTS))
    if _is_function(batch):
        with left_as_it_was():
            return from_function(batch)
    return from_arrays(batch)


def _is_function(batch: Any) -> bool:
    is_structure = isinstance(batch, tuple | list | dict)
    return callable(batch) and not is_structure and not is_array(batch)


def _is_dataset(batch: Any) -> bool:
    kind = getattr(sys.modules.get(_DATASET), "DatasetV2", None)
    return kind is not None and isinstance(batch, kind)


def _from_dataset(dataset: Any) -> Sample:
    """Look at the first batches, and keep rows of the one with the largest samples."""
    is_any_length = _check_spec(dataset.element_spec)
    return _from_batches(_first(dataset, _MOST_ELEMENTS if is_any_length else 1))


def _from_batches(batches: Iterator[Any]) -> Sample:
    found: Sample | None = None
    lengths = set()
    with left_as_it_was():
        for element in batches:
            sample = from_arrays(element)
            lengths.add(sample.row_bytes)
            if found is None or sum(sample.row_bytes) > sum(found.row_bytes):
                found = sample
    if found is None:
        raise PlanError("The dataset is empty: pass one that gives at least one batch.")
    if len(lengths) > 1:
        shapes = ", ".join(
            str(part.values.shape[1:]) for part in leaves(found.content) if isinstance(part, Rows)
        )
        note = f"The samples differ in size: planned for the largest that was seen, {shapes}."
        return replace(found, notes=(note,))
    return found


def _numbers(data_set: Any) -> Iterable[int]:
    """Give the numbers of a PyDataset's batches, of which there may be no end."""
    return count() if data_set.num_batches is None else range(data_set.num_batches)


def _first(dataset: Iterable[Any], most: int) -> Iterator[Any]:
    until_s = time.monotonic() + _LONGEST_S
    for number, element in enumerate(dataset, start=1):
        yield element
        if number >= most or time.monotonic() > until_s:
            return


def _check_spec(spec: Any) -> bool:
    """Refuse what has no rows; say whether samples may differ in size."""
    is_any_length = False
    for part in leaves(spec):
        shape = getattr(part, "shape", None)
        if type(part).__name__ != "TensorSpec" or shape is None:
            kind = type(part).__name__.removesuffix("Spec")
            raise PlanError(
                f"The dataset gives a {kind}, which a plan cannot take a few rows of: pass dense "
                "batches, e.g. after ds.map(...) with to_tensor() or tf.sparse.to_dense."
            )
        if shape.rank == 0:
            raise PlanError("The dataset gives single samples: batch it, e.g. ds.batch(8).")
        is_any_length |= shape.rank is None or None in shape.as_list()[1:]
    return is_any_length


def _as_fit_takes_it(part: Any) -> Any:
    """Give floats the precision that Keras gives them on the way into `fit`."""
    import numpy as np

    if not isinstance(part, Rows) or not np.issubdtype(part.values.dtype, np.floating):
        return part
    precision = sys.modules["keras"].config.floatx()
    return replace(part, values=part.values.astype(precision, copy=False))


def _check_arrays(content: tuple[Any, ...]) -> None:
    """Refuse what has no rows beside what has: all of it would come with each batch."""
    for part in leaves(content):
        if not (part is None or isinstance(part, Rows | Constant)):
            raise PlanError(
                f"The batch has something in it that is no array ({type(part).__name__}): pass "
                "dense arrays or tensors, or a tf.data.Dataset of them."
            )


def _without_nones(content: tuple[Any, ...]) -> tuple[Any, ...]:
    while content and content[-1] is None:
        content = content[:-1]
    return content


def _check_model(model: Any, task: Task) -> None:
    if not is_keras_model(model):
        other = "a step of your own is planned without `predict`"
        raise PlanError(
            f"{type(model).__name__} is no model of Keras 3: pass a compiled Keras model, "
            f"{'or a function that makes one training step' if task == 'training' else other}."
        )
    if task == "training" and not model.compiled:
        raise PlanError(
            f"The model `{model.name}` is not compiled: call model.compile(optimizer, loss) first."
        )
    if task == "training" and _lacks_loss(model):
        raise PlanError(
            f"The model `{model.name}` has no loss: give one, as in "
            "model.compile(optimizer, loss='mse')."
        )


def _check_built(model: Any) -> None:
    if not model.built:
        raise PlanError(
            f"The model `{model.name}` is not built, so its shapes are not known: pass a batch, "
            "e.g. oommagic.plan(model, (x[:8], y[:8]))."
        )


def _lacks_loss(model: Any) -> bool:
    """Say whether Keras would refuse to train; a loss may also be added by a layer's own code."""
    if model.loss is not None or not _has_keras_own(model, "train_step", "compute_loss"):
        return False
    layers = [model, *model._flatten_layers(include_self=False)]  # noqa: SLF001 (no public way)
    return not any(_may_add_loss(layer) for layer in layers)


def _may_add_loss(layer: Any) -> bool:
    return (
        not type(layer).__module__.startswith("keras.")
        or type(layer).__name__ == "ActivityRegularization"
        or getattr(layer, "activity_regularizer", None) is not None
        or any(getattr(weight, "regularizer", None) is not None for weight in layer.weights)
    )


def _has_keras_own(model: Any, *methods: str) -> bool:
    return all(getattr(type(model), name).__module__.startswith("keras.") for name in methods)


def _check_fits(model: Any, sample: Sample, task: Task) -> None:
    inputs: Any = getattr(model, "inputs", None) or ()
    given = [part for part in leaves(sample.content[0]) if isinstance(part, Rows)]
    made_up.check_any_batch(inputs)
    _check_number(model, len(inputs), len(list(leaves(sample.content[0]))))
    if len(inputs) == len(given) == 1:
        _check_has_batch_axis(tuple(inputs[0].shape), given[0].values.shape)
    own_labels = _has_keras_own(model, "train_step", "compute_loss") and model.loss is not None
    if task == "training" and len(sample.content) == 1 and own_labels:
        raise PlanError(
            "The batch has no labels: pass both, e.g. oommagic.plan(model, (x[:8], y[:8]))."
        )


def _check_number(model: Any, takes: int, given: int) -> None:
    """Refuse fewer inputs than the model has; a step of the user's own may make the others."""
    if takes > given and _has_keras_own(model, "train_step", "predict_step"):
        raise PlanError(
            f"The model takes {takes} inputs, and the batch has {given}: pass them together, e.g. "
            "oommagic.plan(model, ([a[:8], b[:8]], y[:8]))."
        )


def _check_has_batch_axis(wanted: Sequence[int | None], given: Sequence[int]) -> None:
    sample = wanted[1:]
    if len(given) == 1 or len(given) != len(sample):
        return
    # The first side was cut to a few rows.
    is_first = sample[0] is None or min(sample[0], MOST_ROWS) == given[0]
    if is_first and all(a in {None, b} for a, b in zip(sample[1:], given[1:], strict=True)):
        raise PlanError(
            "The batch seems to be a single sample: the model takes several at once, in the "
            f"shape {tuple(wanted)}."
        )
