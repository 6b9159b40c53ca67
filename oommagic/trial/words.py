"""How objects of Keras and TensorFlow are told to a child: by what they are, not by their values.

All private names of theirs that this takes stand here and in `rebuild`. Neither is imported: an
object of theirs can only come up where they are.
"""

import sys
from collections.abc import Callable
from math import prod
from types import FunctionType, MethodType
from typing import Any, Protocol, cast

from oommagic.errors import CannotTravelError
from oommagic.trial import datasets, rebuild, rebuild_data

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

# A tensor up to here keeps its values: counters, rates and flags steer a step.
_SMALL_BYTES = 4096

# What TensorFlow notes about an object for its checkpoints; it does so anew.
_FOR_CHECKPOINTS = "_self_"
_SETS_ATTRIBUTES = "_self_setattr_tracking"
# What Keras has made of a model to run it: functions that were traced.
_TRACED = ("train_function", "test_function", "predict_function")
_WRAPPED_BY_KERAS = "Layer.__new__."

_OPTIONS = {
    "input_signature": "input_signature",
    "autograph": "_autograph",
    "jit_compile": "_jit_compile",
    "reduce_retracing": "_reduce_retracing",
    "experimental_autograph_options": "_experimental_autograph_options",
}
_CONFIG = "tensorflow.python.framework.config"
_OF_ITS_PROCESS = ("resource", "variant")


class Packing(Protocol):
    """What a word needs to know of the parcel that it goes into."""

    values: bool
    """Whether large tensors keep their values too."""

    is_for_cell: bool
    """Whether a cell is to run there: with its data, and as if nothing had moved."""

    def later(self, thing: object, items: object, state: dict[str, Any]) -> None:
        """Send what an empty object holds when all else is sent."""

    def large_array(self, array: Any) -> "Reduced | None":
        """Have a large array read from a file; None for one that is not."""

    def stood_in_for(self, dataset: Any) -> None:
        """Take note of a dataset in whose place another one goes."""


def _elsewhere(packing: Packing) -> str:
    """Say why something cannot travel that only one process has."""
    return f"it is this process's own. Have the {_user(packing)} make it."


def _user(packing: Packing) -> str:
    return "cell" if packing.is_for_cell else "function that uses it"


class Call:
    """Has pickle make a call where an argument stands."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self._reduced = (function, arguments)

    def __reduce__(self) -> Reduced:
        return self._reduced


Word = Callable[[Any, Packing], Reduced | None]


def word_for(kind: type) -> Word | None:
    """Find how an object of that type is told; None where pickle knows that itself."""
    for module, name, word in _WORDS:
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type) and issubclass(kind, found):
            return word
    return None


def is_model(thing: object) -> bool:
    """Say whether a thing is a Keras model."""
    kind = getattr(sys.modules.get("keras"), "Model", None)
    return isinstance(kind, type) and isinstance(thing, kind)


def settings() -> dict[str, Any]:
    """Give those of TensorFlow's and Keras's settings that tell how a step runs."""
    tf: Any = sys.modules["tensorflow"]
    told = {
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "runs_eagerly": tf.config.functions_run_eagerly(),
        "jit": tf.config.optimizer.get_jit(),
        "graph_options": tf.config.optimizer.get_experimental_options(),
        "is_deterministic": sys.modules[_CONFIG].is_op_determinism_enabled(),
    }
    keras: Any = sys.modules.get("keras")
    if keras is not None:
        told |= {
            "floatx": keras.config.floatx(),
            "image_data_format": keras.config.image_data_format(),
            "policy": keras.config.dtype_policy(),
        }
    return told


def _emptied(thing: Any, packing: Packing) -> Reduced:
    """Tell an object by its class, and later what it holds."""
    packing.later(thing, None, _state_of(thing))
    return rebuild.empty_object, (type(thing),)


def _state_of(thing: Any) -> dict[str, Any]:
    held = object.__getattribute__(thing, "__dict__")
    kept = {
        name: None if name in _TRACED else value
        for name, value in held.items()
        if name == _SETS_ATTRIBUTES
        or not (name.startswith(_FOR_CHECKPOINTS) or _is_keras_wrapper(value))
    }
    kept.pop("_obj_reference_counts_dict", None)
    return kept


def _checkpoint(thing: Any, packing: Packing) -> Reduced:
    packing.later(thing, None, _state_of(thing))
    return rebuild.empty_checkpoint, (type(thing),)


def _is_keras_wrapper(value: object) -> bool:
    """Say whether Keras put this around a layer's method, which it does for each new layer."""
    return isinstance(value, FunctionType) and value.__code__.co_qualname.startswith(
        _WRAPPED_BY_KERAS
    )


def _collection(thing: Any, packing: Packing) -> Reduced:
    items: Any = list(thing.items()) if isinstance(thing, dict) else list(thing)
    packing.later(thing, items, dict(vars(thing)))
    return rebuild.empty_collection, (type(thing),)


def _plain(kind: type) -> Word:
    """Tell one of TensorFlow's tracked collections as the plain one that it stands for."""

    def tell(thing: Any, _: Packing) -> Reduced:
        inner = getattr(thing, "__wrapped__", thing)
        return kind, (list(inner.items()) if kind is dict else list(inner),)

    return tell


def _variable(thing: Any, packing: Packing) -> Reduced:
    shape = thing.shape.as_list() if thing.shape.rank is not None else None
    options = {
        "trainable": thing.trainable,
        "name": thing.name.partition(":")[0],
        "aggregation": thing.aggregation,
        "synchronization": thing.synchronization,
    }
    value = Call(*_told(thing, packing, rebuild.computed))
    return rebuild.variable, (value, shape, options)


def _tensor(thing: Any, packing: Packing) -> Reduced:
    if thing.dtype.name in _OF_ITS_PROCESS:
        raise CannotTravelError(f"a {thing.dtype.name} of TensorFlow", _elsewhere(packing))
    if not hasattr(thing, "numpy"):
        raise CannotTravelError("a tensor of a graph", _elsewhere(packing))
    # On a cell's device a tensor takes what it took on the kernel's.
    by_values = rebuild.computed if packing.is_for_cell else rebuild.tensor
    made, *arguments = _told(thing, packing, by_values)
    return made, tuple(arguments)


def _told(thing: Any, packing: Packing, by_values: Callable[[Any, str], Any]) -> tuple[Any, ...]:
    """Tell a tensor's or variable's value; of large weights, their shape alone."""
    if thing.dtype.is_floating and not packing.values:
        shape = _shape_of(thing)
        if prod(shape) * thing.dtype.size > _SMALL_BYTES:
            return rebuild.stand_in, shape, thing.dtype.name
    return by_values, _values_of(thing, packing), thing.dtype.name


def _values_of(thing: Any, packing: Packing) -> Any:
    """Give a tensor's values, where they lie, or a call that reads them from a file."""
    tensor = thing.read_value() if hasattr(thing, "read_value") else thing
    values = tensor.__array__()  # `numpy()` would copy them
    reduced = packing.large_array(values) if hasattr(values, "nbytes") else None
    return values if reduced is None else Call(reduced[0], *reduced[1])


def _shape_of(thing: Any) -> tuple[int, ...]:
    if thing.shape.is_fully_defined():
        return tuple(thing.shape)
    return tuple(sys.modules["tensorflow"].shape(thing).numpy().tolist())


def _function(thing: Any, _: Packing) -> Reduced:
    options = {name: getattr(thing, private, None) for name, private in _OPTIONS.items()}
    return rebuild.function, (_as_written(thing.python_function), options)


def _as_written(called: Any) -> Any:
    """Give the plain method where TensorFlow has bound one to its object in its own way."""
    # AutoGraph has put what it made of it in the place of `__wrapped__`.
    bound = getattr(called, "__original_wrapped__", None)
    if isinstance(bound, MethodType):
        target: Any = bound.__self__
        if type(target).__name__ == "TfMethodTarget":
            return MethodType(bound.__func__, target.target)
    return called


def _dtype(thing: Any, _: Packing) -> Reduced:
    return sys.modules["tensorflow"].as_dtype, (thing.name,)


def _table(thing: Any, packing: Packing) -> Reduced:
    parts = (*thing.export(), thing._default_value)  # noqa: SLF001 (it has no other name)
    told = [Call(rebuild.tensor, _values_of(each, packing), each.dtype.name) for each in parts]
    return rebuild.table, (type(thing).__name__, *told)


def _strategy(thing: Any, _: Packing) -> Reduced:
    if type(thing).__name__ != "_DefaultDistributionStrategy":
        raise CannotTravelError(
            f"a {type(thing).__name__}",
            "there is one device alone. Make the model without it, with one replica's batch.",
        )
    return rebuild.default_strategy, ()


def _distributed(thing: Any, _: Packing) -> Reduced:
    raise CannotTravelError(
        f"a {type(thing).__name__}",
        "there is one device alone. Make the model outside of the strategy's scope.",
    )


def _dataset(thing: Any, packing: Packing) -> Reduced:
    if not packing.is_for_cell:
        return _of_this_process(thing, packing)
    if datasets.is_known(thing):
        return cast("Reduced", datasets.told(thing))
    packing.stood_in_for(thing)
    return datasets.stand_in(thing)


def _of_this_process(thing: Any, packing: Packing) -> Reduced:
    kind = "Iterator" if "Iterator" in type(thing).__name__ else "Dataset"
    way = "Have the cell make it" if packing.is_for_cell else "Pass a batch of it, or have the "
    way += "." if packing.is_for_cell else "function that uses it make it."
    raise CannotTravelError(f"a tf.data.{kind}", f"it is a program of this process. {way}")


def _generator(thing: Any, packing: Packing) -> Reduced:
    raise CannotTravelError(
        f"the {type(thing).__name__} {thing.__name__}",
        f"it has begun here. Have the {_user(packing)} make it.",
    )


def _keeping_results(thing: Any, _: Packing) -> Reduced | None:
    """Tell a function with `lru_cache` by that function; an imported one is known by its name."""
    if thing.__module__ != "__main__":
        return None
    return rebuild.function_keeping_results, (thing.__wrapped__, thing.cache_parameters())


def _writing_callback(_thing: Any, packing: Packing) -> Reduced | None:
    """Tell a callback that writes files as one that does nothing: it would be left out."""
    return (rebuild_data.idle_callback, ()) if packing.is_for_cell else None


def _summary_writer(thing: Any, packing: Packing) -> Reduced:
    """Tell what writes TensorBoard's files as one that writes none."""
    return (rebuild_data.no_writer, ()) if packing.is_for_cell else _emptied(thing, packing)


def _shell(_thing: Any, packing: Packing) -> Reduced | None:
    return (rebuild_data.NoShell, ()) if packing.is_for_cell else None


def _array(thing: Any, packing: Packing) -> Reduced | None:
    """Tell an array by a file; what a class of its own has beside its values, pickle knows."""
    numpy: Any = sys.modules["numpy"]
    return packing.large_array(thing) if type(thing) in (numpy.ndarray, numpy.memmap) else None


def _masked_array(thing: Any, _: Packing) -> Reduced | None:
    kind: Any = sys.modules["numpy.ma"].MaskedArray
    return (kind, (thing.data, thing.mask)) if type(thing) is kind else None


def _running(thing: Any, packing: Packing) -> Reduced:
    raise CannotTravelError(f"a {type(thing).__name__}", _elsewhere(packing))


def _file(thing: Any, packing: Packing) -> Reduced:
    for name in ("stdout", "stderr"):
        if any(thing is screen for screen in (getattr(sys, name), getattr(sys, f"__{name}__"))):
            return getattr, (sys, name)
    raise CannotTravelError("an open file", f"have the {_user(packing)} open it.")


def _reference(thing: Any, _: Packing) -> Reduced:
    target = thing()
    return (rebuild.nowhere, ()) if target is None else (rebuild.reference, (target,))


def _weak_dictionary(thing: Any, _: Packing) -> Reduced:
    return rebuild.weak_dictionary, (type(thing), list(thing.items()))


def _weak_set(thing: Any, _: Packing) -> Reduced:
    return type(thing), (list(thing),)


def _anew(name: str) -> Word:
    """Have a new one made, by what `threading` calls it."""
    return lambda _thing, _packing: (rebuild.lock, (name,))


_TRACKABLE = "tensorflow.python.trackable"
_TRACKING = "keras.src.utils.tracking"

# Of two that fit, the narrower one stands first.
_WORDS: tuple[tuple[str, str, Word], ...] = (
    ("tensorflow.python.distribute.values", "DistributedValues", _distributed),
    ("tensorflow.python.distribute.distribute_lib", "StrategyBase", _strategy),
    ("tensorflow", "Variable", _variable),
    ("tensorflow", "Tensor", _tensor),
    ("tensorflow", "dtypes.DType", _dtype),
    ("tensorflow", "data.Dataset", _dataset),
    ("tensorflow", "data.Iterator", _of_this_process),
    ("tensorflow", "lookup.StaticHashTable", _table),
    ("tensorflow", "lookup.experimental.MutableHashTable", _table),
    ("tensorflow.python.eager.polymorphic_function.polymorphic_function", "Function", _function),
    (f"{_TRACKABLE}.data_structures", "ListWrapper", _plain(list)),
    (f"{_TRACKABLE}.data_structures", "_DictWrapper", _plain(dict)),
    (f"{_TRACKABLE}.data_structures", "_TupleWrapper", _plain(tuple)),
    (_TRACKING, "TrackedList", _collection),
    (_TRACKING, "TrackedDict", _collection),
    (_TRACKING, "TrackedOrderedDict", _collection),
    (_TRACKING, "TrackedSet", _collection),
    (_TRACKING, "Tracker", _emptied),
    ("keras", "callbacks.TensorBoard", _writing_callback),
    ("keras", "callbacks.CSVLogger", _writing_callback),
    ("keras", "callbacks.BackupAndRestore", _writing_callback),
    ("keras.src.saving.keras_saveable", "KerasSaveable", _emptied),
    ("keras.src.ops.node", "Node", _emptied),
    ("keras", "KerasTensor", _emptied),
    ("keras.src.utils.backend_utils", "DynamicBackend", _emptied),
    ("tensorflow", "summary.SummaryWriter", _summary_writer),
    ("tensorflow", "train.Checkpoint", _checkpoint),
    (f"{_TRACKABLE}.base", "Trackable", _emptied),
    ("IPython.core.interactiveshell", "InteractiveShell", _shell),
    ("numpy.ma", "MaskedArray", _masked_array),
    ("numpy", "ndarray", _array),
    ("types", "GeneratorType", _generator),
    ("functools", "_lru_cache_wrapper", _keeping_results),
    ("threading", "Thread", _running),
    ("_io", "TextIOWrapper", _file),
    ("_io", "BufferedReader", _file),
    ("_io", "BufferedWriter", _file),
    ("_io", "BufferedRandom", _file),
    ("_io", "FileIO", _file),
    ("ipykernel.iostream", "OutStream", _file),
    ("_thread", "lock", _anew("Lock")),
    ("_thread", "LockType", _anew("Lock")),
    ("_thread", "RLock", _anew("RLock")),
    ("_thread", "_local", _anew("local")),
    ("weakref", "WeakKeyDictionary", _weak_dictionary),
    ("weakref", "WeakValueDictionary", _weak_dictionary),
    ("weakref", "WeakSet", _weak_set),
    ("weakref", "ref", _reference),
)
