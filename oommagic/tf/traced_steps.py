"""A model's step as Keras has it traced, without being run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Traced:
    """A function of TensorFlow's runtime, and what keeps alive those that it calls."""

    concrete: Any
    kept: Any


def traced_training(model: Any, batches: Iterator[Any]) -> Traced:
    """Trace the step of `fit` for these batches; the model keeps the function that it had."""
    import tensorflow as tf

    before = model.train_function
    model.make_train_function(force=True)
    traced = _function_in(model.train_function)
    model.train_function = before
    if traced is None:  # it is run eagerly
        traced = tf.function(lambda iterator: model.train_step(next(iterator)))
    return Traced(traced.get_concrete_function(batches), traced)


def traced_prediction(model: Any, data: list[Any]) -> Traced:
    """Trace the step of `predict` for such batches; the model keeps the function that it had."""
    import tensorflow as tf

    before = model.predict_function
    model.make_predict_function(force=True)
    made, model.predict_function = model.predict_function, before
    traced = _function_in(made) or tf.function(made)
    return Traced(traced.get_concrete_function(data), traced)


def is_traced(called: Any) -> bool:
    """Say whether it is a tf.function."""
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    return isinstance(called, Function)


def _function_in(called: Any) -> Any:
    """Give the tf.function that Keras has made, alone or in a function around it."""
    around = getattr(called, "__closure__", None) or ()
    found = (called, *(cell.cell_contents for cell in around))
    return next(filter(is_traced, reversed(found)), None)
