"""The raw facts of one run, before any conclusion is drawn from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from oommagic.cell import CellText
from oommagic.report import (
    DeviceMemory,
    DeviceUsage,
    Engine,
    Failure,
    Gpu,
    Holding,
    HoldingKind,
    HostMemory,
    Timeline,
)

if TYPE_CHECKING:
    from array import array


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
class OpRole:
    """What an op's name says of the memory that it allocates."""

    kind: HoldingKind
    layer: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """What an earlier tape has seen being handed out, and not given back."""

    address: int
    bytes: int
    requested_bytes: int
    op: str
    role: OpRole
    shape: tuple[int, ...] | None
    dtype: str
    time_s: float
    is_of_this_run: bool = True
    """Else much may have happened since: it only tells how large a chunk was."""


@dataclass(frozen=True, slots=True)
class Tape:
    """Every allocation and free on one device for a while, in the order in which they happened.

    Columns have one entry an event. A million events must stay small: numbers, and texts by index.
    """

    device: str
    before_bytes: int
    """What was in use before the first event."""
    times_s: "array[float]"
    addresses: "array[int]"
    bytes: "array[int]"
    """What the allocator handed out; negative for what it took back."""
    requested_bytes: "array[int]"
    in_use_bytes: "array[int]"
    """The allocator's own figure after the event."""
    op_numbers: "array[int]"
    """Index into `ops`; for a free, the op that ran then, not the owner."""
    tensor_numbers: "array[int]"
    """Index into `tensors`."""
    temporary: "array[int]"
    """1 where the op wanted it for itself alone, as workspace."""
    ops: tuple[str, ...]
    roles: tuple[OpRole, ...]
    """For each of `ops`."""
    tensors: tuple[tuple[tuple[int, ...] | None, str], ...]
    """Shapes and data types; no shape where it is not known."""
    steps: tuple[tuple[float, float, str], ...] = ()
    """When each top-level function began and ended, and its name."""
    is_whole: bool = True
    """Whether it lasted until the run ended; else the run went on without it."""
    left: tuple[Left, ...] = ()
    """By earlier tapes; it may have been given back when nothing was recorded."""
    names_before: "NamesThen | None" = None
    """When it began; None if that was when the run began, or nobody looked."""
    names_after: "NamesThen | None" = None
    """When it ended; None if that was when the run ended, or nobody looked."""


@dataclass(frozen=True, slots=True)
class CompiledMemory:
    """The one allocation that a step makes that XLA compiled, and what lies in it."""

    device: str
    requested_bytes: int
    holdings: tuple[Holding, ...] = ()
    """None where that could not be told; `note` says why."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class TapedStep:
    """One step at a known batch size, and every allocation that it made."""

    batch: int
    tape: Tape
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class CompiledSize:
    """What a compiled step asks of the allocator in one piece, at one batch size."""

    batch: int
    temporary_bytes: int
    held: tuple[Holding, ...] = ()
    """What lies in that piece at its fullest; adds up to it. None where that was not read."""


@dataclass(frozen=True, slots=True)
class StepTapes:
    """Steps at a few batch sizes, in the order in which they ran: what a plan is made from."""

    title: str
    task: Literal["training", "prediction", "step"]
    device: str
    limit_bytes: int | None
    """The device's own, if it has one that counts."""
    is_arena: bool
    """Whether the device grows by regions, as the training device on the CPU does."""
    made: Tape | None
    """What was allocated for the model itself; None where it was there before."""
    steps: tuple[TapedStep, ...]
    """The first one of all traces the step."""
    row_bytes: tuple[int, ...] = ()
    """What one sample takes in each array of the data."""
    prepared: Tape | None = None
    """What was allocated for the first step's data; None where nothing was, or nobody saw it."""
    compiled: tuple[CompiledSize, ...] = ()
    held: "tuple[Held, ...]" = ()
    """What the model held before the first step."""
    is_of_a_cell: bool = False
    """They ran in a profiled cell, at the batch that it has; `made` is what ran before them there.
    Else the sizes were chosen so that no layer has them."""
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For each op of the steps, those that have to be over before it begins."""
    processors: int = 1
    """TensorFlow runs ops on so many threads, and on the one that called."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LineTimes:
    """At which line of the cell its thread was while a tape recorded, from each time to the next.

    0 is not known.
    """

    times_s: "array[float]"
    line_numbers: "array[int]"


COPY_OF = "a copy of "
"""How the owner begins of what is held without a name, and is known to be such a copy."""


@dataclass(frozen=True, slots=True)
class Held:
    """Memory that a name of the notebook holds, or that is held without a name."""

    owner: str
    """As one would write it: `model`, `losses`, `batches[3]`; empty if nothing names it."""
    kind: HoldingKind
    device: str
    address: int
    """0 if it cannot be known."""
    bytes: int
    layer: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One layer of a model."""

    name: str
    kind: str
    """Its class: `Conv2D`."""
    weight_bytes: int
    policy: str = ""
    is_trainable: bool = True


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model is made of; empty where it does not say."""

    layers: tuple[LayerFacts, ...] = ()
    """Those that hold no others."""
    optimizer: str = ""
    """Its class: `Adam`."""
    accumulates: int | None = None
    """Its `gradient_accumulation_steps`."""
    policy: str = ""
    """`float32`, `mixed_float16`."""
    is_compiled_by_xla: bool | None = None

    @property
    def weight_bytes(self) -> int:
        """All weights, trainable or not."""
        return sum(layer.weight_bytes for layer in self.layers)

    @property
    def trainable_bytes(self) -> int:
        """The weights that get gradients, and slots of the optimizer."""
        return sum(layer.weight_bytes for layer in self.layers if layer.is_trainable)


ROW_ALIGNMENT = 64
"""Rows of so many bytes, or a multiple, TensorFlow takes from a tensor without a copy."""


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One step of a data set: what it gives on, and what it keeps. None: not known."""

    kind: str
    """`shuffle`, `batch`, `prefetch`, `cache`, `map`, … as its method is called."""
    element_bytes: int = 0
    """Of one element that it gives; 0 where its shape is not known."""
    count: int | None = None
    """Of the elements that it gives."""
    number: int | None = None
    """The size of its batches or its buffer; -1 where TensorFlow chooses."""
    shared_bytes: int = 0
    """Of one element: what is a piece of a tensor that is there anyway."""

    @property
    def kept_bytes(self) -> int:
        """What it takes to keep one element."""
        return self.element_bytes - self.shared_bytes


NamedKind = Literal[
    "array", "tensor", "variable", "model", "dataset", "optimizer", "module", "number", "text",
    "list", "other",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """What a name of the notebook stands for."""

    kind: NamedKind
    bytes: int = 0
    """Of an array or tensor; what a file that is mapped has is not counted."""
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    text: str = ""
    """A module's name, a text's beginning, an object's class."""
    number: float | None = None
    count: int = 0
    """Of a list's items."""
    model: ModelFacts | None = None
    pipeline: tuple[PipelineStep, ...] = ()
    """A data set's steps, the source first."""


@dataclass(frozen=True, slots=True)
class NamesThen:
    """What the notebook's names held at one moment."""

    held: tuple[Held, ...]
    time_s: float


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
    tapes: tuple[Tape, ...] = ()
    compiled: tuple[CompiledMemory, ...] = ()
    line_times: LineTimes | None = None
    held_before: tuple[Held, ...] = ()
    held_after: tuple[Held, ...] = ()
    failure: Failure | None = None
    caught_in: tuple[str, ...] = ()
    """The functions that ran when it failed, where the program caught the error."""
    versions: Mapping[str, str] = field(default_factory=dict)
