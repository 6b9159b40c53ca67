"""One sample of everything that is shown over time."""

from collections.abc import Iterator

from oommagic.measure.gauges import Gauges, ProcessGauges
from oommagic.measure.host import HostMeter
from oommagic.measure.nvml import Gpus
from oommagic.measure.timeline import TimelineStore
from oommagic.own_builtins import keep_builtins
from oommagic.report import Gpu, LaneUnit
from oommagic.tf.allocator import Allocators

keep_builtins(globals())

# CPU, disk, network and sensors cost a tenth of a millisecond or more: asked less often, and
# not in a cell that is over at once.
_SLOW_EVERY = 4

_Sample = tuple[str, LaneUnit, float | None]


class Lanes:
    """Reads every gauge and adds the figures to the timeline."""

    def __init__(self, host: HostMeter, devices: Allocators, gpus: Gpus) -> None:
        self.store = TimelineStore()
        self.gpus_now: tuple[Gpu, ...] = gpus.read()
        self._host = host
        self._devices = devices
        self._gpus = gpus
        self._process = ProcessGauges()

    def sample(self, count: int, time_s: float, line_number: int) -> None:
        """Take one sample; each fourth one is of all gauges."""
        samples = [*self._memory()]
        if (count + 1) % _SLOW_EVERY == 0:
            self.gpus_now = self._gpus.read()
            samples += [*_rates(self._process.read()), *_sensors(self.gpus_now)]
        values = {name: (unit, value) for name, unit, value in samples}
        self.store.add(time_s, line_number, values)

    def children_bytes(self) -> int:
        """What the child processes hold now."""
        return self._process.children_bytes()

    def _memory(self) -> Iterator[_Sample]:
        own, files = self._host.peek()
        yield "host", "bytes", own
        yield "file pages", "bytes", files
        for name, current in zip(self._devices.names, self._devices.peek(), strict=False):
            yield name, "bytes", current


def _rates(gauges: Gauges) -> Iterator[_Sample]:
    yield "CPU", "percent", gauges.cpu_percent
    yield "disk read", "bytes/s", gauges.disk_read_bytes_per_s
    yield "disk write", "bytes/s", gauges.disk_write_bytes_per_s
    yield "network received", "bytes/s", gauges.network_received_bytes_per_s
    yield "network sent", "bytes/s", gauges.network_sent_bytes_per_s


def _sensors(gpus: tuple[Gpu, ...]) -> Iterator[_Sample]:
    for gpu in gpus:
        yield f"GPU {gpu.index} use", "percent", gpu.utilization_percent
        yield f"GPU {gpu.index} temperature", "celsius", gpu.temperature_c
        yield f"GPU {gpu.index} power", "watts", gpu.power_w
