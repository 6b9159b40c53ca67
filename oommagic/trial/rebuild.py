"""Puts together in a child what was packed in the kernel: pickles name these functions.

Objects of Keras and TensorFlow come in two parts. First an empty object of the right class, then
what it holds, when all objects are there: a model's layers lead to one another without end, and
Python's pickle would go as deep as the model.
"""

import functools
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

from oommagic.trial.sources import publish

_folders = [Path()]
"""Where the files of the parcel are that is being opened."""


def look_in(folder: Path) -> None:
    """Say where the files of a parcel are: its own folder, on whichever machine."""
    _folders.append(folder)


def open_parcel(
    settings: Mapping[str, Any],
    sources: Mapping[str, list[str]],
    stream: bytes | str,
    parts: int,
) -> Any:
    """Make the settings those of the kernel, and give what was packed, here or into a file."""
    if settings:
        _set(settings)
    publish(sources)
    if isinstance(stream, bytes):
        return _unpacked(BytesIO(stream), parts)
    with (_folders[-1] / stream).open("rb") as file:
        return _unpacked(file, parts)


def _unpacked(stream: BytesIO | BufferedReader, parts: int) -> Any:
    unpickler = pickle.Unpickler(stream)  # noqa: S301 (packed by the parent)
    unpickler.load()  # what was to be made first; the rest leads to it
    thing = unpickler.load()
    filled = []
    for _ in range(parts):
        empty, items, state = unpickler.load()
        _fill(empty, items, state)
        filled.append(empty)
    for each in filled:
        _renew_numbers(each)
    return thing


def _set(settings: Mapping[str, Any]) -> None:
    import tensorflow as tf

    # Threads come first: they are the device's, which the next call may make. Once it is made
    # TensorFlow refuses even to be told what is so already.
    threads = tf.config.threading
    if threads.get_inter_op_parallelism_threads() != settings["inter_op_threads"]:
        threads.set_inter_op_parallelism_threads(settings["inter_op_threads"])
    if threads.get_intra_op_parallelism_threads() != settings["intra_op_threads"]:
        threads.set_intra_op_parallelism_threads(settings["intra_op_threads"])
    tf.config.run_functions_eagerly(settings["runs_eagerly"])
    tf.config.optimizer.set_jit(settings["jit"])
    tf.config.optimizer.set_experimental_options(settings["graph_options"])
    if settings["is_deterministic"]:
        tf.config.experimental.enable_op_determinism()
    if "floatx" in settings:
        import keras

        keras.config.set_floatx(settings["floatx"])
        keras.config.set_image_data_format(settings["image_data_format"])
        keras.config.set_dtype_policy(settings["policy"])


def empty_object(kind: type) -> Any:
    """Make an object without running the user's code; Keras prepares layers of its own accord."""
    import keras

    if issubclass(kind, keras.layers.Layer):
        return keras.layers.Layer.__new__(kind)
    return object.__new__(kind)


def empty_checkpoint(kind: Any) -> Any:
    """Make a checkpoint without what it saves; TensorFlow takes the time when it makes one."""
    import tensorflow as tf

    tf.train.Checkpoint()
    return empty_object(kind)


def empty_collection(kind: type) -> Any:
    """Make one of Keras's own lists, dictionaries or sets."""
    return kind()


def _fill(empty: Any, items: Any, state: Mapping[str, Any]) -> None:
    # Past the class's own methods, which would track what they are given once more.
    match empty:
        case list():
            list.extend(empty, items)
        case OrderedDict():
            for key, value in items:
                OrderedDict.__setitem__(empty, key, value)
        case dict():
            dict.update(empty, items)
        case set():
            set.update(empty, items)
    vars(empty).update(state)


def _renew_numbers(thing: Any) -> None:
    """Put right what is known by objects' identities, which are others here."""
    held = vars(thing)
    if "stored_ids" in held and "config" in held:  # Keras's Tracker
        held["stored_ids"] = {name: set(map(id, of)) for name, (_, of) in thing.config.items()}
    if "_trainable_variables_indices" in held:  # an optimizer
        variables = held["_trainable_variables"]
        held["_trainable_variables_indices"] = {
            thing._var_key(variable): index  # noqa: SLF001 (Keras has no other way)
            for index, variable in enumerate(variables)
        }
    if "_nodes_by_depth" in held:  # a functional model
        from keras.src.ops.function import make_node_key

        nodes = [node for level in held["_nodes_by_depth"].values() for node in level]
        held["_nodes"] = {
            make_node_key(node.operation, node.operation._inbound_nodes.index(node))  # noqa: SLF001
            for node in nodes
        }


def stand_in(shape: Sequence[int], dtype: str) -> Any:
    """Make a tensor of which shape and type are known, but not its values.

    Zeros stay zeros through a step; other made-up weights can lead to numbers too small for the
    processor to be quick with. They take memory as random weights do when they are made: what
    lies between them afterwards decides what fits there later.
    """
    import tensorflow as tf

    kind = tf.as_dtype(dtype)
    drawn = tf.zeros(shape, kind)
    if len(shape) <= 1 or kind.size == 1:  # there is no arithmetic with eight bits
        return drawn
    stretched = drawn * 0
    moved = stretched + 0
    del stretched, drawn
    return moved


def tensor(values: Any, dtype: str) -> Any:
    """Make a tensor of these values."""
    import tensorflow as tf

    return tf.constant(values, tf.as_dtype(dtype))


def computed(values: Any, dtype: str) -> Any:
    """Make a tensor of these values in the device's own memory, as that of a variable is.

    One that is made of an array may go on using the array's memory.
    """
    import tensorflow as tf

    made = tensor(values, dtype)
    return made if made.dtype == tf.string else tf.raw_ops.DeepCopy(x=made)


def variable(value: Any, shape: Any, options: Mapping[str, Any]) -> Any:
    """Make a variable."""
    import tensorflow as tf

    return tf.Variable(value, shape=shape, **options)


def function(python_function: Any, options: Mapping[str, Any]) -> Any:
    """Make a tf.function that has not been traced."""
    import tensorflow as tf

    return tf.function(python_function, **options)


def table(kind: str, keys: Any, values: Any, default: Any) -> Any:
    """Make a lookup table."""
    import tensorflow as tf

    if kind == "StaticHashTable":
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default)
    made = tf.lookup.experimental.MutableHashTable(keys.dtype, values.dtype, default)
    made.insert(keys, values)
    return made


def default_strategy() -> Any:
    """Give the strategy of those who have chosen none."""
    import tensorflow as tf

    return tf.distribute.get_strategy()


def array_in(name: str, mode: Any = "r") -> Any:
    """Open an array that was left in a file; it is read as it is used, and its file not written."""
    import numpy as np

    return np.load(_folders[-1] / name, mmap_mode=mode, allow_pickle=False)


def mapped_array(  # noqa: PLR0913, PLR0917 (it is `numpy.memmap`)
    path: str, dtype: Any, offset: int, shape: tuple[int, ...], order: Any, mode: Any = "r"
) -> Any:
    """Open an array that is a file of the user's, which is not written."""
    import numpy as np

    return np.memmap(path, dtype, mode, offset, shape, order)


def function_keeping_results(function: Any, parameters: dict[str, Any]) -> Any:
    """Make a function that keeps its results, none of them yet."""
    return functools.lru_cache(**parameters)(function)


def lock(kind: str) -> Any:
    """Make a lock that nobody holds."""
    import threading

    return getattr(threading, kind)()


def reference(target: Any) -> Any:
    """Make a weak reference."""
    return weakref.ref(target)


def nowhere() -> Any:
    """Make a weak reference to what is gone."""
    return weakref.ref(type("Gone", (), {})())


def weak_dictionary(kind: type, items: Sequence[tuple[Any, Any]]) -> Any:
    """Make a dictionary that keeps nothing alive."""
    made = kind()
    made.update(items)
    return made
