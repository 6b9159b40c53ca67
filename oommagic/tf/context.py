"""TensorFlow's eager context, looked at without importing TensorFlow or making a device.

What is asked of the context by private names stands here. Making the context would freeze what
the user can still choose (`set_memory_growth`, logical devices), so it is only ever looked at.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, cast

from oommagic.own_builtins import keep_builtins
from oommagic.units import MIB

keep_builtins(globals())

_CONTEXT = "tensorflow.python.eager.context"
_CALLS = "tensorflow.python.pywrap_tfe"
_SESSION_CALLS = "tensorflow.python.client.pywrap_tf_session"
_SPEC = "tensorflow.python.framework.device_spec"
_PORT = "tensorflow.python.util._pywrap_util_port"
_NEWER = frozenset({"RematScope"})


class LogicalDevice(Protocol):
    """A device as TensorFlow lists it: `/device:GPU:1`, or with its job in a cluster."""

    name: str
    device_type: str


class EagerContext(Protocol):
    """What is used of TensorFlow's context object."""

    def get_memory_info(self, dev: str) -> dict[str, int]:
        """Give `current` and `peak` of a device."""

    def reset_memory_stats(self, dev: str) -> None:
        """Set a device's peak to its current bytes."""


@dataclass(frozen=True, slots=True)
class AllocatorCalls:
    """The two calls into TensorFlow's library that cost under a microsecond together."""

    get_info: Callable[[object, str], dict[str, int]]
    reset: Callable[[object, str], None]


def is_imported() -> bool:
    """Say whether TensorFlow is imported, or being imported right now."""
    return "tensorflow" in sys.modules


def current_context() -> EagerContext | None:
    """Give the context of this moment, made by somebody else, with or without devices."""
    return cast("EagerContext | None", getattr(sys.modules.get(_CONTEXT), "_context", None))


def is_readable() -> bool:
    """Say whether this TensorFlow keeps its context where it is looked for."""
    module = sys.modules.get(_CONTEXT)
    return hasattr(module, "_context") and calls() is not None


def device_list(context: EagerContext | None) -> list[LogicalDevice] | None:
    """Give TensorFlow's own list of devices; it is another object whenever devices change."""
    return getattr(context, "_logical_devices", None)


def handle_of(context: EagerContext | None) -> object:
    """Give what the library calls its context, or None while there are no devices."""
    if not getattr(context, "_initialized", False):
        return None
    return getattr(context, "_context_handle", None)


def has_devices() -> bool:
    """Say whether TensorFlow has made its devices."""
    return handle_of(current_context()) is not None


def own_devices(context: EagerContext) -> list[LogicalDevice]:
    """Leave out the devices of a cluster's other machines: asking for their allocator crashes."""
    server = getattr(context, "_server_def", None)
    server = server or getattr(context, "_collective_ops_server_def", None)
    here = ["/device:"]
    if server is not None:
        here.append(f"/job:{server.job_name}/replica:0/task:{server.task_index}/")
    return [device for device in device_list(context) or () if device.name.startswith(tuple(here))]


def short_name(full_name: str) -> str:
    """Shorten `/job:worker/replica:0/task:0/device:GPU:1` to `GPU:1`."""
    return full_name.rpartition("device:")[2]


def device_meant(context: EagerContext, name: str) -> str | None:
    """Find the one device that the user means, in any of TensorFlow's spellings."""
    parse = getattr(getattr(sys.modules.get(_SPEC), "DeviceSpecV2", None), "from_string", None)
    if parse is None:
        return None
    try:
        wanted = parse(name)
    except (TypeError, ValueError):
        return None
    meant = [device.name for device in own_devices(context) if _covers(wanted, parse(device.name))]
    return meant[0] if len(meant) == 1 else None


def calls() -> AllocatorCalls | None:
    """Give the library's calls, or None where this TensorFlow has none of that name."""
    module = sys.modules.get(_CALLS)
    get_info = getattr(module, "TFE_GetMemoryInfo", None)
    reset = getattr(module, "TFE_ResetMemoryStats", None)
    return AllocatorCalls(get_info, reset) if get_info and reset else None


@dataclass(frozen=True, slots=True)
class LimitSet:
    """What the program allows a GPU of TensorFlow's, by `set_logical_device_configuration`."""

    device: str
    """As elsewhere, `GPU:0`."""
    card: int
    """The number of the GPU that it is a part of."""
    bytes: int


def limits_set() -> Iterator[LimitSet]:
    """Yield the limits that the program has set on its GPUs, which number from card to card."""
    now = current_context()
    parts_of = getattr(now, "_virtual_device_map", {})
    cards = [each for each in getattr(now, "_visible_device_list", ()) if each.device_type == "GPU"]
    number = 0
    for card in cards:
        for part in parts_of.get(card) or (None,):
            limit_mb = getattr(part, "memory_limit", None)
            if limit_mb is not None:
                index = int(card.name.rpartition(":")[2])
                yield LimitSet(f"GPU:{number}", index, int(limit_mb * MIB))
            number += 1


def memory_limits(handle: object) -> dict[str, int]:
    """Give the bytes that each device was made with, by its name within the whole cluster."""
    session = sys.modules.get(_SESSION_CALLS)
    limit_of = getattr(session, "TF_DeviceListMemoryBytes", None)
    if limit_of is None:
        return {}
    with _library_list(handle) as (devices, name_of, count):
        return {name_of(devices, index): limit_of(devices, index) for index in range(count)}


def is_eager() -> bool:
    """Say whether operations run at once in this thread, rather than become part of a graph."""
    ask = getattr(sys.modules.get(_CONTEXT), "executing_eagerly", None)
    return ask is None or bool(ask())


def has_onednn() -> bool | None:
    """Say whether TensorFlow was imported with oneDNN on, or None before its import."""
    ask = getattr(sys.modules.get(_PORT), "IsMklEnabled", None)
    return None if ask is None else bool(ask())


def versions() -> dict[str, str]:
    """Give the versions of TensorFlow and Keras, where they are imported."""
    packages = ("tensorflow", "keras")
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in packages}
    return {name: version for name, version in found.items() if isinstance(version, str)}


def keras_offers() -> frozenset[str]:
    """Give what the imported Keras has under its own name, of what only newer ones have."""
    module = sys.modules.get("keras")
    return frozenset() if module is None else _NEWER & vars(module).keys()


def _covers(wanted: object, spec: object) -> bool:
    """Say whether a device is what was asked for; a part that was left out fits anything."""
    parts = ("device_type", "device_index")
    return all(getattr(wanted, part) in {None, getattr(spec, part)} for part in parts)


@contextmanager
def _library_list(
    handle: object,
) -> Iterator[tuple[object, Callable[[object, int], str], int]]:
    library = sys.modules[_CALLS]
    devices = library.TFE_ContextListDevices(handle)
    try:
        yield devices, library.TF_DeviceListName, library.TF_DeviceListCount(devices)
    finally:
        library.TF_DeleteDeviceList(devices)
