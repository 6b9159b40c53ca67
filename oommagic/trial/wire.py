"""What a child says to its parent: values of ours, one after the other, on a pipe of their own."""

import io
import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oommagic.recording import StepTapes

_MARK = b"oommagic"
_HEADER = struct.Struct("<8sQ")
_OURS = ("oommagic.report", "oommagic.recording", "oommagic.trial.outcomes", __name__)
_PYTHONS = {("array", "array"), ("array", "_array_reconstructor")}

# What a damaged pickle may raise.
_UNREADABLE = (
    pickle.UnpicklingError,
    AttributeError,
    EOFError,
    ImportError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
)


class NotAMessageError(Exception):
    """What came through the pipe was not written by `to_bytes`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of what goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class GraphWanted:
    """What the child cannot make itself: the graph of a step at this batch size."""

    batch: int


@dataclass(frozen=True, slots=True)
class SizeWanted:
    """What the child knows of a step; it asks at which batch size XLA shall tell more."""

    tapes: StepTapes


@dataclass(frozen=True, slots=True)
class Refused:
    """oommagic itself could not do what was asked, and says why."""

    error_type: str
    arguments: tuple[str, ...]


def to_bytes(message: object) -> bytes:
    """Say a message so that its end can be found."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(_MARK, len(body)) + body


class Inbox:
    """Puts messages together from the pieces in which a pipe hands them out."""

    def __init__(self) -> None:
        """Begin without any piece."""
        self._pieces = bytearray()

    def messages(self, piece: bytes) -> Iterator[Any]:
        """Add a piece, and yield each message that is whole with it."""
        self._pieces += piece
        while len(self._pieces) >= _HEADER.size:
            mark, length = _HEADER.unpack_from(self._pieces)
            if mark != _MARK:
                raise NotAMessageError
            end = _HEADER.size + length
            if len(self._pieces) < end:
                return
            body = bytes(self._pieces[_HEADER.size : end])
            del self._pieces[:end]
            yield _read(body)


class _OurUnpickler(pickle.Unpickler):
    """Makes nothing but our own values: a child runs code that may not be the user's own."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PYTHONS:
            return super().find_class(module, name)
        # A module's own classes alone: not what it imports, nor a function of it.
        found = super().find_class(module, name) if module in _OURS else None
        if isinstance(found, type) and found.__module__ == module:
            return found
        raise pickle.UnpicklingError(f"{module}.{name}")


def _read(body: bytes) -> Any:
    try:
        return _OurUnpickler(io.BytesIO(body)).load()
    except _UNREADABLE as error:
        raise NotAMessageError from error
