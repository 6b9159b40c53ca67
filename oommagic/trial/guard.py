"""Keeps a child from taking so much of the host's memory that the system ends someone."""

import re
import sys
from contextlib import suppress
from pathlib import Path

from oommagic.measure.limits import available_bytes, machine_bytes
from oommagic.units import GIB, KIB

_STATUS = Path("/proc/self/status")
_BADNESS = Path("/proc/self/oom_score_adj")
_END_ME_FIRST = "900"
# Beside the device's memory a step wants some of the host's: XLA's compiler, the data's pipeline,
# the threads' stacks.
_BESIDE_THE_DEVICE = 4 * GIB
_LEAST_RESERVE = GIB // 4
_RESERVED_SHARE = 20


def offer_to_be_ended() -> None:
    """Have the system end this process, if it must end one, rather than the user's kernel."""
    with suppress(OSError):
        _BADNESS.write_text(_END_ME_FIRST, encoding="ascii")


def limit_host_memory(device_bytes: int) -> None:
    """Have the system refuse memory, which raises an error, before it would end a process."""
    limit_room(device_bytes + _BESIDE_THE_DEVICE)


def limit_room(room_bytes: int) -> None:
    """Have the system refuse more memory than that, or than there is to be had."""
    if sys.platform != "linux":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    more = min(room_bytes, available_bytes() - _reserve_bytes())
    limit = _data_bytes() + max(0, more)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _reserve_bytes() -> int:
    return max(_LEAST_RESERVE, machine_bytes() // _RESERVED_SHARE)


def _data_bytes() -> int:
    """Give what counts towards the limit: private writable memory, touched or not."""
    match = re.search(r"VmData:\s+(\d+) kB", _STATUS.read_text(encoding="utf-8"))
    return int(match[1]) * KIB if match else 0
