"""Reads what TensorFlow's profiler wrote into tapes, one for each device."""

import re
import sys
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.recording import NamesThen, Tape
from oommagic.tf import layers
from oommagic.tf.tape_columns import NO_TEXT, read_columns

keep_builtins(globals())

Step = tuple[float, float, str]
Shape = tuple[int, ...] | None

_WORKSPACE = "temp"

_ARENA = re.compile(r"bfc_cpu_allocator_for_gpu|cpu_bfc|bfc_cpu.*")
_GPU = re.compile(r"GPU_(\d+)_bfc")


@dataclass(frozen=True, slots=True)
class Taped:
    """One recording that has ended: its file, and what is known of it from outside."""

    file: Path
    mark: str
    """The name of an event that was recorded at a known time."""
    mark_s: float
    started_s: float
    steps: tuple[Step, ...]
    is_whole: bool
    names_before: NamesThen | None = None
    names_after: NamesThen | None = None
    whole_from_s: float | None = None
    """What comes before is left out: a step that had begun when the recording did."""


def read_tapes(taped: Taped) -> tuple[Tape, ...]:
    """Give a tape for each device that allocated, in no particular order."""
    found = read_columns(taped.file.read_bytes(), taped.mark)
    if found is None:
        return ()
    start_s = taped.started_s if found.mark_s is None else taped.mark_s - found.mark_s
    columns = {**found.of_events, "times_s": found.of_events["times_s"] + start_s}
    return tuple(_tapes(columns, found.texts, taped))


def _tapes(columns: Mapping[str, Any], texts: Mapping[int, str], taped: Taped) -> Iterator[Tape]:
    import numpy as np

    since_s = -inf if taped.whole_from_s is None else taped.whole_from_s
    for number in np.unique(columns["allocator_name"]):
        device = _device_of(texts.get(int(number), ""))
        if not device:
            continue
        own = _of_allocator(columns, number, since_s)
        if len(own["times_s"]):
            yield replace(
                _tape(device, own, texts),
                steps=tuple(step for step in taped.steps if step[0] >= since_s),
                is_whole=taped.is_whole,
                names_before=taped.names_before,
                names_after=taped.names_after,
            )


def _of_allocator(columns: Mapping[str, Any], number: int, since_s: float) -> dict[str, Any]:
    """Give the events of one allocator in the order in which they happened."""
    import numpy as np

    here = np.flatnonzero(columns["allocator_name"] == number)
    order = here[np.argsort(columns["times_s"][here], kind="stable")]
    order = order[columns["times_s"][order] > since_s]
    return {name: column[order] for name, column in columns.items()}


def _device_of(allocator: str) -> str:
    gpu = _GPU.fullmatch(allocator)
    if gpu:
        return f"GPU:{gpu[1]}"
    return "CPU:0" if _ARENA.fullmatch(allocator) else ""


def _tape(device: str, own: Mapping[str, Any], texts: Mapping[int, str]) -> Tape:
    import numpy as np

    sizes = np.where(own["frees"], -own["allocation_bytes"], own["allocation_bytes"])
    workspace = [number for number, text in texts.items() if text == _WORKSPACE]
    temporary = np.isin(own["region_type"], workspace)
    op_keys, op_numbers = np.unique(own["tf_op"] * 2 + temporary, return_inverse=True)
    ops = [_text(texts, key >> 1) for key in op_keys.tolist()]
    roles = [
        layers.role_of(op, is_temporary=bool(key & 1))
        for op, key in zip(ops, op_keys.tolist(), strict=True)
    ]
    roles = layers.in_order(ops, roles, op_numbers[~own["frees"]].tolist())
    # One number for each pair: as NumPy compares pairs, it makes an error of an interrupt.
    kinds = int(own["data_type"].max()) + 1
    tensor_keys, tensor_numbers = np.unique(
        own["shape"] * kinds + own["data_type"], return_inverse=True
    )
    return Tape(
        device=device,
        before_bytes=int(own["bytes_allocated"][0] - sizes[0]),
        times_s=array("d", own["times_s"].tobytes()),
        addresses=_integers(own["addr"]),
        bytes=_integers(sizes),
        requested_bytes=_integers(own["requested_bytes"]),
        in_use_bytes=_integers(own["bytes_allocated"]),
        op_numbers=_integers(op_numbers),
        tensor_numbers=_integers(tensor_numbers),
        temporary=array("b", temporary.astype(np.int8).tobytes()),
        ops=tuple(ops),
        roles=tuple(roles),
        tensors=tuple(_tensor(texts, *divmod(key, kinds)) for key in tensor_keys.tolist()),
    )


def _integers(column: Any) -> "array[int]":
    return array("q", column.astype("int64").tobytes())


def _text(texts: Mapping[int, str], number: int) -> str:
    text = texts.get(number, "")
    return "" if text in NO_TEXT else text


def _tensor(texts: Mapping[int, str], shape: int, kind: int) -> tuple[Shape, str]:
    return _shape(_text(texts, shape)), _dtype(kind)


def _shape(text: str) -> Shape:
    """Read `[64,28,28,1]`; where a size is unknown there is no shape."""
    if not re.fullmatch(r"\[(?:\d+(?:,\d+)*)?\]", text):
        return None
    return tuple(int(size) for size in text[1:-1].split(",") if size)


def _dtype(number: int) -> str:
    """Give TensorFlow's name for its data type of that number; 0 is none."""
    dtypes = sys.modules.get("tensorflow.python.framework.dtypes")
    if dtypes is None or not number:
        return ""
    try:
        return str(dtypes.as_dtype(number).name)
    except TypeError:
        return ""
