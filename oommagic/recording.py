"""The raw facts of one run, before any conclusion is drawn from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oommagic.cell import CellText
from oommagic.report import DeviceMemory, DeviceUsage, Engine, Gpu, HostMemory, Timeline

CELL = "<cell>"
"""The file name that stands for the profiled cell itself, whatever IPython calls it."""


@dataclass(frozen=True, slots=True)
class LineReading:
    """What was measured at one physical line of one piece of source."""

    filename: str
    line_number: int
    hits: int
    elapsed_s: float
    worst_s: float
    host_delta_bytes: int
    host_peak_bytes: int
    file_delta_bytes: int
    children_peak_bytes: int
    devices: Mapping[str, DeviceUsage]
    is_partial: bool
    is_shared: bool
    ran_at_tracing: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """A piece of source whose lines are shown (the cell, a block, a function), and where."""

    name: str
    filename: str
    first_line: int
    text: CellText


@dataclass(frozen=True, slots=True)
class TracedLines:
    """Lines of a tf.function: TensorFlow runs a graph made from them, `traces` times so far."""

    name: str
    filename: str
    first_line: int
    last_line: int
    traces: int


@dataclass(frozen=True, slots=True)
class Recording:
    """One run as the meters and the tracer saw it."""

    readings: tuple[LineReading, ...]
    engine: Engine
    elapsed_s: float
    host: HostMemory
    devices: tuple[DeviceMemory, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    timeline: Timeline = field(default_factory=Timeline)
    listings: tuple[Listing, ...] = ()
    traced: tuple[TracedLines, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
