"""Trying a model's steps in the user's own kernel, and leaving it to the bit as it was.

A step changes variables; the first one also makes some, and functions, and names. Which attributes
Keras changes for that differs from version to version. So all that a model is made of is walked
through, as the Python objects that they are: each one's attributes and items are noted, by
reference, and put back; what is new is in none of them then, and goes. Variables keep their
identity: their values are copied to the host meanwhile, one variable at a time.

No code of the user's runs for that. Arrays and data sets of the user's are not touched.
"""

import gc
import random
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.tf import context
from oommagic.tf.undoing import Undoing

keep_builtins(globals())

# What holds more is data, not a part of a model.
_MOST_ITEMS = 100_000

_KERAS_STATE = "keras.src.backend.common.global_state"
_GENERATORS = "tensorflow.python.ops.stateful_random_ops"
_TENSORFLOW = ("tensorflow", "tensorboard", "google", "numpy", "ml_dtypes", "h5py")
_NOT_LOOKED_INTO = frozenset(_TENSORFLOW) | (sys.stdlib_module_names - {"__main__"})
# Of TensorFlow's own objects those that a step changes: a function's traces, a generator's state.
_LOOKED_INTO_ALL_THE_SAME = frozenset(
    {
        ("tensorflow.python.eager.polymorphic_function.polymorphic_function", "Function"),
        ("tensorflow.python.eager.polymorphic_function.tracing_compilation", "TracingOptions"),
        ("tensorflow.core.function.polymorphism.function_cache", "FunctionCache"),
        ("tensorflow.core.function.polymorphism.type_dispatch", "TypeDispatchTable"),
        ("tensorflow.core.function.capture.capture_container", "FunctionCaptures"),
        (_GENERATORS, "Generator"),
        ("tensorflow.python.trackable.data_structures", "ListWrapper"),
        ("tensorflow.python.module.module", "Module"),
        ("tensorflow.python.checkpoint.checkpoint", "Checkpoint"),
        ("weakref", "WeakKeyDictionary"),
    }
)
_SEEDS = ("_seed", "_rng")
_VARIABLE = ("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable")
_COPIES = ("tensorflow.python.distribute.values", "DistributedValues")
_DICT_WRAPPER = ("tensorflow.python.trackable.data_structures", "_DictWrapper")
_FUNCTION = ("tensorflow.python.eager.polymorphic_function.polymorphic_function", "Function")

PutBack = Callable[[], object]


def left_as_it_was(*subjects: object) -> Undoing:
    """Within `with`, models and steps may be used; afterwards they are as they were.

    So is what draws random numbers and what gives names to layers. An interrupt or an error does
    not come in between: what began to be put back is put back.
    """
    put_back = _Noted(subjects).put_back
    # Last, what was made meanwhile and is held in circles goes too: it may fill the device.
    return Undoing(gc.collect, put_back) if subjects else Undoing(put_back)


class _Noted:
    """How everything is at this moment."""

    def __init__(self, subjects: tuple[object, ...]) -> None:
        self._seen: dict[int, object] = {}  # kept alive, or another would get its number
        self._put_back: list[PutBack] = []
        keras_state = getattr(sys.modules.get(_KERAS_STATE), "GLOBAL_STATE_TRACKER", None)
        attributes = [] if keras_state is None else [vars(keras_state)]
        self._walk([*attributes, *subjects])
        self._put_back += _random_states()

    def put_back(self) -> None:
        """Make everything as it was; twice does no harm."""
        for put_back in self._put_back:
            put_back()

    def _walk(self, found: list[object]) -> None:
        while found:
            thing = found.pop()
            if id(thing) not in self._seen:
                self._seen[id(thing)] = thing
                found += self._note(thing)

    def _note(self, thing: Any) -> Iterator[object]:
        """Note what a thing holds, and give that."""
        kind = type(thing)
        if kind in {MethodType, partial, FunctionType}:
            return _what_a_function_uses(thing)
        if issubclass(kind, dict | list | set | deque | tuple | frozenset):
            return self._note_items(thing)
        if _is_a(kind, _COPIES):
            return iter(thing.values)
        if _is_a(kind, _VARIABLE):
            self._put_back += _value_of(thing)
        elif kind.__module__ == "numpy.random._generator":
            bits = thing.bit_generator
            self._put_back.append(partial(setattr, bits, "state", bits.state))
        elif _is_a(kind, _DICT_WRAPPER):  # pretends to be what it wraps
            return chain(self._note_attributes(thing), [thing.__wrapped__])
        elif _is_looked_into(kind):
            return chain(self._note_attributes(thing), self._note_slots(thing))
        return iter(())

    def _note_items(self, thing: Any) -> Iterator[object]:
        if len(thing) > _MOST_ITEMS:
            return
        for kind, put_back in _CONTAINERS:
            if isinstance(thing, kind):
                kept = list(kind.items(thing) if issubclass(kind, dict) else kind.__iter__(thing))
                self._put_back.append(partial(put_back, thing, kept))
                break
        yield from dict.values(thing) if isinstance(thing, dict) else tuple(thing)
        yield from self._note_attributes(thing)

    def _note_slots(self, thing: Any) -> Iterator[object]:
        for made_from in type(thing).__mro__:
            for slot in vars(made_from).values() if "__slots__" in vars(made_from) else ():
                if type(slot) is MemberDescriptorType and hasattr(thing, slot.__name__):
                    value = slot.__get__(thing)
                    self._put_back.append(partial(slot.__set__, thing, value))
                    yield value

    def _note_attributes(self, thing: Any) -> Iterator[object]:
        try:
            attributes = object.__getattribute__(thing, "__dict__")
        except AttributeError:
            return
        if type(attributes) is dict:
            kept = dict(attributes)
            self._put_back.append(partial(_put_items_back, attributes, list(kept.items())))
            yield from kept.values()
        # A method that is a tf.function keeps its traces with the class.
        if not type(thing).__module__.startswith(("keras.", "tensorflow.")):
            for made_from in type(thing).__mro__:
                yield from (
                    each for each in vars(made_from).values() if _is_a(type(each), _FUNCTION)
                )


def _put_items_back(thing: Any, items: list[tuple[Any, Any]]) -> None:
    dict.clear(thing)
    dict.update(thing, items)


def _put_ordered_items_back(thing: Any, items: list[tuple[Any, Any]]) -> None:
    OrderedDict.clear(thing)
    OrderedDict.update(thing, items)


def _put_list_back(thing: Any, items: list[Any]) -> None:
    list.__setitem__(thing, slice(None), items)


def _put_set_back(thing: Any, items: list[Any]) -> None:
    set.clear(thing)
    set.update(thing, items)


def _put_deque_back(thing: Any, items: list[Any]) -> None:
    deque.clear(thing)
    deque.extend(thing, items)


_CONTAINERS: tuple[tuple[Any, Callable[[Any, list[Any]], None]], ...] = (
    (OrderedDict, _put_ordered_items_back),
    (dict, _put_items_back),
    (list, _put_list_back),
    (set, _put_set_back),
    (deque, _put_deque_back),
)


def _value_of(variable: Any) -> Iterator[PutBack]:
    """Copy a variable's value to the host; one without a value has none to put back."""
    if not bool(variable.is_initialized()):
        return
    value = variable.numpy()
    yield partial(variable.assign, value, read_value=False)


def _random_states() -> Iterator[PutBack]:
    yield partial(random.setstate, random.getstate())
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield partial(numpy.random.set_state, numpy.random.get_state())
    now: Any = context.current_context()
    if now is not None:
        yield from _seeds_of_operations(now)
    generators = sys.modules.get(_GENERATORS)
    if generators is not None:
        generator = generators.global_generator
        yield partial(setattr, generators, "global_generator", generator)
        if generator is not None:
            yield from _value_of(generator.state)


def _seeds_of_operations(now: Any) -> Iterator[PutBack]:
    """The seed for all operations, and what their own are drawn from once there is one."""
    attributes = vars(now)
    kept = {name: attributes[name] for name in _SEEDS if name in attributes}
    yield partial(attributes.update, kept)
    for name in set(_SEEDS) - set(kept):
        yield partial(attributes.pop, name, None)
    if "_rng" in kept:
        yield partial(kept["_rng"].setstate, kept["_rng"].getstate())


def _what_a_function_uses(function: Any) -> Iterator[object]:
    """Give what a function or method of the user's was made with: state may be in there."""
    if isinstance(function, MethodType):
        yield from (function.__self__, function.__func__)
    elif isinstance(function, partial):
        yield from (function.func, function.args, function.keywords)
    elif not _is_elsewhere(function.__module__ or ""):
        yield from (function.__defaults__, function.__kwdefaults__, vars(function))
        for cell in function.__closure__ or ():
            yield from _content_of(cell)
        for name in _names_used(function.__code__):
            yield function.__globals__.get(name)


def _content_of(cell: Any) -> Iterator[object]:
    try:
        yield cell.cell_contents
    except ValueError:
        return  # not filled yet


def _names_used(code: Any) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if type(constant) is type(code):
            yield from _names_used(constant)


def _is_looked_into(kind: type) -> bool:
    if issubclass(kind, type | ModuleType | BuiltinFunctionType | weakref.ref):
        return False
    module = kind.__module__
    if not _is_elsewhere(module):
        return True
    return any(
        (each.__module__, each.__name__) in _LOOKED_INTO_ALL_THE_SAME for each in kind.__mro__
    )


def _is_elsewhere(module: str) -> bool:
    return module.partition(".")[0] in _NOT_LOOKED_INTO


def _is_a(kind: type, named: tuple[str, str]) -> bool:
    return any((each.__module__, each.__name__) == named for each in kind.__mro__)
