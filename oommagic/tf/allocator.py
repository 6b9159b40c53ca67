"""Figures for each device, from TensorFlow's own allocators.

TensorFlow is never imported from here and its devices are never made: both are waited for.
How the user's own readings stay right is told in `peaks`.
"""

import operator
import os
from typing import TYPE_CHECKING

from oommagic.own_builtins import keep_builtins
from oommagic.tf import arena, context
from oommagic.tf.context import EagerContext, LogicalDevice, short_name
from oommagic.tf.peaks import Reader, SharedPeaks

if TYPE_CHECKING:
    from collections.abc import Callable

keep_builtins(globals())


class Allocators:
    """The allocators of this process's devices, during one run.

    Ask `find` at every reading; once it is true, `read` gives one pair for each of `names`.
    """

    def __init__(self) -> None:
        """Look at nothing yet."""
        self.names: tuple[str, ...] = ()
        self._seen: list[LogicalDevice] | None = None
        self._without_figures: tuple[str, ...] = ()
        self._limits: dict[str, int] = {}
        self._shared: SharedPeaks | None = None
        self._readers: tuple[Reader, ...] = ()
        self._reads: tuple[Callable[[], tuple[int, int]], ...] = ()

    def find(self) -> bool:
        """Say whether there are devices with figures, and notice when they come, go or change."""
        now = context.current_context()
        if context.device_list(now) is not self._seen:
            self._list(now)
        return bool(self._reads)

    def read(self) -> tuple[tuple[int, int], ...]:
        """Give each device's current bytes and its peak since the last reading.

        The first reading of a device has its peak since it was made, or since the user's reset:
        where the device was there before the run, read once before the first line.
        """
        return tuple(map(operator.call, self._reads))

    def peek(self) -> tuple[int, ...]:
        """Give each device's current bytes and leave the peaks alone; for a sampling thread."""
        return tuple([reader.peek() for reader in self._readers])

    def limit_bytes(self, name: str) -> int | None:
        """Give what the device's allocator may hand out at most, where that is known."""
        return self._limits.get(name)

    def close(self) -> None:
        """Stop reading; what the user reads stays right. Names, limits and status remain."""
        self._let_go()
        # Only a list of devices that nobody has seen yet opens the readers again.
        self._seen = context.device_list(context.current_context())

    def status(self) -> str:
        """Say in one sentence where the figures come from, or why there are none."""
        if not context.is_imported():
            return "TensorFlow was not imported: device memory is not shown."
        if self.names:
            return f"Device memory is TensorFlow's own allocator's: {', '.join(self.names)}."
        if not context.is_readable():
            return (
                f"TensorFlow {self.version().get('tensorflow', '')} does not keep its devices "
                "where oommagic looks: device memory is not shown."
            ).replace("  ", " ")
        if not context.has_devices():
            return (
                "TensorFlow has not made its devices yet: "
                "device memory is shown from its first operation on."
            )
        if self._without_figures:
            return _keeps_no_peak(self._without_figures)
        return arena.why_not_shown()

    @staticmethod
    def tracing_graph() -> bool:
        """Say whether TensorFlow is building a graph in this thread at this moment."""
        return not context.is_eager()

    @staticmethod
    def version() -> dict[str, str]:
        """Give the versions of TensorFlow and Keras, where they are imported."""
        return context.versions()

    def _list(self, now: EagerContext | None) -> None:
        """Open a reader for each device that can be trusted, in place of those of before."""
        if now is not None and context.device_list(now) and context.handle_of(now) is None:
            return  # another thread is making the devices right now
        self._let_go()
        self._seen = context.device_list(now)
        self.names, self._without_figures = (), ()
        self._shared = None if now is None else SharedPeaks.of(now)
        if now is None or self._shared is None:
            return
        wanted = {
            device.name: short_name(device.name)
            for device in context.own_devices(now)
            if arena.trusts(short_name(device.name))
        }
        readers = self._shared.open(wanted)
        self.names = tuple(wanted[full] for full in readers)
        self._without_figures = tuple(wanted[full] for full in wanted if full not in readers)
        self._limits = _limits(self._shared.handle, {full: wanted[full] for full in readers})
        self._readers = tuple(readers.values())
        self._reads = tuple(reader.read for reader in self._readers)

    def _let_go(self) -> None:
        """Close the readers and hold nothing of TensorFlow's any more."""
        readers, shared = self._readers, self._shared
        self._reads, self._readers, self._shared = (), (), None
        if shared is not None:
            shared.close(readers)


def _limits(handle: object, names: dict[str, str]) -> dict[str, int]:
    """Give the limit of each device by its short name."""
    made_with = context.memory_limits(handle)
    limits = {
        short: next((size for name, size in made_with.items() if name.endswith(full)), None)
        for full, short in names.items()
        if not arena.owns(short)
    }
    device = arena.current()
    if device is not None:
        limits.update({short: device.limit_bytes for short in names.values() if arena.owns(short)})
    return {name: size for name, size in limits.items() if size}


def _keeps_no_peak(names: tuple[str, ...]) -> str:
    kind = os.environ.get("TF_GPU_ALLOCATOR")
    allocator = f" (TF_GPU_ALLOCATOR={kind})" if kind else ""
    return (
        f"TensorFlow's allocator{allocator} keeps no peak that can be read and reset "
        f"for {', '.join(names)}: device memory is not shown."
    )
