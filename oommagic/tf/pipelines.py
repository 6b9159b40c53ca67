"""What a data set is made of, step by step, without running it."""

import re
from collections.abc import Iterator
from math import prod
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.recording import ROW_ALIGNMENT, PipelineStep
from oommagic.tf.looking import attributes_of, list_items

keep_builtins(globals())

_MOST_STEPS = 64
_KEEP_COUNT = frozenset({"map", "shuffle", "prefetch", "cache", "options", "assertcardinality"})
_WORDS = re.compile(r"^_?(?:Parallel)?|Dataset(?:V\d)?$")


def pipeline_of(dataset: object) -> tuple[PipelineStep, ...]:
    """Tell a data set's steps, the source first."""
    steps: list[PipelineStep] = []
    rows: int | None = None
    for one in reversed(list(_chain(dataset))):
        step = _step(one, steps[-1] if steps else None, rows)
        rows = step.number if step.kind == "batch" else rows
        steps.append(step)
    return tuple(steps)


def _chain(dataset: object) -> Iterator[object]:
    for _ in range(_MOST_STEPS):
        if dataset is None:
            return
        yield dataset
        dataset = attributes_of(dataset).get("_input_dataset")


def _step(dataset: object, before: PipelineStep | None, rows: int | None) -> PipelineStep:
    attributes = attributes_of(dataset)
    kind = _WORDS.sub("", type(dataset).__name__).lower()
    number = _number(attributes.get("_batch_size", attributes.get("_buffer_size")))
    function = attributes_of(attributes.get("_map_func"))
    structure = attributes.get("_structure", function.get("_output_structure"))
    rows = number if kind == "batch" else rows  # what maps give of batches is as open
    size = _bytes(structure, rows) if structure is not None else _same_size(before)
    shared = _shared(kind, attributes, before if structure is None else None)
    return PipelineStep(kind, size, _count(kind, attributes, number, before), number, shared)


def _shared(kind: str, attributes: dict[str, object], before: PipelineStep | None) -> int:
    """Count what is no copy: TensorFlow gives a tensor's rows as they lie, if they are aligned."""
    if kind != "tensorslice":
        return before.shared_bytes if before is not None else 0
    tensors: list[Any] = list_items(attributes.get("_tensors"))
    rows = [prod(tensor.shape[1:]) * int(tensor.dtype.size) for tensor in tensors]
    return sum(size for size in rows if size % ROW_ALIGNMENT == 0)


def _same_size(before: PipelineStep | None) -> int:
    return before.element_bytes if before is not None else 0


def _count(
    kind: str, attributes: dict[str, object], number: int | None, before: PipelineStep | None
) -> int | None:
    if kind == "tensorslice":
        first: Any = next(iter(list_items(attributes.get("_tensors"))), None)
        return None if first is None else int(first.shape[0])
    if kind == "range":
        start, stop, step = (_number(attributes.get(each)) for each in ("_start", "_stop", "_step"))
        return None if None in {start, stop, step} else len(range(start, stop, step))  # type: ignore[arg-type]  # just seen to be there
    if before is None or before.count is None:
        return None
    if kind == "batch":
        return -(-before.count // number) if number else None
    return before.count if kind in _KEEP_COUNT else None


def _number(value: Any) -> int | None:
    """Read a number that TensorFlow keeps as a tensor on the host."""
    return int(value) if type(value).__name__ == "EagerTensor" else None


def _bytes(structure: Any, rows: int | None) -> int:
    """Add up the bytes of a nested structure of tensors; 0 where a shape is open."""
    sizes = [_spec_bytes(spec, rows) for spec in _specs(structure)]
    return sum(sizes) if sizes and all(sizes) else 0


def _specs(structure: Any) -> Iterator[Any]:
    if isinstance(structure, dict):
        structure = tuple(dict.values(structure))
    if isinstance(structure, tuple | list):
        for each in structure:
            yield from _specs(each)
    else:
        yield structure


def _spec_bytes(spec: Any, rows: int | None) -> int:
    if type(spec).__name__ != "TensorSpec" or spec.shape.rank is None:
        return 0
    shape = list(spec.shape)
    if shape and shape[0] is None and rows is not None:
        shape[0] = rows
    return 0 if None in shape else prod(shape) * int(spec.dtype.size)
