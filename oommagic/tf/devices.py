"""TensorFlow and its devices at this moment, for a reader who runs no cell."""

from oommagic.devices import DeviceNow
from oommagic.tf import context
from oommagic.tf.allocator import Allocators


def tensorflow_now() -> tuple[str, tuple[DeviceNow, ...]]:
    """Say what TensorFlow is at, and list its devices, those without figures too.

    No peak is lost by looking: those that read after this one get it all the same.
    """
    if not context.is_imported():
        return "not imported yet, so it has no devices.", ()
    allocators = Allocators()
    try:
        readings = allocators.read() if allocators.find() else ()
        measured = {
            name: DeviceNow(
                name, current, max(peak, _peak_told(name)), allocators.limit_bytes(name)
            )
            for name, (current, peak) in zip(allocators.names, readings, strict=True)
        }
    finally:
        allocators.close()
    version = context.versions().get("tensorflow", "")
    words = f"{version} is imported. {allocators.status()}".lstrip()
    return words, tuple(measured.get(name, DeviceNow(name)) for name in _names())


def _peak_told(name: str) -> int:
    """Give the peak that the user is told: an earlier look of ours may have reset the device's."""
    now = context.current_context()
    return 0 if now is None else now.get_memory_info(name)["peak"]


def _names() -> list[str]:
    now = context.current_context()
    devices = [] if now is None else context.own_devices(now)
    return [context.short_name(device.name) for device in devices]
