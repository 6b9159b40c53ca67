"""The texts that only an out-of-memory error has: TensorFlow's, XLA's, CUDA's, NumPy's, Python's.

Which texts count depends on the error: in a user's own error "out of memory" is only words.
"""

import re
from dataclasses import dataclass
from typing import Literal

from oommagic.own_builtins import keep_builtins
from oommagic.report import FailureKind

keep_builtins(globals())

Place = Literal["device", "host"]

_PYTHON_ERRORS = frozenset({"MemoryError", "_ArrayMemoryError"})
_SYSTEM_ERRORS = frozenset({"OSError", "BlockingIOError"})
_TENSORFLOW_ERRORS = (
    frozenset({"OpError", "ResourceExhaustedError"})
    | {
        f"{reason}Error"
        for reason in ("Internal", "Unknown", "Aborted", "NotFound", "Unavailable", "Cancelled")
    }
    | {"FailedPreconditionError"}
)
# Keras and pybind raise some of TensorFlow's errors anew as this; a saved text may name no error.
_RAISED_ANEW = frozenset({"RuntimeError", ""})

_SIZE = r"(?P<size>\d{1,18}(?:\.\d{0,9})? ?(?:[KMGTPE]i?)?(?:B|bytes)\b)"


@dataclass(frozen=True, slots=True)
class Sign:
    """A text that tells that memory ran out, and what kind of failure it is."""

    pattern: re.Pattern[str]
    kind: FailureKind
    place: Place = "device"
    """Where, unless the text names an allocator or a device."""
    is_plain: bool = False
    """Ordinary words, which count in TensorFlow's own errors alone."""


def _sign(pattern: str, kind: FailureKind, place: Place = "device", *, plain: bool = False) -> Sign:
    return Sign(re.compile(pattern, re.MULTILINE), kind, place, plain)


# The first that is found counts: those that say most come first.
_SIGNS = (
    _sign(
        rf"Unable to allocate {_SIZE} for an array with "
        r"shape \((?P<shape>[\d, ]*)\) and data type (?P<dtype>\S+)",
        "python",
        "host",
    ),
    _sign(
        r"OOM when allocating (?:temporary )?tensor (?:with|of) shape ?\[(?P<shape>[\d,?]*)\]"
        r"(?: and type (?P<dtype>\w+))?"
        r"(?: on (?P<device>\S+))?(?: by allocator (?P<allocator>\S+))?",
        "allocation",
    ),
    _sign(
        rf"Out of memory while trying to allocate {_SIZE}"
        r"(?: with allocator (?P<allocator>\S+) on device (?P<ordinal>\d+))?",
        "compile",
    ),
    _sign(rf"Out of host memory while trying to allocate {_SIZE}", "compile", "host"),
    _sign(
        rf"Failed to allocate request for {_SIZE}(?: \((?P<bytes>\d{{1,18}})B\))?"
        r" on device ordinal (?P<ordinal>\d+)",
        "compile",
    ),
    _sign(r"Allocating (?P<bytes>\d{1,18}) bytes exceeds the memory limit of", "compile"),
    _sign(r"ran out of memory trying to instantiate command buffer", "compile"),
    _sign(rf"Ran out of memory in memory space \w+(?:\. Used {_SIZE})?", "compile"),
    _sign(r"CUDNN failed to allocate the scratch space", "scratch"),
    _sign(r"Failed to allocate scratch (?:buffer|memory)", "scratch", plain=True),
    _sign(r"(?:CUDNN|CUBLAS|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED", "scratch"),
    _sign(
        r"(?:Failed copying input tensor from \S+ to (?P<device>\S+) in order to run \w+: )?"
        r"Dst tensor is not initialized",
        "copy",
    ),
    _sign(r"Failed to allocate memory for the batch of component", "dataset", "host"),
    _sign(
        rf"(?:[Ff]ailed to alloc(?:ate)? (?:device memory of )?(?:{_SIZE}|[\d.]+[KMGTPE]?)"
        r"(?: \((?P<bytes>\d{1,18}) bytes\))?[^\n]*)?"
        r"CUDA_ERROR_OUT_OF_MEMORY|HIP_ERROR_OutOfMemory|hipErrorOutOfMemory",
        "allocation",
    ),
    _sign(r"on (?P<device>GPU:\d+) failed\. Status: out of memory", "allocation"),
    _sign(rf"[Ff]ailed to allocate {_SIZE} of aligned host memory", "compile", "host"),
    _sign(rf"Out of memory allocating {_SIZE}", "compile", "host", plain=True),
    _sign(r"Failed to allocate buffer for Literal", "compile", "host", plain=True),
    _sign(rf"Unable to allocate {_SIZE} for file reading", "allocation", "host", plain=True),
    _sign(r"(?:^|\}\} )MemoryError:", "python", "host", plain=True),
    _sign(r"std::bad_alloc", "allocation", "host"),
    _sign(r"failed to allocate memory", "allocation", plain=True),
)
_NO_MEMORY = _sign(r"(?:Errno 12\b.*)?Cannot allocate memory", "python", "host")
_ANY_TEXT = _sign(r".*", "python", "host")


def find(types: frozenset[str], text: str) -> tuple[Sign, re.Match[str]] | None:
    """Find the sign that an error of these types gives in its text."""
    is_tensorflow_s = bool(types & _TENSORFLOW_ERRORS)
    signs: list[Sign] = []
    if types & _PYTHON_ERRORS:
        signs = [*(sign for sign in _SIGNS if sign.kind == "python"), _ANY_TEXT]
    elif is_tensorflow_s or types & _RAISED_ANEW:
        signs = [sign for sign in _SIGNS if is_tensorflow_s or not sign.is_plain]
    elif types & _SYSTEM_ERRORS:
        signs = [_NO_MEMORY]
    matches = ((sign, sign.pattern.search(text)) for sign in signs)
    return next(((sign, match) for sign, match in matches if match is not None), None)
