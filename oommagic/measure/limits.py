"""How much memory this process may use, who says so, and how much of it is left."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from oommagic.measure.gauges import machine_memory

_ROOT = Path("/")
_NO_LIMIT = 1 << 62  # version 1 writes "no limit" as the last whole page below 2**63
_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")
_FILE_CACHE = ("inactive_file", "active_file")


@dataclass(frozen=True, slots=True)
class Limit:
    """A number of bytes that this process cannot go beyond, and whose limit it is."""

    bytes: int
    source: str
    counts_reserved: bool = False
    """It counts what was asked for, used or not: it is reached before as much is resident."""


class LowestLimit:
    """The limit that counts in a run: someone may set one for a part of the run alone."""

    def __init__(self) -> None:
        """Take note of the limit as it is now."""
        self.limit = host_limit()

    def look(self) -> None:
        """Take note of a lower one that the process was given meanwhile; takes microseconds."""
        self.limit = min((self.limit, *_process_limits()), key=lambda limit: limit.bytes)


@dataclass(frozen=True, slots=True)
class _Version:
    """What one version of control groups calls its files."""

    name: str
    limit_file: str
    use_file: str
    cache_keys: tuple[str, ...]


_V1 = _Version(
    "cgroup v1",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    tuple(f"total_{key}" for key in _FILE_CACHE),
)
_V2 = _Version("cgroup v2", "memory.max", "memory.current", _FILE_CACHE)


@dataclass(frozen=True, slots=True)
class _Group:
    """A control group that this process is in, directly or by a group below."""

    version: _Version
    folder: Path

    def limit_bytes(self) -> int | None:
        """Give the limit on this group, or None if there is none.

        Version 1 also tells the smallest limit of the groups above, and a container cannot
        see those otherwise.
        """
        limits = (
            _number_in(self.folder / self.version.limit_file),
            _table_in(self.folder / "memory.stat").get("hierarchical_memory_limit"),
        )
        return min((n for n in limits if n is not None and n < _NO_LIMIT), default=None)

    def available_bytes(self) -> int | None:
        """Give what is left below the limit; cached pages of files would make way."""
        limit = self.limit_bytes()
        if limit is None:
            return None
        stat = _table_in(self.folder / "memory.stat")
        cache = sum(stat.get(key, 0) for key in self.version.cache_keys)
        use = (_number_in(self.folder / self.version.use_file) or 0) - cache
        return max(0, limit - max(0, use))


def host_limit(root: Path = _ROOT) -> Limit:
    """Give the smallest limit on this process's memory.

    That is the machine's memory, a control group's limit, or what `ulimit` set. An address
    space or data segment holds more than what is resident, so those two limits are reached
    before the figure that is shown beside them.
    """
    return min(_limits(root), key=lambda limit: limit.bytes)


def machine_bytes(root: Path = _ROOT) -> int:
    """Give the machine's memory, which there would be without any limit."""
    return _machine(root, "MemTotal")


def set_limits(root: Path = _ROOT) -> tuple[Limit, ...]:
    """Give the limits that someone has set below the machine's memory."""
    total = machine_bytes(root)
    return tuple(limit for limit in _limits(root) if limit.bytes < total)


def available_bytes(root: Path = _ROOT) -> int:
    """Give how much more memory this process could take before the kernel would kill it."""
    left = [group.available_bytes() for group in _groups(root)]
    return min([_machine(root, "MemAvailable"), *(n for n in left if n is not None)])


def _limits(root: Path) -> Iterator[Limit]:
    yield Limit(machine_bytes(root), "this machine's memory")
    for group in _groups(root):
        limit = group.limit_bytes()
        if limit is not None:
            yield Limit(limit, f"the container's limit ({group.version.name})")
    yield from _process_limits()


def _process_limits() -> Iterator[Limit]:
    if sys.platform == "win32":
        return
    import resource

    for name, number in (
        ("address space", resource.RLIMIT_AS),
        ("data segment", resource.RLIMIT_DATA),
    ):
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            source = f"this process's limit on its {name} (ulimit)"
            yield Limit(soft, source, counts_reserved=True)


def _machine(root: Path, key: str) -> int:
    kibibytes = _table_in(root / "proc/meminfo").get(key)
    if kibibytes is not None:
        return kibibytes * 1024
    memory = machine_memory()
    return memory.total_bytes if key == "MemTotal" else memory.available_bytes


def _groups(root: Path) -> Iterator[_Group]:
    """Give each group from this process's own up to the top of what is mounted."""
    paths = dict(_own_paths(root))
    for version, mount_point, mount_root in _mounts(root):
        if version not in paths:
            continue
        top = root / mount_point.relative_to("/")
        below = _path_below(mount_root, paths[version])
        yield from (_Group(version, top / part) for part in (below, *below.parents))


def _own_paths(root: Path) -> Iterator[tuple[_Version, PurePosixPath]]:
    """Read which groups the process is in: lines such as `4:memory:/user/1` and `0::/user/1`."""
    for line in _lines_in(root / "proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield _V2, PurePosixPath(path)
        elif "memory" in controllers.split(","):
            yield _V1, PurePosixPath(path)


def _mounts(root: Path) -> Iterator[tuple[_Version, PurePosixPath, PurePosixPath]]:
    """Read where groups are mounted, and which part of their tree is to be seen there."""
    for line in _lines_in(root / "proc/self/mountinfo"):
        mount, _, filesystem = line.partition(" - ")
        mount_root, mount_point = (PurePosixPath(_unescaped(p)) for p in mount.split(" ")[3:5])
        kind, _, options = filesystem.split(" ", 2)
        if kind == "cgroup2":
            yield _V2, mount_point, mount_root
        elif kind == "cgroup" and "memory" in options.split(","):
            yield _V1, mount_point, mount_root


def _path_below(mount_root: PurePosixPath, path: PurePosixPath) -> PurePosixPath:
    """Give the path inside the mount; a group outside of what is mounted is seen as its top."""
    if ".." in path.parts or not path.is_relative_to(mount_root):
        return PurePosixPath()
    return path.relative_to(mount_root)


def _unescaped(path: str) -> str:
    return _OCTAL_ESCAPE.sub(lambda match: chr(int(match[1], 8)), path)


def _lines_in(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _table_in(path: Path) -> dict[str, int]:
    """Read lines such as `MemTotal:  24684100 kB` or `active_file 1093632`."""
    table = {}
    for line in _lines_in(path):
        match line.split():
            case [key, number, *_] if number.isdecimal():
                table[key.rstrip(":")] = int(number)
    return table


def _number_in(path: Path) -> int | None:
    """Read a file that holds one number; `max`, or no such file, is None."""
    text = "".join(_lines_in(path)).strip()
    return int(text) if text.isdecimal() else None
