"""What a model is, and what it holds: to compare it with itself elsewhere, or later."""

import hashlib
import pickle
import random
from typing import Any

import keras
import numpy as np


def describe(thing: Any) -> dict[str, Any]:
    """Say what a model is made of; of a function, its name."""
    if not isinstance(thing, keras.Model):
        return {"name": thing.python_function.__name__}
    optimizers = [getattr(thing, name, None) for name in ("optimizer", "first", "second")]
    return {
        "class": type(thing).__name__,
        "layers": [_layer(layer) for layer in thing.layers],
        "weights": [_weight(weight) for weight in thing.weights],
        "trainable": [weight.path for weight in thing.trainable_weights],
        "optimizers": [_optimizer(each) for each in optimizers if each is not None],
        "metrics": sorted(metric.name for metric in thing.metrics),
        "jit_compile": thing.jit_compile,
        "parameters": thing.count_params() if thing.built else None,
    }


def order_of_making(thing: Any) -> list[int]:
    """Give the places of a model's variables among each other, the oldest first."""
    if not isinstance(thing, keras.Model):
        return []
    variables = [*thing.variables, *getattr(thing.optimizer, "variables", ())]
    numbers = [int(one.value._unique_id.rpartition("_")[2]) for one in variables]
    return sorted(range(len(numbers)), key=numbers.__getitem__)


def fingerprint(thing: Any) -> str:
    """Sum up all that packing might change, to the bit."""
    state = [pickle.dumps(np.random.get_state()), repr(random.getstate())]  # noqa: NPY002 (shared)
    state += [keras.config.floatx(), keras.config.dtype_policy().name]
    if isinstance(thing, keras.Model):
        variables = [*thing.variables, *(thing.optimizer.variables if thing.optimizer else ())]
        state += [np.asarray(variable.numpy()).tobytes() for variable in variables]
        state += [sorted((name, id(value)) for name, value in vars(thing).items())]
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _layer(layer: Any) -> list[Any]:
    return [type(layer).__name__, layer.name, layer.trainable, layer.dtype_policy.name, layer.built]


def _weight(weight: Any) -> list[Any]:
    return [weight.path, list(weight.shape), str(weight.dtype)]


def _optimizer(optimizer: Any) -> list[Any]:
    shapes = [_weight(variable) for variable in optimizer.variables]
    return [type(optimizer).__name__, repr(optimizer.get_config()), shapes]
