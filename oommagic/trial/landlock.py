"""Linux's own way to keep a process from writing anywhere but in some folders (Landlock).

It holds for everything that the process runs, libraries in C too. Where the kernel has it not,
nothing happens.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_GIVE_VERSION = 1
_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_WRITE_FILE = 1 << 1
# Removing and making of each kind; moving between folders and cutting short came later.
_CHANGE = sum(1 << bit for bit in range(4, 13))
_SINCE = {2: 1 << 13, 3: 1 << 14}


def write_only_in(folders: Iterable[Path]) -> bool:
    """Restrict this thread, and those that it starts, for good; say whether that is so."""
    if sys.platform != "linux":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    version = call(_CREATE, None, 0, _GIVE_VERSION)
    if version < 1:
        return False
    rights = _WRITE_FILE | _CHANGE | sum(bit for at, bit in _SINCE.items() if version >= at)
    rules = call(_CREATE, struct.pack("=Q", rights), 8, 0)
    if rules < 0:
        return False
    try:
        for folder in folders:
            with suppress(OSError):
                _allow(call, rules, rights, folder)
        return _restrict(call, rules)
    finally:
        os.close(rules)


def _allow(call: object, rules: int, rights: int, folder: Path) -> None:
    place = os.open(folder, getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
    try:
        call(_ADD, rules, _BENEATH, struct.pack("=Qi", rights, place), 0)  # type: ignore[operator]
    finally:
        os.close(place)


def _restrict(call: object, rules: int) -> bool:
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return call(_RESTRICT, rules, 0) == 0  # type: ignore[no-any-return,operator]
