"""Keeps a cell from writing files of the user's and from the network; it writes all the same.

It runs in a folder of ours that looks like the notebook's: real folders, and links in place of
files. What it writes there is new, or takes the place of a link. Elsewhere nothing is written:
what Python opens is refused with a sentence, what libraries open is refused by Linux, where it
can (Landlock). Where it cannot, a library would write through a link: there are copies then.

What is sent over the network cannot be taken back, and nobody can tell reading from writing there:
what Python would connect to is refused. TensorFlow's own readers of cloud storage are left alone:
refused, they would try again for minutes, and data come by them.
"""

import errno
import os
import shutil
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from oommagic.trial.landlock import write_only_in

_MOST_LINKS = 5000
_LARGEST_COPY_BYTES = 1 << 28
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_SYSTEMS_OWN = tuple(map(Path, ("/dev", "/proc")))
_OF_NETWORKS = (socket.AF_INET, socket.AF_INET6)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class HeldBackError(PermissionError):
    """A file would have been written that a trial must not write."""

    would = "write"


class NoNetworkError(HeldBackError):
    """Something would have been reached over the network."""

    would = "connect to"


def hold_to(folder: Path) -> bool:
    """Let nothing be written but in this folder, by any library; say whether the system helps."""
    return write_only_in([folder, *_SYSTEMS_OWN])


@dataclass(slots=True)
class Writing:
    """What the cell has written, or would have."""

    here: Path
    """The folder that stands for the notebook's."""
    folder: Path
    """In which all may be written."""
    is_held: bool
    """Whether the system keeps libraries from writing elsewhere."""
    written: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)
    unreached: dict[str, None] = field(default_factory=dict)
    """What the cell would have connected to."""
    missing: dict[str, None] = field(default_factory=dict)
    """Files of the notebook's folder that were too large to copy."""

    def begin(self, notebooks_folder: Path) -> None:
        """Stand in for the notebook's folder, and watch over what Python writes, for good."""
        sys.dont_write_bytecode = True
        mirror = _Mirror(self.folder, as_links=self.is_held)
        mirror.make(notebooks_folder, self.here)
        self.missing = mirror.missing
        os.chdir(self.here)
        sys.addaudithook(self._hear)

    def notes(self) -> Iterator[str]:
        """Say what became of the cell's files."""
        if self.written:
            yield f"What the cell writes was put aside and is gone: {_listed(self.written)}."
        if self.unreached:
            yield f"A trial does not use the network: {_listed(self.unreached)} was not reached."
        if self.missing:
            yield (
                "This system cannot keep libraries from writing the notebook's files: the trial "
                f"had copies of them, and not of those that are too large: {_listed(self.missing)}."
            )

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        check = _CHECKS.get(event)
        if check is not None:
            check(self, *arguments)

    def opened(self, path: Any, _mode: Any, flags: int) -> None:
        """Look at a file that is about to be opened."""
        if isinstance(path, int) or not flags & _WRITES:
            return
        place = self._checked(path)
        if place is not None and place.is_symlink() and not flags & os.O_EXCL:
            _put_aside(place, keep=not flags & os.O_TRUNC)

    def changed(self, path: Any, *others: Any) -> None:
        """Look at a file or folder that is about to be made or removed."""
        if not isinstance(path, int):
            self._checked(path, _folder_of(others))

    def described(self, path: Any, *others: Any) -> None:
        """Look at a file whose times or rights are about to change: a link's are its file's."""
        if isinstance(path, int):
            path, others = _folder_of((path,)) or path, ()
        if isinstance(path, int):  # the system does not tell which one it is
            return
        place = self._checked(path, _folder_of(others))
        if place is not None and place.is_symlink():
            _put_aside(place, keep=True)

    def labelled(self, path: Any, *_: Any) -> None:
        """Look at a file about which something is about to be noted."""
        self.described(path)

    def cut(self, path: Any, _length: int) -> None:
        """Look at a file that is about to be cut short."""
        self.opened(path, None, os.O_WRONLY)

    def moved(self, source: Any, target: Any, *folders: Any) -> None:
        """Look at two files, one of which takes the place of the other."""
        self._checked(source, _folder_of(folders[:1]))
        self._checked(target, _folder_of(folders))

    def linked(self, _source: Any, target: Any, *folders: Any) -> None:
        """Look at a link that is about to be made."""
        self._checked(target, _folder_of(folders))

    def connected(self, link: Any, address: Any) -> None:
        """Look at what is about to be reached by a socket; those within a machine have paths."""
        if getattr(link, "family", None) in _OF_NETWORKS and isinstance(address, tuple):
            self._keep_from(":".join(map(str, address[:2])))

    def looked_up(self, host: Any, *_: Any) -> None:
        """Look at a name whose address is asked for, which is clearer than its address."""
        name = os.fsdecode(host) if isinstance(host, str | bytes) else ""
        if name not in {"", "localhost", socket.gethostname()} and not _is_address(name):
            self._keep_from(name)

    def _keep_from(self, place: str) -> None:
        self.unreached[place] = None
        raise NoNetworkError(
            errno.EACCES,
            "a trial does not use the network: have another cell load what this one needs", place,
        )  # fmt: skip

    def _checked(self, path: Any, base: Path | None = None) -> Path | None:
        """Give where a file stands, in the folder in which all may be written, or refuse it."""
        asked = Path(os.fsdecode(path))
        place = (base or Path()) / asked
        place = Path(os.path.realpath(place.parent)) / place.name
        if any(place.is_relative_to(own) for own in _SYSTEMS_OWN):
            return None
        if not place.is_relative_to(self.folder):
            self.refused[str(asked)] = None
            raise HeldBackError(
                errno.EACCES, "a trial writes no files of yours, and this one is not", str(asked)
            )
        if place.is_relative_to(self.here):
            self.written[str(place.relative_to(self.here))] = None
        return place


_CHECKS: dict[str, Callable[..., None]] = {
    "open": Writing.opened,
    **dict.fromkeys(("os.remove", "os.rmdir", "os.mkdir"), Writing.changed),
    **dict.fromkeys(("os.chmod", "os.chown", "os.utime"), Writing.described),
    **dict.fromkeys(("os.setxattr", "os.removexattr"), Writing.labelled),
    "os.truncate": Writing.cut,
    "os.rename": Writing.moved,
    "os.link": Writing.linked,
    "os.symlink": Writing.linked,
    **dict.fromkeys(("socket.connect", "socket.sendto", "socket.sendmsg"), Writing.connected),
    "socket.getaddrinfo": Writing.looked_up,
}


class _Mirror:
    """Makes folders like the notebook's, with links to its files, or with copies of them."""

    def __init__(self, leave_out: Path, *, as_links: bool) -> None:
        self._leave_out = leave_out
        self._as_links = as_links
        self._room_bytes = _LARGEST_COPY_BYTES
        self.missing: dict[str, None] = {}

    def make(self, source: Path, target: Path) -> None:
        """Make a folder like that one; beyond so many files, links stand for folders too."""
        waiting, entries = deque([(source, target)]), 0
        while waiting:
            folder, copy = waiting.popleft()
            with _unless_the_disk_is_full():
                copy.mkdir(exist_ok=True)
            for entry in self._entries(folder):
                entries += 1
                place = copy / entry.name
                if entry.is_dir(follow_symlinks=False) and entries < _MOST_LINKS:
                    waiting.append((Path(entry.path), place))
                    continue
                with _unless_the_disk_is_full():
                    self._stand_in(entry, place)

    def _entries(self, folder: Path) -> "list[os.DirEntry[str]]":
        """List what is in a folder; of one that may not be read, nothing."""
        with suppress(OSError), os.scandir(folder) as found:
            entries = [one for one in found if Path(one.path) != self._leave_out]
            return sorted(entries, key=lambda entry: entry.name)
        return []

    def _stand_in(self, entry: "os.DirEntry[str]", place: Path) -> None:
        if self._as_links:
            place.symlink_to(entry.path)
        else:
            self._copy(entry, place, entry.name)

    def _copy(self, entry: "os.DirEntry[str]", place: Path, name: str) -> None:
        """Copy a file, if there is room for it."""
        size = entry.stat().st_size if entry.is_file() else None
        if size is None or size > self._room_bytes:
            self.missing[name] = None
            return
        self._room_bytes -= size
        shutil.copyfile(entry.path, place)


@contextmanager
def _unless_the_disk_is_full() -> Iterator[None]:
    """Go on without what cannot be read or named; without room there would be no end of that."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise


def _put_aside(link: Path, *, keep: bool) -> None:
    """Put a file of our own in the place of a link, with what the file has if that is kept."""
    source = link.resolve()
    if keep and source.is_file() and source.stat().st_size > _LARGEST_COPY_BYTES:
        raise HeldBackError(
            errno.EACCES, "a trial writes no files of yours, and this one is too large to copy",
            link.name,
        )  # fmt: skip
    link.unlink()
    if keep and source.is_file():
        shutil.copyfile(source, link)


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(name.partition("%")[0]))
    return False


def _folder_of(arguments: tuple[Any, ...]) -> Path | None:
    """Give the folder that a path is relative to, where it came as an open one."""
    numbers = [one for one in arguments[-1:] if isinstance(one, int) and one >= 0]
    if not numbers or not Path("/proc/self/fd").exists():
        return None
    with suppress(OSError):
        return Path(f"/proc/self/fd/{numbers[0]}").readlink()
    return None


def _listed(names: dict[str, None]) -> str:
    first = ", ".join(list(names)[:3])
    return first if len(names) <= 3 else f"{first} and {len(names) - 3} more"  # noqa: PLR2004
