"""The values behind `%oomdevice`: what there is to train on, at this moment."""

from dataclasses import dataclass

from oommagic.report import Gpu


@dataclass(frozen=True, slots=True)
class Card:
    """A graphics card, and what TensorFlow gets of its memory."""

    name: str
    usable_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class DeviceNow:
    """One of TensorFlow's devices; None stands for a figure that it does not keep."""

    name: str
    in_use_bytes: int | None = None
    peak_bytes: int | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """What there is to train on, in this process and on this machine."""

    training_device: str
    tensorflow: str
    gpu_status: str
    devices: tuple[DeviceNow, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    cards: tuple[Card, ...] = ()
    warnings: tuple[str, ...] = ()
