"""Each NVIDIA GPU as its driver sees it.

Nothing here raises for what a driver does: a machine without one, a sensor that a GPU lacks,
a GPU that is lost in the middle of a run are each said in a sentence.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from oommagic.report import Gpu

_HOST_PID_NAMESPACE = "pid:[4026531836]"  # the number that Linux reserves for the first one

_UNKNOWN = "What others hold is not known: the driver's list of processes cannot be relied on here."


class Gpus:
    """The GPUs of this machine, from `open_gpus` to `close`.

    `status` says in one sentence what can be seen.
    """

    def __init__(
        self, status: str, devices: Sequence["_Device"] = (), nvml: ModuleType | None = None
    ) -> None:
        self.status: Final = status
        self._devices = devices
        self._nvml = nvml

    @property
    def notes(self) -> tuple[str, ...]:
        """Say which GPUs stopped answering: one sentence for each, however often it was asked."""
        return tuple(device.lost for device in self._devices if device.lost)

    def read(self) -> tuple[Gpu, ...]:
        """Ask every GPU."""
        if self._nvml is None:
            return ()
        return tuple(device.read() for device in self._devices)

    def close(self) -> None:
        """Give the driver back, once. It counts its users: the user's own session stays open."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            _shut_down(nvml)


def open_gpus(root: Path = Path("/")) -> Gpus:
    """Open NVML; where that is not possible the result has no GPUs and says why.

    `root` is where `proc` lies, which tells whether this process is in a container.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(_why_not(pynvml, error))
    try:
        count: int = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        _shut_down(pynvml)
        return Gpus(_why_not(pynvml, error))
    has_host_pids = _has_host_pids(root)
    devices = [_Device(pynvml, index, has_host_pids=has_host_pids) for index in range(count)]
    return Gpus(_what_is_seen(count), devices, pynvml)


class _LostError(Exception):
    """The GPU or its driver is gone; asking again is of no use."""


class _Device:
    """One GPU, and the sentence to say once it is lost."""

    def __init__(self, nvml: ModuleType, index: int, *, has_host_pids: bool) -> None:
        self.index = index
        self.lost = ""
        self._nvml = nvml
        self._has_host_pids = has_host_pids
        self._name = f"GPU {index}"
        self._unanswered: list[str] = []
        try:
            self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            self.lost = f"GPU {index} cannot be asked ({error})."
            return
        self._identify()

    def read(self) -> Gpu:
        """Ask for every figure; one that is not answered is None and named in the note."""
        if not self.lost:
            try:
                return self._read()
            except _LostError as error:
                self.lost = (
                    f"GPU {self.index} ({self._name}) stopped answering ({error}): "
                    "its figures end there."
                )
        return Gpu(self.index, self._name, note=self.lost)

    def _read(self) -> Gpu:
        nvml, handle = self._nvml, self._handle
        self._unanswered = []
        memory = self._ask("memory", self._memory)
        others = self._held_by_others()
        load = self._ask("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        milliwatts = self._ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        temperature = self._ask("temperature", self._temperature)
        notes = (self._unanswered_note(), _UNKNOWN if others is None else "")
        return Gpu(
            index=self.index,
            name=self._name,
            total_bytes=memory.total if memory else None,
            used_by_others_bytes=others,
            utilization_percent=float(load.gpu) if load else None,
            temperature_c=None if temperature is None else float(temperature),
            power_w=None if milliwatts is None else milliwatts / 1000,
            note=" ".join(filter(None, notes)),
        )

    def _identify(self) -> None:
        nvml, handle = self._nvml, self._handle
        try:
            name = self._ask("name", lambda: nvml.nvmlDeviceGetName(handle))
        except _LostError as error:
            self.lost = f"GPU {self.index} cannot be asked ({error})."
            return
        self._name = name or self._name

    def _ask(self, what: str, question: Callable[[], Any]) -> Any:
        """Give the driver's answer, or None; an answer that says that it is gone is raised."""
        nvml = self._nvml
        try:
            return question()
        except nvml.NVMLError as error:
            if error.value in {
                nvml.NVML_ERROR_UNINITIALIZED,
                nvml.NVML_ERROR_DRIVER_NOT_LOADED,
                nvml.NVML_ERROR_GPU_IS_LOST,
                nvml.NVML_ERROR_RESET_REQUIRED,
            }:
                raise _LostError(str(error)) from error
            self._unanswered.append(f"{what} ({error})")
            return None

    def _unanswered_note(self) -> str:
        if not self._unanswered:
            return ""
        return f"The driver does not give this GPU's {', '.join(self._unanswered)}."

    def _memory(self) -> Any:
        """Give total and used bytes, the driver's own reserve left out where it can be told."""
        nvml = self._nvml
        try:
            return nvml.nvmlDeviceGetMemoryInfo(self._handle, version=nvml.nvmlMemory_v2)
        except (
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_ArgumentVersionMismatch,
        ):
            return nvml.nvmlDeviceGetMemoryInfo(self._handle)

    def _temperature(self) -> int:
        """Ask the old way, which every driver up to CUDA 13 knows, else the new one."""
        nvml = self._nvml
        try:
            degrees = nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU)
        except nvml.NVMLError_FunctionNotFound:
            degrees = nvml.nvmlDeviceGetTemperatureV(self._handle, nvml.NVML_TEMPERATURE_GPU)
        return int(degrees)

    def _held_by_others(self) -> int | None:
        """Give what other processes hold, or None where that cannot be known."""
        held = self._bytes_by_process() if self._has_host_pids else {}
        if not held:
            return None
        return sum(count for pid, count in held.items() if pid != os.getpid())

    def _bytes_by_process(self) -> dict[int, int]:
        """Give what each process holds, or nothing at all unless every process is known.

        A process that computes and draws is in both lists, with all its memory in each.
        (The functions without a version raise something else than an NVMLError on an old driver.)
        """
        nvml = self._nvml
        held: dict[int, int] = {}
        for list_processes in (
            nvml.nvmlDeviceGetComputeRunningProcesses_v3,
            nvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
        ):
            in_list: Counter[int] = Counter()
            try:
                for process in list_processes(self._handle):
                    in_list[process.pid] += process.usedGpuMemory
            except (nvml.NVMLError, TypeError):
                # No such list, or a process without a figure (None) in it.
                return {}
            for pid, count in in_list.items():
                held[pid] = max(count, held.get(pid, 0))
        return held


def _what_is_seen(count: int) -> str:
    if count == 0:
        return "The NVIDIA driver has no GPU: GPU sensors are not shown."
    return f"{count} NVIDIA GPU{'' if count == 1 else 's'}, read through NVML."


def _why_not(nvml: ModuleType, error: Exception) -> str:
    reasons = {
        nvml.NVMLError_LibraryNotFound: "No NVIDIA driver on this machine",
        nvml.NVMLError_DriverNotLoaded: "The NVIDIA driver is installed but not loaded",
        nvml.NVMLError_NoPermission: "This user may not ask the NVIDIA driver",
        nvml.NVMLError_FunctionNotFound: "The NVIDIA driver is too old to be asked",
        nvml.NVMLError_LibRmVersionMismatch: (
            "The NVIDIA driver was updated and waits for a restart of the machine"
        ),
    }
    reason = reasons.get(type(error), f"The NVIDIA driver does not answer ({error})")
    return f"{reason}: GPU sensors are not shown."


def _shut_down(nvml: ModuleType) -> None:
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        # A driver that has gone away has nothing left to give back.
        return


def _has_host_pids(root: Path) -> bool:
    """Tell whether process numbers here are the ones that the driver uses.

    In a container they are not: the driver lists the machine's numbers, or nothing.
    """
    try:
        return str((root / "proc/self/ns/pid").readlink()) == _HOST_PID_NAMESPACE
    except OSError:
        return False
