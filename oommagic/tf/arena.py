"""A small training device on the CPU: the allocator of a GPU, with a hard limit, without a GPU.

The CPU's device of TensorFlow can run on the very allocator that its GPUs run on. It is asked for
with environment variables which TensorFlow reads once in a process, so a device is for the rest
of the process: the variables stay, and child processes inherit them.

This is the only place that knows which device that is, and when its figures are true.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from oommagic.devices import Card
from oommagic.errors import DeviceRequestError, UsageError
from oommagic.tf import context
from oommagic.units import MIB, format_bytes, format_time, parse_bytes

_DEVICE = "CPU:0"
_PROCESSOR = "CPU"

_USE = "TF_CPU_ALLOCATOR_USE_BFC"
_LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
_TRUE = ("1", "true")
_GPUS = "CUDA_VISIBLE_DEVICES"
_NO_GPUS = ("", "-1")

# TensorFlow's own limit where the allocator is asked for without one.
_UNSAID_LIMIT_MB = 65536
# Below this a small model does not even get its weights and its first step's scratch memory.
SMALLEST_BYTES = 32 * MIB


def _how(size: str = "2GB", card: str = "") -> str:
    """Say how to ask in time for that size, or for that card."""
    words, argument = (f"--like {card}", f"like={card!r}") if card else (size, repr(size))
    return (
        f"Restart the kernel and run `%oomdevice {words}`, or `oommagic.use_device({argument})`, "
        "before TensorFlow is imported."
    )


def _seen(name: str, megabytes: int, card: str, date: str) -> Card:
    """Take a figure from TensorFlow's own line, `Created device … with N MB memory`."""
    article = "an" if card.startswith("N") else "a"
    source = f"TensorFlow's log on {article} {card}, {date}, public repository"
    return Card(name, megabytes * MIB, source)


# Each from one run with default settings on a card that nothing else used, as far as its log
# tells; drivers and versions move the figure by a few hundred MB.
CARDS = (
    _seen("T4", 13757, "Tesla T4", "2026-09-11"),
    _seen("P100", 15511, "Tesla P100-PCIE-16GB", "2026-08-25"),
    _seen("V100", 14784, "Tesla V100-PCIE-16GB", "2025-03-28"),
    _seen("V100-32GB", 31134, "Tesla V100-SXM2-32GB", "2025-09-12"),
    _seen("L4", 20967, "NVIDIA L4", "2025-01-31"),
    _seen("A100-40GB", 38482, "NVIDIA A100-PCIE-40GB", "2026-02-14"),
    _seen("A100-80GB", 79188, "NVIDIA A100-SXM4-80GB", "2026-07-04"),
    _seen("H100", 78763, "NVIDIA H100 80GB HBM3", "2026-01-13"),
    _seen("RTX3060", 9709, "NVIDIA GeForce RTX 3060", "2025-12-14"),
    _seen("RTX3090", 22446, "NVIDIA GeForce RTX 3090", "2026-03-24"),
    _seen("RTX4090", 22288, "NVIDIA GeForce RTX 4090", "2024-04-21"),
    _seen("laptop-4GB", 2156, "NVIDIA GeForce RTX 3050 Laptop GPU", "2026-04-04"),
    _seen("laptop-6GB", 3586, "NVIDIA GeForce RTX 3060 Laptop GPU", "2025-03-29"),
)


@dataclass(frozen=True, slots=True)
class Arena:
    """The training device of this process."""

    limit_bytes: int
    is_running: bool
    """TensorFlow's device runs with it; False as long as TensorFlow has made no device."""
    asked_at: str = ""
    """When `use_device` set it; empty where the environment came with it."""
    like: str = ""
    """The card that it stands for, if one was asked for."""


@dataclass(frozen=True, slots=True)
class _Request:
    limit_mb: int
    asked_at: str
    like: str


# Only the last one counts; TensorFlow has not read the others.
_requests: list[_Request] = []


def use_device(
    size: str | int | None = None,
    *,
    like: str | None = None,
    host_limit_bytes: int,
) -> Arena:
    """Give the CPU a training device of that size, for the rest of this process.

    `size` is bytes, or text such as 512MB; `like` names a card of `CARDS` instead. A device
    larger than the host's limit is refused.
    """
    limit_bytes, card = asked_size(size, like)
    _check_size(limit_bytes, host_limit_bytes)
    limit_mb = limit_bytes // MIB
    running = current()
    if running is not None and running.is_running and running.limit_bytes == limit_mb * MIB:
        return running
    _check_time(_how(f"{limit_mb}MB", card), running)
    os.environ.update({_USE: "true", _LIMIT: str(limit_mb), _ONEDNN: "0"})
    asked_at = datetime.now(UTC).isoformat(timespec="seconds")
    _requests.append(_Request(limit_mb, asked_at, card))
    return Arena(limit_mb * MIB, is_running=False, asked_at=asked_at, like=card)


def environment(limit_bytes: int) -> dict[str, str]:
    """Give the variables with which a child process has a training device of that size.

    Its GPUs are hidden from it: TensorFlow would train on those.
    """
    limit_mb = max(1, limit_bytes // MIB)
    return {_USE: "true", _LIMIT: str(limit_mb), _ONEDNN: "0", _GPUS: "-1"}


def hiding_gpus() -> dict[str, str]:
    """Give the variables with which a child process has no GPU to train on."""
    return {_GPUS: "-1"}


def current() -> Arena | None:
    """Give this process's training device, asked for here or by the environment, if any."""
    if os.environ.get(_USE, "").lower() not in _TRUE:
        return None
    said = os.environ.get(_LIMIT, "")
    limit_mb = int(said) if said.isdecimal() else _UNSAID_LIMIT_MB
    asked = _Request(limit_mb, "", "")
    if _requests and _requests[-1].limit_mb == limit_mb:
        asked = _requests[-1]
    return Arena(limit_mb * MIB, _has_figures(), asked.asked_at, asked.like)


def peak_bytes() -> int | None:
    """Give this process's training device's highest point, or None while it has none."""
    now = context.current_context()
    if now is None or current() is None or not _has_figures():
        return None
    return now.get_memory_info(_DEVICE)["peak"]


def begin_anew() -> int | None:
    """Forget the highest point, and give what is in use; None while there is no such device."""
    now = context.current_context()
    if now is None or current() is None or not _has_figures():
        return None
    now.reset_memory_stats(_DEVICE)
    return now.get_memory_info(_DEVICE)["current"]


def owns(device_name: str) -> bool:
    """Say whether that device is the training device."""
    return device_name == _DEVICE and current() is not None


def trusts(device_name: str) -> bool:
    """Say whether TensorFlow's figures for that device are its allocator's.

    A plain CPU has none, and with oneDNN on it has oneDNN's, which leave out most allocations.
    All CPU devices of a process share one training device: only the first stands for it.
    """
    if not device_name.startswith(f"{_PROCESSOR}:"):
        return True
    return owns(device_name) and _has_figures()


def why_not_shown() -> str:
    """Say in one sentence why a process without a GPU shows no device memory."""
    if current() is None:
        return (
            "TensorFlow has no GPU here and no training device: run `%oomdevice 2GB`, or "
            "`oommagic.use_device('2GB')`, before TensorFlow is imported to see a device's memory."
        )
    if context.has_onednn():
        return (
            "The training device was asked for with oneDNN on, whose figures are not true: "
            "device memory is not shown. " + _how()
        )
    return (
        "The training device was asked for after TensorFlow had made its devices: "
        "device memory is not shown. " + _how()
    )


def status() -> str:
    """Say in one sentence whether this CPU is a training device, or will be."""
    device = current()
    if device is None:
        return (
            "none was asked for: `%oomdevice 2GB` or `%oomdevice --like T4`, before TensorFlow is "
            "imported, turns this CPU into one."
        )
    size = format_bytes(device.limit_bytes)
    size += f", like {device.like}," if device.like else ""
    asked_at = format_time(device.asked_at)
    asked = f"asked for at {asked_at}" if asked_at else "set by the environment"
    if device.is_running:
        return f"this CPU is one of {size.rstrip(',')} ({asked})."
    if context.has_devices() or context.has_onednn():
        return why_not_shown()
    return f"this CPU is one of {size} from TensorFlow's first operation on ({asked})."


def warnings(available_bytes: int, gpu_count: int) -> Iterator[str]:
    """Say what keeps the training device from being trained on, or from getting full."""
    device = current()
    if device is None:
        return
    if gpu_count and os.environ.get(_GPUS) not in _NO_GPUS:
        yield (
            "TensorFlow trains on a GPU where it sees one, not on this CPU: hide them by setting "
            f"{_GPUS}=-1 before TensorFlow is imported."
        )
    if not device.is_running and device.limit_bytes > available_bytes:
        yield (
            f"Only {format_bytes(available_bytes)} of the host's memory is available just now: "
            "before this device is full the system may end the kernel. Ask for less."
        )


def _has_figures() -> bool:
    """Say whether TensorFlow runs on the arena.

    With oneDNN off, the CPU has figures on the arena alone. With oneDNN on it has figures in any
    case, and running out can kill the process: such a device is not ours.
    """
    now = context.current_context()
    calls, handle = context.calls(), context.handle_of(now)
    if handle is None or calls is None or context.has_onednn():
        return False
    try:
        calls.get_info(handle, _DEVICE)
    except ValueError:
        return False
    return True


def asked_size(size: str | int | None, like: str | None) -> tuple[int, str]:
    """Read a size, or the name of a card: its bytes, and the card's own name."""
    if (size is None) == (like is None):
        raise UsageError("Ask for one thing: a size, as in 512MB, or a card's name, as in T4.")
    if like is None:
        return parse_bytes(str(size)), ""
    cards = {_plain(card.name): card for card in CARDS}
    card = cards.get(_plain(str(like)))
    if card is None:
        names = ", ".join(card.name for card in CARDS)
        raise UsageError(f"There is no figure for a card called {like!r}; there are: {names}.")
    return card.usable_bytes, card.name


def _plain(name: str) -> str:
    """Make `RTX 3060` and `rtx-3060` the same."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _check_size(limit_bytes: int, host_bytes: int) -> None:
    if limit_bytes < SMALLEST_BYTES:
        raise DeviceRequestError(
            f"A device of {format_bytes(limit_bytes)} is too small to train anything; "
            f"ask for {format_bytes(SMALLEST_BYTES)} or more."
        )
    if limit_bytes > host_bytes:
        raise DeviceRequestError(
            f"A device of {format_bytes(limit_bytes)} does not fit into this host's "
            f"{format_bytes(host_bytes)}; ask for less."
        )


def _check_time(how: str, running: Arena | None) -> None:
    """Refuse what TensorFlow would not listen to any more.

    It reads oneDNN's switch at its import, and the arena's two when it makes its first device.
    """
    if context.has_devices():
        what = "without a training device"
        if running is not None and running.is_running:
            what = f"with a training device of {format_bytes(running.limit_bytes)}"
        raise DeviceRequestError(f"TensorFlow has made its devices already, {what}. {how}")
    if context.is_imported() and context.has_onednn() is not False:
        raise DeviceRequestError(
            "TensorFlow was imported with oneDNN on, which can kill the kernel "
            f"when a training device runs out. {how}"
        )
