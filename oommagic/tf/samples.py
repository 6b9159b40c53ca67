"""A few rows of data, and from them a batch of any size: what steps are tried with.

The rows are the user's own where there are any, since labels and tokens must be valid; never more
than a few are held. A sample is small, so that it can travel to another process.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from oommagic.errors import PlanError
from oommagic.units import MIB

Task = Literal["training", "prediction", "step"]

MOST_ROWS = 8
_MOST_BYTES = 16 * MIB
# A function that makes batches is asked for these: odd, and neither a multiple of the other.
_ASKED_SIZES = (3, 5)


@dataclass(frozen=True, slots=True)
class Rows:
    """One array of a batch: a few of its rows."""

    values: Any
    """A NumPy array."""
    per_sample: int = 1
    """How many rows each sample of the batch has."""
    axis: int = 0
    is_tensor: bool = False
    """Whether the user's was a tensor, which a step is given again."""

    @property
    def sample_bytes(self) -> int:
        """Give what one sample of the batch takes."""
        return int(self.values.nbytes // self.values.shape[self.axis]) * self.per_sample

    def repeated(self, count: int) -> Any:
        """Give the array for so many samples, by repeating the rows."""
        import numpy as np

        wanted = np.arange(count * self.per_sample) % self.values.shape[self.axis]
        return np.take(self.values, wanted, axis=self.axis)


@dataclass(frozen=True, slots=True)
class Constant:
    """One array of a batch that is the same whatever its size."""

    values: Any
    is_tensor: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """What a step is given: a structure of tuples, lists and dicts around `Rows`."""

    content: Any
    notes: tuple[str, ...] = ()

    @property
    def row_bytes(self) -> tuple[int, ...]:
        """Give what one sample of a batch takes in each array."""
        parts = leaves(self.content)
        return tuple(part.sample_bytes for part in parts if isinstance(part, Rows))

    def batch(self, count: int) -> Any:
        """Give a batch of so many samples, as NumPy arrays in the same structure."""
        return map_leaves(partial(_unpacked, count=count), self.content)

    def fixed_sides(self) -> frozenset[int]:
        """Give the sides of its arrays that are not the batch's."""
        return frozenset(
            side
            for part in leaves(self.content)
            if isinstance(part, Rows)
            for axis, side in enumerate(part.values.shape)
            if axis != part.axis
        )


def leaves(content: Any) -> Iterator[Any]:
    """Yield what stands in a structure, from left to right."""
    if isinstance(content, Mapping):
        for each in content.values():
            yield from leaves(each)
    elif isinstance(content, list | tuple):
        for each in content:
            yield from leaves(each)
    else:
        yield content


def map_leaves(change: Callable[[Any], Any], content: Any) -> Any:
    """Give the same structure with everything in it changed."""
    if isinstance(content, Mapping):
        return {key: map_leaves(change, each) for key, each in content.items()}
    if isinstance(content, tuple) and hasattr(content, "_fields"):  # a named tuple
        return type(content)(*(map_leaves(change, each) for each in content))
    if isinstance(content, list | tuple):
        kind = list if isinstance(content, list) else tuple
        return kind(map_leaves(change, each) for each in content)
    return change(content)


def is_tensor(value: object) -> bool:
    """Say whether it is one of TensorFlow's tensors, with values."""
    kind = getattr(sys.modules.get("tensorflow.python.framework.ops"), "EagerTensor", None)
    return kind is not None and isinstance(value, kind)


def from_arrays(batch: Any) -> Sample:
    """Keep the first rows of arrays, tensors and data frames."""
    found = [each for each in leaves(batch) if is_array(each) and len(each.shape) > 0]
    if not found:
        raise PlanError(
            f"There is no array in the batch ({type(batch).__name__}): pass arrays, tensors or a "
            "tf.data.Dataset, e.g. oommagic.plan(model, (x[:8], y[:8]))."
        )
    lengths = sorted({int(each.shape[0]) for each in found})
    if lengths[0] == 0:
        raise PlanError("The batch has no rows: pass at least one sample.")
    if len(lengths) > 1:
        raise PlanError(
            f"The arrays of the batch have different lengths ({_listed(lengths)}): "
            "pass as many labels as samples, and of a tf.data.Dataset one of batches, as in "
            "ds.batch(8)."
        )
    count = min(lengths[0], _affordable_rows(found, lengths[0]))
    return Sample(map_leaves(partial(_first_rows, count=count), batch))


def from_function(make_batch: Callable[[int], Any]) -> Sample:
    """Ask a function for two small batches: what differs in them grows with the batch."""
    smaller, larger = (make_batch(size) for size in _ASKED_SIZES)
    pairs = list(leaves(smaller)), list(leaves(larger))
    if len(pairs[0]) != len(pairs[1]):
        raise PlanError(
            "make_batch gives something else for each size: it must give the same arguments, "
            "with more rows in them."
        )
    parts = iter([_part_of(*pair) for pair in zip(*pairs, strict=True)])
    content = map_leaves(lambda _: next(parts), larger)
    if not any(isinstance(part, Rows) for part in leaves(content)):
        raise PlanError(
            f"make_batch({_ASKED_SIZES[0]}) and make_batch({_ASKED_SIZES[1]}) give arrays of the "
            "same shapes: it must give as many samples as it is asked for."
        )
    return Sample(content)


def is_array(value: object) -> bool:
    """Say whether it has rows that can be taken; a variable is what a step works on, not data."""
    return (
        hasattr(value, "shape")
        and hasattr(value, "__getitem__")
        and hasattr(value, "__array__")
        and not hasattr(value, "assign")
    )


def array_bytes(batch: Any) -> int:
    """Give what the arrays in a structure take; a data set or a function has none."""
    return sum(int(part.nbytes) for part in leaves(batch) if hasattr(part, "nbytes"))


def to_numpy(value: Any) -> Any:
    """Give a NumPy array; what is not one and cannot be made one is refused by name."""
    import numpy as np

    if is_tensor(value):
        return value.numpy()
    return np.asarray(value)


def _unpacked(part: Any, count: int) -> Any:
    if isinstance(part, Rows):
        return part.repeated(count)
    return part.values if isinstance(part, Constant) else part


def _first_rows(value: Any, count: int) -> Any:
    if not is_array(value):
        return value
    if len(value.shape) == 0:
        return Constant(to_numpy(value), is_tensor(value))
    # Copied, or a few rows would keep all of the user's array alive, and travel with it.
    return Rows(to_numpy(value[:count]).copy(), is_tensor=is_tensor(value))


def _affordable_rows(arrays: list[Any], length: int) -> int:
    row_bytes = sum(int(to_numpy(each[:1]).nbytes) for each in arrays)
    return max(1, min(length, MOST_ROWS, _MOST_BYTES // max(row_bytes, 1)))


def _part_of(smaller: Any, larger: Any) -> Any:
    if not (is_array(smaller) and is_array(larger)):
        return larger
    shapes = tuple(smaller.shape), tuple(larger.shape)
    if shapes[0] == shapes[1]:
        return Constant(to_numpy(larger), is_tensor(larger))
    axis, per_sample = _growth(*shapes)
    return Rows(to_numpy(larger), per_sample, axis, is_tensor(larger))


def _growth(smaller: tuple[int, ...], larger: tuple[int, ...]) -> tuple[int, int]:
    """Give the axis that grows with the batch, and by how many rows for each sample."""
    sides = list(zip(smaller, larger, strict=False))
    axes = [axis for axis, (one, other) in enumerate(sides) if one != other]
    if len(smaller) == len(larger) and len(axes) == 1:
        one, other = sides[axes[0]]
        per_sample = one // _ASKED_SIZES[0]
        if per_sample and (one, other) == tuple(per_sample * size for size in _ASKED_SIZES):
            return axes[0], per_sample
    raise PlanError(
        f"make_batch({_ASKED_SIZES[0]}) gives an array of shape {smaller}, and "
        f"make_batch({_ASKED_SIZES[1]}) one of {larger}: one side of it must grow with the batch, "
        "and nothing else."
    )


def _listed(numbers: list[int]) -> str:
    return " and ".join(str(number) for number in numbers)
