"""How a `tf.data.Dataset` is told to a child: by what makes it, else by a stand-in of its shapes.

All private names of tf.data stand here. Nothing of the user's runs for it.
"""

import sys
from collections.abc import Callable
from typing import Any

from oommagic.errors import CannotTravelError
from oommagic.trial import rebuild_data

_Recipe = Callable[[Any], tuple[Any, ...]]
_RECORDS = "TFRecordDatasetV2"
_OF_RECORDS = ("_filenames", "_compression_type", "_buffer_size", "_num_parallel_reads")
_PARTS = ("_input_dataset", "_datasets", "_dataset_to_concatenate")


def told(dataset: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """Give a function and arguments that make a dataset anew; None where that is not known."""
    name = type(dataset).__name__
    recipe = _RECIPES.get(name)
    try:
        if name == _RECORDS:
            return rebuild_data.records, tuple(getattr(dataset, each) for each in _OF_RECORDS)
        if name == "CacheDataset" and _plain(dataset._filename):  # noqa: SLF001
            return rebuild_data.cached_in_file, (dataset._input_dataset,)  # noqa: SLF001
        return None if recipe is None else (rebuild_data.made, recipe(dataset))
    except AttributeError:  # another TensorFlow
        return None


def is_known(dataset: Any) -> bool:
    """Say whether all that makes a dataset can be told."""
    return told(dataset) is not None and all(is_known(each) for each in _inputs(dataset))


def stand_in(dataset: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Give what makes a dataset of as many elements of the same shapes and types."""
    tf: Any = sys.modules["tensorflow"]
    batch = _batch_of(dataset)
    specs = tf.nest.map_structure(lambda spec: _shape_of(spec, batch), dataset.element_spec)
    return rebuild_data.made_up, (specs, int(dataset.cardinality()))


def _shape_of(spec: Any, batch: int | None) -> Any:
    tf: Any = sys.modules["tensorflow"]
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None:
        raise CannotTravelError("a tf.data.Dataset", _UNKNOWN)
    sides = spec.shape.as_list()
    if batch is not None and sides and sides[0] is None:
        sides[0] = batch
    if None in sides:
        raise CannotTravelError("a tf.data.Dataset", _UNKNOWN)
    return tf.TensorSpec(sides, spec.dtype)


_UNKNOWN = (
    "what makes it is a program of this process, and its elements have no certain shape. "
    "Make it in the cell itself."
)


def _inputs(dataset: Any) -> list[Any]:
    return list(dataset._inputs())  # noqa: SLF001 (there is no public way to them)


def _batch_of(dataset: Any) -> int | None:
    """Find the batch size in what makes a dataset, the last that was asked for."""
    size = getattr(dataset, "_batch_size", None)
    if size is not None:
        return int(size)
    found = (_batch_of(each) for each in _inputs(dataset))
    return next((each for each in found if each is not None), None)


def _called(name: str, *attributes: str, **keywords: Callable[[Any], Any]) -> _Recipe:
    """Make a dataset by a method of the one before it."""

    def recipe(dataset: Any) -> tuple[Any, ...]:
        arguments = tuple(_plain(getattr(dataset, attribute)) for attribute in attributes)
        named = {key: _plain(give(dataset)) for key, give in keywords.items()}
        return (dataset._input_dataset, name, arguments, named)  # noqa: SLF001

    return recipe


def _source(name: str, *attributes: str) -> _Recipe:
    """Make a dataset by a function of `tf.data.Dataset`."""

    def recipe(dataset: Any) -> tuple[Any, ...]:
        arguments = tuple(_plain(getattr(dataset, attribute)) for attribute in attributes)
        return (None, name, arguments, {})

    return recipe


def _of_tensors(name: str) -> _Recipe:
    def recipe(dataset: Any) -> tuple[Any, ...]:
        tf: Any = sys.modules["tensorflow"]
        structure, tensors = dataset._structure, dataset._tensors  # noqa: SLF001
        specs = tf.nest.flatten(structure)
        if not all(isinstance(spec, tf.TensorSpec) for spec in specs):
            raise AttributeError(name)
        return (None, name, (tf.nest.pack_sequence_as(structure, tensors),), {})

    return recipe


def _plain(value: Any) -> Any:
    """Give a number, truth or text in place of a scalar tensor."""
    tf: Any = sys.modules["tensorflow"]
    if not isinstance(value, tf.Tensor) or value.shape.rank != 0:
        return value
    plain = value.numpy()
    return plain if isinstance(plain, bytes) else plain.item()


def _function(attribute: str) -> Callable[[Any], Any]:
    return lambda dataset: getattr(dataset, attribute)._func  # noqa: SLF001


def _users_function(attribute: str) -> Callable[[Any], Any]:
    """Give the user's function; TensorFlow's, as `from_generator` has them, do not travel."""

    def function(dataset: Any) -> Any:
        found = _function(attribute)(dataset)
        if getattr(found, "__module__", "").startswith("tensorflow."):
            raise AttributeError(attribute)
        return found

    return function


def _calls(dataset: Any) -> Any:
    return dataset._num_parallel_calls  # noqa: SLF001


def _reshuffles(dataset: Any) -> Any:
    return dataset._reshuffle_each_iteration  # noqa: SLF001


def _drops(dataset: Any) -> Any:
    return dataset._drop_remainder  # noqa: SLF001


_INTERLEAVING = {
    "map_func": _users_function("_map_func"),
    "cycle_length": lambda dataset: dataset._cycle_length,  # noqa: SLF001
    "block_length": lambda dataset: dataset._block_length,  # noqa: SLF001
}
_RECIPES: dict[str, _Recipe] = {
    "_TensorSliceDataset": _of_tensors("from_tensor_slices"),
    "_TensorDataset": _of_tensors("from_tensors"),
    "_RangeDataset": _source("range", "_start", "_stop", "_step"),
    "_ZipDataset": _source("zip", "_datasets"),
    "_ConcatenateDataset": _called("concatenate", "_dataset_to_concatenate"),
    "_BatchDataset": _called("batch", "_batch_size", drop_remainder=_drops),
    "_ParallelBatchDataset": _called(
        "batch", "_batch_size", drop_remainder=_drops, num_parallel_calls=_calls
    ),
    "_MapDataset": _called("map", map_func=_function("_map_func")),
    "_ParallelMapDataset": _called(
        "map", map_func=_function("_map_func"), num_parallel_calls=_calls
    ),
    "_FlatMapDataset": _called("flat_map", map_func=_users_function("_map_func")),
    "_InterleaveDataset": _called("interleave", **_INTERLEAVING),
    "_ParallelInterleaveDataset": _called(
        "interleave", **_INTERLEAVING, num_parallel_calls=_calls
    ),
    "_FilterDataset": _called("filter", predicate=_function("_predicate")),
    "_ShuffleDataset": _called("shuffle", "_buffer_size", reshuffle_each_iteration=_reshuffles),
    "_RepeatDataset": _called("repeat", "_count"),
    "_TakeDataset": _called("take", "_count"),
    "_SkipDataset": _called("skip", "_count"),
    "_PrefetchDataset": _called("prefetch", "_buffer_size"),
    "_UnbatchDataset": _called("unbatch"),
    "CacheDataset": _called("cache"),
    "_OptionsDataset": lambda dataset: (
        dataset._input_dataset, "with_options", (dataset.options(),), {},  # noqa: SLF001
    ),
}  # fmt: skip
