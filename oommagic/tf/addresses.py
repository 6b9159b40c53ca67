"""Where tensors and variables lie in a device's memory, without copying or moving anything.

TensorFlow's private calls for it stand here.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from oommagic.own_builtins import keep_builtins
from oommagic.tf import context

keep_builtins(globals())

_CALLS = "tensorflow.python.pywrap_tfe"
_DTYPES = "tensorflow.python.framework.dtypes"
_ERRORS = "tensorflow.python.framework.errors_impl"
_CORE = "tensorflow.python.eager.core"

# TensorFlow ends the process when it is asked for the address of strings: only these are asked.
_ADDRESSABLE = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
})  # fmt: skip
_WITHOUT_BYTES = frozenset({"resource", "variant"})
_BYTES_OF_A_STRING = 24  # of its place in the tensor; a longer text lies in the host's memory


class EagerTensor(Protocol):
    """What is used of a tensor: calls into the library, none of them Python's."""

    backing_device: str

    def _datatype_enum(self) -> int: ...
    def _shape_tuple(self) -> tuple[int, ...]: ...
    def _num_elements(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor's memory; address 0 where it cannot be known."""

    device: str
    address: int
    bytes: int
    shape: tuple[int, ...]
    dtype: str


class _Managed(ctypes.Structure):
    """The beginning of a DLManagedTensor, as far as the data."""

    _fields_ = (("data", ctypes.c_void_p),)


def place_of(tensor: object) -> Place | None:
    """Say where an eager tensor lies; None for handles and for what TensorFlow refuses."""
    known = cast("EagerTensor", tensor)
    try:
        dtype, size = _dtype(known._datatype_enum())  # noqa: SLF001 (the C type's own)
        if dtype in _WITHOUT_BYTES:
            return None
        shape, count = known._shape_tuple(), known._num_elements()  # noqa: SLF001
        device = context.short_name(known.backing_device)
        address = _address(tensor) if count and dtype in _ADDRESSABLE else 0
    except _refusals():
        return None
    return Place(device, address, count * size, tuple(shape), dtype)


def place_of_variable(handle: object, dtype: int) -> Place | None:
    """Say where the value of a variable lies; None if it has none.

    A variable whose rows were updated one by one (an embedding's) is copied when it is read. So
    it is told not to: TensorFlow sets that again by itself at the next such update.
    """
    try:
        _run("DisableCopyOnRead", handle, (), 0)
        (value,) = _run("ReadVariableOp", handle, ("dtype", dtype), 1)
    except _refusals():
        return None
    return place_of(value)


def _run(op: str, handle: object, attributes: tuple[object, ...], outputs: int) -> Sequence[object]:
    """Run an op without gradient tapes noticing."""
    run = cast(
        "Callable[..., Sequence[object]]", getattr(sys.modules.get(_CALLS), "TFE_Py_Execute", None)
    )
    own = context.handle_of(context.current_context())
    return run(own, None, op, [handle], attributes, outputs)


def _address(tensor: object) -> int:
    wrap = getattr(sys.modules.get(_CALLS), "TFE_ToDlpackCapsule", None)
    if wrap is None:
        return 0
    capsule = wrap(tensor)  # lets the tensor go with the capsule
    pointer = _pointer_in(ctypes.py_object(capsule), b"dltensor")
    return int(_Managed.from_address(pointer).data or 0)


_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _dtype(number: int) -> tuple[str, int]:
    """Give a data type's name and the bytes of one element."""
    dtype = sys.modules[_DTYPES].as_dtype(number)
    return dtype.name, _BYTES_OF_A_STRING if dtype.name == "string" else dtype.size


def _refusals() -> tuple[type[Exception], ...]:
    """Give what TensorFlow raises when it does not do what it is asked."""
    own = (
        getattr(sys.modules.get(_ERRORS), "OpError", None),
        getattr(sys.modules.get(_CORE), "_NotOkStatusException", None),
    )
    general = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)
    return (*general, *(error for error in own if error is not None))
