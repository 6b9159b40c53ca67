"""What the names that a cell uses stand for: arrays, models, numbers, modules.

Nothing of the user's runs for it: only objects of NumPy's, Keras's and TensorFlow's own classes
are looked into, and those by their own dictionaries.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from math import prod
from types import ModuleType
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.recording import LayerFacts, ModelFacts, Named, NamedKind
from oommagic.tf.looking import Family, attributes_of, family_of, list_items
from oommagic.tf.notebook_names import earlier_outputs
from oommagic.tf.pipelines import pipeline_of
from oommagic.tf.walk import layers_in, weights_of

keep_builtins(globals())

_MODEL = ("keras.src.models.model", "Model")
_KINDS: dict[Family, NamedKind] = {
    "variable": "variable",
    "keras variable": "variable",
    "optimizer": "optimizer",
    "list": "list",
    "wrapper": "list",
}
_LONGEST_TEXT = 200
_BITS = re.compile(r"\d+")


def names_now(namespace: Mapping[str, object], wanted: Iterable[str]) -> dict[str, Named]:
    """Tell what these names stand for, and which names stand for modules."""
    own = {name: value for name, value in list(namespace.items()) if type(name) is str}
    modules = {
        name: Named("module", text=value.__name__)
        for name, value in own.items()
        if type(value) is ModuleType and not name.startswith("_")
    }
    return modules | {name: _named(own[name]) for name in wanted if name in own}


def outputs_now(namespace: Mapping[str, object]) -> dict[str, int]:
    """Tell which arrays IPython keeps as what earlier cells gave, in bytes of the host's memory."""
    sizes: dict[int, tuple[str, int]] = {}
    for name, value in earlier_outputs(namespace):
        found = _array(value)
        if found is not None and name.startswith("Out["):
            sizes.setdefault(id(value), (name, found.bytes))
    return {name: size for name, size in sizes.values() if size}


def _named(value: object) -> Named:
    kind = type(value)
    if kind in (int, float, bool):
        return Named("number", number=float(value))  # type: ignore[arg-type]  # just seen to be one
    if kind is str:
        return Named("text", text=str(value)[:_LONGEST_TEXT])
    if kind is ModuleType:
        return Named("module", text=value.__name__)  # type: ignore[attr-defined]  # likewise
    return _array(value) or _of_keras(value)


def _array(value: object) -> Named | None:
    """Describe a NumPy array; what lies in a file that is mapped takes no memory of its own."""
    numpy: Any = sys.modules.get("numpy")
    array: Any = value
    if numpy is None or type(value) not in (numpy.ndarray, numpy.memmap):
        return None
    is_mapped = type(value) is numpy.memmap or type(array.base) is numpy.memmap
    size = 0 if is_mapped else array.nbytes
    return Named("array", size, array.dtype.name, array.shape)


def _of_keras(value: object) -> Named:
    family = family_of(type(value))
    if family == "tensor":
        return _tensor(value)
    if family == "layer" and _is_model(type(value)):
        return Named("model", text=type(value).__name__, model=_model(value))
    if family == "dataset":
        return Named("dataset", text=type(value).__name__, pipeline=pipeline_of(value))
    count = len(list_items(value)) if family in {"list", "wrapper"} else 0
    return Named(_KINDS.get(family, "other"), text=type(value).__name__, count=count)


def _is_model(kind: type) -> bool:
    names = [(made_from.__module__, made_from.__name__) for made_from in kind.__mro__]
    return _MODEL in names


def _tensor(value: Any) -> Named:
    shape = tuple(value.shape)
    return Named("tensor", prod(shape) * value.dtype.size, value.dtype.name, shape)


def _model(model: object) -> ModelFacts:
    attributes = attributes_of(model)
    optimizer = attributes.get("optimizer")
    inner = attributes_of(optimizer)
    steps = inner.get("gradient_accumulation_steps")
    jit = attributes.get("_jit_compile")
    return ModelFacts(
        layers=tuple(
            _layer(path, layer)
            for path, layer in layers_in(model)
            if not list_items(attributes_of(layer).get("_layers"))
        ),
        optimizer=""
        if optimizer is None
        else type(inner.get("inner_optimizer", optimizer)).__name__,
        accumulates=steps if type(steps) is int else None,
        policy=_policy(attributes),
        is_compiled_by_xla=jit if type(jit) is bool else None,
    )


def _layer(path: str, layer: object) -> LayerFacts:
    attributes = attributes_of(layer)
    return LayerFacts(
        name=path,
        kind=type(layer).__name__,
        weight_bytes=sum(map(_variable_bytes, weights_of(attributes))),
        policy=_policy(attributes),
        is_trainable=attributes.get("_trainable") is not False,
    )


def _variable_bytes(variable: object) -> int:
    attributes = attributes_of(variable)
    shape: Any = attributes.get("_shape")
    dtype = attributes.get("_dtype")
    if shape is None or type(dtype) is not str:
        return 0
    bits = _BITS.search(dtype)
    return prod(map(int, shape)) * (int(bits[0]) // 8 if bits else 1)


def _policy(attributes: Mapping[str, object]) -> str:
    name = attributes_of(attributes.get("_dtype_policy")).get("_name")
    return name if type(name) is str else ""
