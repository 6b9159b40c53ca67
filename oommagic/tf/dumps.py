"""What an allocator held when an allocation failed, from the dumps that TensorFlow writes then.

TensorFlow looks for the variable at each failed attempt, also long after its import, and writes
what the allocator holds at that moment. Where nothing fails, nothing is written. Several dumps
come of one failure (it is tried again for ten seconds), and some of no failure at all (an op that
asks for scratch memory and can do without), so `prune` is to be called now and then.

The library reads the variable from the process's environment, which child processes inherit. So
the path that it names leads to our folder within this process alone: what a child's TensorFlow
writes there goes nowhere, and is not taken for ours.
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from threading import get_native_id
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.report import Failure
from oommagic.tf import arena, context
from oommagic.tf.folders import new_folder, remove, remove_left_behind

keep_builtins(globals())

_VARIABLE = "TF_BFC_MEMORY_DUMP"
_MESSAGES = "tensorflow.core.protobuf.bfc_memory_map_pb2"
_PROTOBUF = "google.protobuf.message"

_FILE = re.compile(r"_(?P<allocator>.+)\.(?P<microseconds>\d{1,19})$")
_GPU_ALLOCATOR = re.compile(r"GPU_(?P<number>\d+)_bfc")
ARENA_ALLOCATOR = "bfc_cpu_allocator_for_gpu"

_OWN_ROOT = "/proc/self/task/{thread}/root"

# An allocation is tried for ten seconds before it fails; what other ops free meanwhile makes
# the later dumps of the same failure less telling than the fullest one.
_US = 1_000_000
_ONE_FAILURE_US = 11 * _US
_KEPT = 16


@dataclass(frozen=True, slots=True)
class Dump:
    """What one allocator held at one moment, in figures."""

    allocator: str
    device: str
    """As elsewhere, `GPU:0`; empty for an allocator of host memory."""
    in_use_bytes: int
    reserved_bytes: int
    """What the allocator had taken from the device, in use or not."""
    largest_free_chunk_bytes: int


class DumpFolder:
    """A temporary folder that TensorFlow's dumps go to while it is open.

    A user who has set the variable keeps it and the files: they are read where they are.
    """

    def __init__(self) -> None:
        """Arrange nothing yet."""
        self._own: Path | None = None
        self._prefix = ""
        self._earlier: frozenset[Path] = frozenset()

    def open(self) -> None:
        """Have dumps written from now on."""
        self._prefix = os.environ.get(_VARIABLE, "")
        if not self._prefix:
            self._open_own()
        self._earlier = frozenset(path for _, path in self._files())

    def _open_own(self) -> None:
        remove_left_behind()
        # Not a TemporaryDirectory: that would leave a callback for the end of the process.
        self._own = new_folder()
        try:
            self._own.mkdir(mode=0o700)
        except OSError:  # there is nowhere to write: a failure goes without a dump
            self._own = None
            return
        self._prefix = str(self._own / "dump")
        # The library sees it; `os.environ`, which the user sees, stays as it was.
        os.putenv(_VARIABLE, _for_us_alone(self._prefix))

    def close(self) -> None:
        """Take back the variable and the folder."""
        if self._own is not None:
            if _VARIABLE not in os.environ:  # the user may have set it meanwhile
                os.unsetenv(_VARIABLE)
            for _ in range(2):  # a dump that was being written may have come in between
                remove(self._own)
        self._own, self._prefix, self._earlier = None, "", frozenset()

    def prune(self) -> None:
        """Delete all but the newest dumps of our own folder."""
        if self._own is not None:
            for _, path in sorted(self._files())[:-_KEPT]:
                path.unlink(missing_ok=True)

    def read(self, device: str = "", since_s: float = 0.0) -> Dump | None:
        """Give what the allocator of that device, or of any, held at the last failure.

        What was written before `since_s`, by the system's clock, is of an earlier one.
        """
        fullest: Dump | None = None
        newest_us = 0
        for microseconds, path in sorted(self._files(), reverse=True):
            if microseconds < since_s * _US:
                break
            dump = _read(path)
            if dump is None or (device and dump.device != device):
                continue
            newest_us = newest_us or microseconds
            if newest_us - microseconds > _ONE_FAILURE_US:
                break
            if fullest is None or dump.in_use_bytes > fullest.in_use_bytes:
                fullest = dump
        return fullest

    def add_to(self, failure: Failure, since_s: float = 0.0) -> Failure:
        """Complete a device's failure with what its allocator held; see `read`."""
        dump = self.read(failure.device, since_s) if failure.place == "device" else None
        return failure if dump is None else completed(failure, dump)

    def _files(self) -> Iterator[tuple[int, Path]]:
        """Yield the dumps written since `open`, each with its time."""
        folder, _, start = self._prefix.rpartition("/")
        if not self._prefix or not Path(folder or ".").is_dir():
            return
        for path in Path(folder or ".").glob(f"{_literally(start)}_*"):
            match = _FILE.search(path.name)
            if match is not None and path not in self._earlier:
                yield int(match["microseconds"]), path


def completed(failure: Failure, dump: Dump) -> Failure:
    """Add to a failure what the dump tells.

    The largest block that could have been had is a free chunk, or what the limit leaves to take.
    """
    limit = failure.limit_bytes or limit_of(dump.device)
    untaken = max(0, limit - dump.reserved_bytes) if limit else 0
    return replace(
        failure,
        device=failure.device or dump.device,
        in_use_bytes=dump.in_use_bytes,
        limit_bytes=limit,
        largest_free_bytes=max(dump.largest_free_chunk_bytes, untaken),
        allocator=failure.allocator or dump.allocator,
    )


def device_of(allocator: str) -> str:
    """Name the device whose memory an allocator hands out; empty where it does not say."""
    match = _GPU_ALLOCATOR.fullmatch(allocator)
    if match is not None:
        return f"GPU:{match['number']}"
    return "CPU:0" if allocator == ARENA_ALLOCATOR else ""


def limit_of(device: str) -> int | None:
    """Give what a device's allocator may hand out at most, where that is known."""
    if arena.owns(device):
        running = arena.current()
        return running.limit_bytes if running is not None else None
    handle = context.handle_of(context.current_context())
    if handle is None or not device or device.startswith("CPU"):
        return None
    limits = context.memory_limits(handle)
    return next((size for name, size in limits.items() if name.endswith(f":{device}")), None)


def _for_us_alone(path: str) -> str:
    """Write a path by way of one of our threads, which no other process has."""
    own_root = Path(_OWN_ROOT.format(thread=get_native_id()))
    return f"{own_root}{path}" if own_root.exists() else path


def _literally(start: str) -> str:
    """Write a part of a file's name so that it stands for itself in a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", start)


def _read(path: Path) -> Dump | None:
    """Read one dump; None where it is gone, not finished, or of no use."""
    if "tensorflow" not in sys.modules:
        return None
    message = import_module(_MESSAGES).MemoryDump()
    try:
        message.ParseFromString(path.read_bytes())
    except (OSError, import_module(_PROTOBUF).DecodeError):
        return None
    return _as_dump(message) if message.allocator_name else None


def _as_dump(message: Any) -> Dump:
    pieces = message.chunk
    return Dump(
        allocator=message.allocator_name,
        device=device_of(message.allocator_name),
        in_use_bytes=message.stats.bytes_in_use,
        reserved_bytes=sum(each.size for each in pieces),
        largest_free_chunk_bytes=max((each.size for each in pieces if not each.in_use), default=0),
    )
