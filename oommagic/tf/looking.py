"""Looks into objects without running any of their code: no property, no `__len__`, no `__eq__`.

Attributes come from the object's own dictionary, items from the built-in types' own iterators.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from inspect import CO_OPTIMIZED
from itertools import islice
from types import FrameType, FunctionType, GetSetDescriptorType, MethodType, ModuleType
from typing import Any, Literal

from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

Family = Literal[
    "tensor", "variable", "keras variable", "copies", "layer", "optimizer", "metric", "dataset",
    "list", "tuple", "set", "dict", "function", "wrapper", "object", "leaf",
]  # fmt: skip

# A class is known by its own module and name, or by those of a class that it is made from.
_FAMILIES: dict[tuple[str, str], Family] = {
    ("tensorflow.python.framework.ops", "EagerTensor"): "tensor",
    ("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable"): "variable",
    ("keras.src.backend.common.variables", "KerasVariable"): "keras variable",
    ("keras.src.backend.common.variables", "Variable"): "keras variable",
    ("tensorflow.python.distribute.values", "DistributedValues"): "copies",
    ("keras.src.layers.layer", "Layer"): "layer",
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer"): "optimizer",
    ("keras.src.metrics.metric", "Metric"): "metric",
    ("tensorflow.python.types.data", "DatasetV2"): "dataset",
    ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator"): "dataset",
    ("tensorflow.python.trackable.data_structures", "ListWrapper"): "wrapper",
    ("tensorflow.python.trackable.data_structures", "_DictWrapper"): "wrapper",
    ("builtins", "list"): "list",
    ("builtins", "tuple"): "tuple",
    ("builtins", "set"): "set",
    ("builtins", "frozenset"): "set",
    ("builtins", "dict"): "dict",
    ("collections", "deque"): "list",
}
# By their numbers: a class may have a hash of its own making.
_EXACT: dict[int, Family] = {
    id(FunctionType): "function",
    **{
        id(kind): "leaf"
        for kind in (ModuleType, type, int, float, complex, bool, str, bytes, type(None))
    },
}
CONTAINERS: frozenset[Family] = frozenset({"list", "tuple", "set", "dict"})
_SEQUENCES = (list, tuple, set, frozenset, deque)
MOST_ITEMS = 20_000
"""What holds more is data: only so many items of it are looked at."""

# Attributes are looked at in objects of the notebook's own classes and in these packages'.
_LOOKED_INTO = ("__main__", "tensorflow", "keras")

# A frame's own, a variable's, and that of the call which counts them.
_REFERENCES_OF_OUR_MAKING = 3

_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_own: Callable[[type], dict[str, Any]] = type.__dict__["__dict__"].__get__
_name: Callable[[type], str] = type.__dict__["__name__"].__get__


def family_of(kind: type) -> Family:
    """Say what an object of this type is to us, by the names of the classes it is made from."""
    exact = _EXACT.get(id(kind))
    if exact is not None:
        return exact
    for made_from in _mro(kind):
        if made_from is type:  # a class, made by a class of its own
            return "leaf"
        family = _FAMILIES.get((_module(made_from), _name(made_from)))
        if family is not None:
            return family
    return "object" if _module(kind).partition(".")[0] in _LOOKED_INTO else "leaf"


def is_plain(value: object) -> bool:
    """Say whether it is a number, a text or the like: one object may be that of many names."""
    return _EXACT.get(id(type(value))) == "leaf"


def is_the_notebook_s(kind: type) -> bool:
    """Say whether the notebook itself made this class."""
    return _module(kind) == "__main__"


def attributes_of(value: object) -> dict[str, object]:
    """Give a copy of the object's own dictionary; nothing if it has none, or a pretended one."""
    for made_from in _mro(type(value)):
        entry = _own(made_from).get("__dict__")
        if entry is not None:
            held = _got(entry, value) if type(entry) is GetSetDescriptorType else None
            # A class gives no more than a view.
            return dict.copy(held) if isinstance(held, dict) else {}
    return {}


def _got(entry: GetSetDescriptorType, value: object) -> object:
    """Read a built-in attribute; a class made of another's entries has some that are that one's."""
    try:
        return entry.__get__(value)
    except TypeError:
        return None


def items_of(container: Any, family: Family) -> Iterator[tuple[object, object]]:
    """Yield keys and items of a container as they are now, by the built-in type's own iterator."""
    if family == "dict":
        return iter(list(dict.items(container)))
    return enumerate(list(_built_in(type(container)).__iter__(container)))


def _built_in(kind: type) -> Any:
    """Give the built-in class that a container's own is made from.

    No generator looks for it: what it is left with when it is dropped can lose an interrupt.
    """
    for made_from in _mro(kind):
        for known in _SEQUENCES:
            if made_from is known:
                return known
    raise TypeError(kind)


def list_items(container: object) -> list[object]:
    """Give the items of a list or tuple: Python's, Keras's or TensorFlow's."""
    family = family_of(type(container))
    if family == "wrapper":
        return list_items(unwrapped(attributes_of(container)))
    if family not in {"list", "tuple"}:
        return []
    return [item for _, item in islice(items_of(container, family), MOST_ITEMS)]


def unwrapped(attributes: Mapping[str, object]) -> object:
    """Give what TensorFlow's own list or dictionary stands for; as a list it is empty itself."""
    return attributes.get("_storage", attributes.get("_self_last_wrapped_dict_snapshot"))


def closure_of(function: object) -> Iterator[tuple[str, object]]:
    """Yield what a function keeps of the function that it was made in."""
    if type(function) is not FunctionType:
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not filled yet


def functions_of(value: object) -> Iterator[FunctionType]:
    """Yield the notebook's own functions that a value runs: itself, or its class's methods."""
    # Not `isinstance`: it asks a value that is no class for its `__class__`, which may be code.
    kind: Any = value if issubclass(type(value), type) else type(value)
    entries = [value]
    for made_from in _mro(kind):
        if is_the_notebook_s(made_from):
            entries += _own(made_from).values()
    for entry in entries:
        function = _function_in(entry)
        if type(function) is FunctionType:
            yield function


def _function_in(entry: object) -> object:
    kind = type(entry)  # compared by `is`: a class may have a comparison of its own making
    if kind is staticmethod or kind is classmethod or kind is MethodType:
        return _function_in(entry.__func__)  # type: ignore[attr-defined]  # just seen to have one
    if type(entry) is property:
        return entry.fget
    # A tf.function keeps the function that it was made of.
    return attributes_of(entry).get("_python_function", entry)


def reached_from(value: object) -> Iterator[object]:
    """Yield a value, and what the notebook's own objects and functions hold; items of each, too."""
    yield from _with_items(value)
    if type(value) is MethodType:
        yield value.__self__
    if is_the_notebook_s(type(value)):
        for held in attributes_of(value).values():
            yield from _with_items(held)
    for function in functions_of(value):
        for _, held in closure_of(function):
            yield from _with_items(held)


def _with_items(value: object) -> Iterator[object]:
    yield value
    family = family_of(type(value))
    if family in CONTAINERS and _count(value, family) <= MOST_ITEMS:
        yield from (item for _, item in items_of(value, family))


def _count(container: Any, family: Family) -> int:
    if family == "dict":
        return dict.__len__(container)
    count: int = _built_in(type(container)).__len__(container)
    return count


def locals_of(frame: FrameType) -> list[tuple[str, object]]:
    """Give the variables of a function that runs or has failed, and keep none of them.

    Up to Python 3.12 the frame keeps what it was once asked for, even if the function itself
    lets it go or somebody clears the frame.
    """
    if not frame.f_code.co_flags & CO_OPTIMIZED:  # a module or a class, with names of its own
        return []
    kept = frame.f_locals
    found = list(kept.items())
    is_ours_alone = sys.getrefcount(kept) <= _REFERENCES_OF_OUR_MAKING
    if type(kept) is dict and is_ours_alone and frame.f_trace is None:
        kept.clear()
    return found


def _module(kind: type) -> str:
    module = _own(kind).get("__module__")
    return module if type(module) is str else "builtins"
