"""Our temporary folders: each says in its name whose it is, so that no dead process's stays."""

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_NAME = re.compile(r"oommagic-(?P<process>\d{1,10})-[0-9a-f]{16}")


def new_folder() -> Path:
    """Name a folder that nobody else has; whoever wants it makes it, and removes it."""
    return _folder_of_folders() / f"oommagic-{os.getpid()}-{token_hex(8)}"


def remove(folder: Path) -> None:
    """Remove one of our folders, if it is there; what an interrupt leaves goes the next time.

    Python's own `rmtree` keeps folders open: interrupted, it leaves them so or closes them twice.
    """
    for path in (*sorted(folder.rglob("*"), reverse=True), folder):
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()


def remove_left_behind() -> None:
    """Remove the folders of processes that were killed before they could."""
    try:
        found = list(_folder_of_folders().iterdir())
    except OSError:  # there is no such folder, or it may not be looked into
        return
    for folder in found:
        match = _NAME.fullmatch(folder.name)
        if match is not None and not _is_alive(int(match["process"])):
            remove(folder)


def _is_alive(process: int) -> bool:
    """Say whether a process runs; where that cannot be known, it may."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _folder_of_folders() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:  # no folder can be written to: making one will fail, and say so
        return Path(os.devnull)
