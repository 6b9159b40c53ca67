"""What travels to a child process: a model as it is, but for its weights' values.

`pack` gives bytes that plain `pickle.loads` reads in the child. Code of the notebook travels by
value (cloudpickle). Nothing of the user's is run for it, and nothing is copied that is large.
"""

import errno
import io
import pickle
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from mmap import mmap
from pathlib import Path
from types import FunctionType
from typing import Any, BinaryIO

from oommagic.errors import CannotTravelError
from oommagic.trial import rebuild, words
from oommagic.trial.making_order import in_order_of_making
from oommagic.trial.sources import names_in_annotations, source_lines
from oommagic.trial.whereabouts import way_to
from oommagic.trial.words import Call, Reduced, Word
from oommagic.units import MIB, format_bytes

_Roots = tuple[tuple[str, object], ...]

_CONTENT = "content"
_LARGE_ARRAY_BYTES = MIB
_LARGEST_PARCEL_BYTES = 256 * MIB
# Texts and the like go one by one, and pickle takes note of each in the kernel's memory.
_LARGEST_OF_OBJECTS_BYTES = 32 * MIB

_LONGEST_WAY = 80
# What says that there is no room for what is written.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def pack(thing: object, *, values: bool = False, folder: Path | None = None) -> bytes:
    """Pack a thing and all that it needs; what cannot be sent is a `CannotTravelError`.

    Large weights travel without their values, unless those are wanted. Large arrays go as files
    into the folder, and without one are refused.
    """
    contents = _Contents(values=values, folder=folder)
    roots, stream = thing if isinstance(thing, tuple) else (thing,), _Stream()
    contents.first = in_order_of_making(roots)
    parts = _written(thing, tuple((_root_name(root), root) for root in roots), contents, stream)
    return _sent(contents, stream.getvalue(), parts)


@dataclass(frozen=True, slots=True)
class PackedNames:
    """Names of a notebook, and which of them are datasets that another one stands for."""

    packed: bytes
    stood_in: tuple[str, ...]


def pack_names(namespace: Mapping[str, object], names: Iterable[str], folder: Path) -> PackedNames:
    """Pack what names of a notebook stand for, for a cell that runs elsewhere.

    Values go with them. Large arrays go as files into the folder, to be read there, and can be
    written to without the files changing.
    """
    contents = _Contents(values=True, folder=folder, is_for_cell=True)
    sent = {name: namespace[name] for name in names}
    # Functions share their names with the cell, whose are known by a function of their world.
    world = namespace if isinstance(namespace, dict) else dict(namespace)
    marker = FunctionType(_nowhere.__code__, world)
    with (folder / _CONTENT).open("wb") as stream:
        parts = _written((sent, marker), tuple(sent.items()), contents, stream)
    packed = _sent(contents, _CONTENT, parts)
    stand_ins = [way_to(each, tuple(sent.items())) for each in contents.stood_in]
    return PackedNames(packed, tuple(way or "a dataset" for way in stand_ins))


def _nowhere() -> None:
    """Belong to the notebook, once it is made anew with the notebook's names."""


def _written(
    thing: object, roots: _Roots, contents: "_Contents", stream: "_Stream | BinaryIO"
) -> int:
    """Write a thing and all that it needs, and say in how many parts its contents come."""
    with _Naming(contents, roots):
        return _write(thing, contents, stream)


@dataclass(frozen=True, slots=True)
class _Naming:
    """Names what cannot be packed: objects of the user's may raise any error when they are."""

    contents: "_Contents"
    roots: _Roots

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, CannotTravelError):
            raise CannotTravelError(self._named(error.what), error.why) from None
        is_ours = isinstance(error, OSError) and error.errno in _NO_ROOM
        if isinstance(error, Exception) and not is_ours and not isinstance(error, MemoryError):
            who = "cell" if self.contents.is_for_cell else "function that uses it"
            what = f"an object of the class {type(self.contents.last).__qualname__}"
            why = f"{(str(error) or type(error).__name__).rstrip('.')}. Have the {who} make it."
            raise CannotTravelError(self._named(what), why) from error

    def _named(self, what: str) -> str:
        """Say what it is that cannot be sent, by the names that lead to it if there are any."""
        way = way_to(self.contents.last, self.roots)
        if len(way) > _LONGEST_WAY:
            way = way[:_LONGEST_WAY] + "…"
        return f"`{way}`, {what}," if way else what[:1].upper() + what[1:]


def _sent(contents: "_Contents", stream: bytes | str, parts: int) -> bytes:
    """Give what is opened in the child; `stream` is what was written, or the file that has it."""
    settings = words.settings() if "tensorflow" in sys.modules else {}
    sent = Call(rebuild.open_parcel, settings, contents.sources, stream, parts)
    return pickle.dumps(sent, protocol=pickle.HIGHEST_PROTOCOL)


def _write(thing: object, contents: "_Contents", stream: "_Stream | BinaryIO") -> int:
    """Write a thing, then what its parts hold, and say how many those are."""
    pickler = _pickler_class()(stream, contents)
    pickler.dump(contents.first)
    pickler.dump(thing)
    parts = 0
    while contents.waiting:
        pickler.dump(contents.waiting.pop())
        parts += 1
    return parts


def _root_name(root: object) -> str:
    if isinstance(root, FunctionType):
        return root.__name__
    return "model" if words.is_model(root) else type(root).__name__


class _Contents:
    """What is in a parcel so far, and what is still to come."""

    def __init__(self, *, values: bool, folder: Path | None, is_for_cell: bool = False) -> None:
        self.values = values
        self.is_for_cell = is_for_cell
        self.first: Sequence[object] = ()
        """What is made before all else, in this order."""
        self.stood_in: list[object] = []
        """Datasets in whose place others go."""
        self.waiting: list[tuple[object, object, dict[str, Any]]] = []
        """Empty objects that were sent, their items and what else they hold."""
        self.last: object = None
        """What was looked at last: the culprit, if packing fails."""
        self.sources: dict[str, list[str]] = {}
        """Those of functions that are in no file, by the names of the files that they claim."""
        self._folder = folder
        self._files = 0
        self._known: dict[type, Word | None] = {}

    def reduced(self, thing: object) -> Reduced | None:
        """Say how to make a thing, or None where pickle knows that itself."""
        self.last = thing
        kind = type(thing)
        if kind not in self._known:
            self._known[kind] = words.word_for(kind)
        word = self._known[kind]
        return None if word is None else word(thing, self)

    def later(self, thing: object, items: object, state: dict[str, Any]) -> None:
        """Send what an empty object holds when all else is sent."""
        self.waiting.append((thing, items, state))

    def function(self, function: FunctionType, names: dict[str, Any]) -> None:
        """Send a function's source with it, and add to the names outside that go with it."""
        source = source_lines(function)
        if source is not None:
            self.sources.update([source])
        outside = function.__globals__
        names.update((n, outside[n]) for n in names_in_annotations(function) if n in outside)

    def stood_in_for(self, dataset: object) -> None:
        """Take note of a dataset in whose place another one goes."""
        self.stood_in.append(dataset)

    def large_array(self, array: Any) -> Reduced | None:
        """Have a large array read from a file; None for one that is not."""
        if array.nbytes <= _LARGE_ARRAY_BYTES:
            return None
        if self.is_for_cell and array.dtype.hasobject and array.nbytes <= _LARGEST_OF_OBJECTS_BYTES:
            return None
        # A cell may write into an array of its own, and the file stays as it is.
        mode = "c" if self.is_for_cell and array.flags.writeable else "r"
        if isinstance(array.base, mmap) and getattr(array, "filename", None):
            order = "C" if array.flags.c_contiguous else "F"
            place = (str(array.filename), array.dtype, array.offset, array.shape, order, mode)
            return rebuild.mapped_array, place
        if self._folder is None or array.dtype.hasobject:
            size = format_bytes(array.nbytes)
            raise CannotTravelError(f"an array of {size}", "it is too large to be copied.")
        return rebuild.array_in, (self._file_of(array, self._folder), mode)

    def _file_of(self, array: Any, folder: Path) -> str:
        import numpy as np

        folder.mkdir(mode=0o700, exist_ok=True)
        self._files += 1
        path = folder / f"array-{self._files}.npy"
        _make_sure_of_room(folder, array.nbytes)
        try:
            np.save(path, array, allow_pickle=False)
        except OSError as error:  # NumPy's own says no number
            raise OSError(error.errno or errno.ENOSPC, error.strerror or str(error)) from error
        # A cell's may be opened on another machine, where the folder is another.
        return path.name if self.is_for_cell else str(path)


def _make_sure_of_room(folder: Path, needed_bytes: int) -> None:
    """Fail beforehand as writing would: a disk that is filled up is everybody's."""
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        needed, free = format_bytes(needed_bytes), format_bytes(free_bytes)
        raise OSError(errno.ENOSPC, f"an array takes {needed}, and {free} are free")


class _Stream(io.BytesIO):
    """Bytes, but not any number of them."""

    def write(self, piece: Any) -> int:
        if self.tell() + memoryview(piece).nbytes > _LARGEST_PARCEL_BYTES:
            limit = format_bytes(_LARGEST_PARCEL_BYTES)
            raise CannotTravelError(
                "what the model or function uses",
                f"it is more than {limit}. Keep data in NumPy arrays, which are sent as files.",
            )
        return super().write(piece)


@cache
def _pickler_class() -> Any:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
        """A pickler that knows words for what pickle does not know."""

        def __init__(self, stream: _Stream | BinaryIO, contents: _Contents) -> None:
            super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
            self._contents = contents

        def reducer_override(self, obj: object) -> Any:
            reduced = self._contents.reduced(obj)
            if reduced is not None:
                return reduced
            reduced = super().reducer_override(obj)
            if isinstance(obj, FunctionType) and reduced is not NotImplemented:
                _, (_, slots), *_ = reduced[1:]
                self._contents.function(obj, slots["__globals__"])
            return reduced

    return Pickler
