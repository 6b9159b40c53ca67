"""The frozen values that pass between rooms, and their JSON.

Numbers carry their unit in their name. Memory is always the host's or a named device's.
Every renderer starts from a `Report`, and a saved one is as good as a fresh one.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from oommagic import report_json

FORMAT = 1

LaneUnit = Literal["bytes", "percent", "bytes/s", "celsius", "watts"]

HoldingKind = Literal[
    "weights",
    "optimizer slots",
    "gradients",
    "activations",
    "workspace",
    "loss and metrics",
    "data",
    "variables",
    "tensors",
    "rounding",
    "unknown",
]
"""`rounding` is what the allocator hands out beyond what was asked for."""

FailureKind = Literal["allocation", "copy", "scratch", "compile", "dataset", "python"]
"""`copy`: to the device; `scratch`: cuDNN's; `compile`: XLA's; `python`: a MemoryError."""

Cause = Literal[
    "none",
    "step too big",
    "growth",
    "left behind",
    "another process",
    "data on the device",
    "fragmentation",
    "host memory",
    "a limit",
    "compiling",
    "evaluation",
    "unknown",
]

HOST = "host"
"""Stands where a device's name would."""

Safety = Literal["same results", "changes results", "hint"]
"""A hint has no edit."""


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """What one line did to one device, from the device's own allocator."""

    delta_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class LineUsage:
    """What one statement of the cell took; its figures stand on its first line.

    Time and changes leave out what profiled functions that the line called took: that is
    on their own lines, so that the lines add up to the cell. Peaks include it.
    """

    line_number: int
    source: str
    hits: int = 0
    elapsed_s: float = 0.0
    worst_s: float = 0.0
    host_delta_bytes: int = 0
    host_peak_bytes: int = 0
    file_delta_bytes: int = 0
    children_peak_bytes: int = 0
    devices: Mapping[str, DeviceUsage] = field(default_factory=dict)
    is_partial: bool = False
    """Not every run of the line was watched (it ran too often, or could only be sampled): hits
    are a lower bound, other figures are shares."""
    is_shared: bool = False
    """Memory was read for several lines at once (they ran too often, or in several threads) and
    is shared out; hits and time are exact."""


@dataclass(frozen=True, slots=True)
class FunctionProfile:
    """The lines of one function that was asked for by name."""

    name: str
    filename: str
    lines: tuple[LineUsage, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """Where time and memory went, line by line."""

    lines: tuple[LineUsage, ...]
    functions: tuple[FunctionProfile, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """Which engine told the lines apart, and why that one."""

    name: Literal["monitoring", "settrace", "memory-profiler", "sampling"]
    reason: str


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The process's memory around and during the run, and the limit that it runs into."""

    before_bytes: int
    after_bytes: int
    peak_bytes: int
    file_peak_bytes: int
    source: str
    is_exact: bool
    limit_bytes: int | None = None
    limit_source: str = ""
    limit_counts_reserved: bool = False
    """The limit counts what was asked for, used or not: it is reached before as much is in use."""
    children_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device's allocator around and during the run."""

    name: str
    before_bytes: int
    after_bytes: int
    peak_bytes: int
    limit_bytes: int | None = None
    source: str = "TensorFlow's allocator"
    is_part_of_host: bool = False
    """A training device on the CPU: its memory is the process's own, and counted there too."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver sees it (NVML). None: the driver could not say."""

    index: int
    name: str
    total_bytes: int | None = None
    used_by_others_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """One figure over time: the lowest and the highest value in each interval."""

    name: str
    unit: LaneUnit
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """All lanes on one clock.

    `line_numbers[i]` ran at `times_s[i]`; 0 is a line outside the cell.
    """

    times_s: tuple[float, ...] = ()
    line_numbers: tuple[int, ...] = ()
    lanes: tuple[Lane, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended."""

    kind: Literal["finished", "failed", "interrupted"]
    error_type: str = ""
    message: str = ""
    line_number: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """What one owner held of a device's memory at one moment."""

    kind: HoldingKind
    bytes: int
    layer: str = ""
    op: str = ""
    owner: str = ""
    """The name in the notebook that holds it, as one would write it: `model`, `losses`."""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    count: int = 1
    line_number: int | None = None
    """The cell's line that ran when it was asked for, where neither layer nor owner is known."""


@dataclass(frozen=True, slots=True)
class Composition:
    """Who held what on one device at its fullest, or when it ran out. Holdings add up to it."""

    device: str
    moment: Literal["peak", "recorded", "failure"]
    """`recorded`: the highest point of what was recorded, where the whole run's was higher."""
    total_bytes: int
    holdings: tuple[Holding, ...]
    source: Literal["tape", "compiled buffers", "names", "plan"]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """One out-of-memory error, whichever of TensorFlow's many, as facts. None: not known."""

    kind: FailureKind
    place: Literal["device", "host"]
    text: str
    """The first line of the error's message, without its graph."""
    error_type: str = ""
    device: str = ""
    asked_bytes: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    op: str = ""
    layer: str = ""
    line_number: int | None = None
    line_source: str = ""
    filename: str = ""
    """Where that line stands, if not in the cell."""
    in_use_bytes: int | None = None
    limit_bytes: int | None = None
    largest_free_bytes: int | None = None
    allocator: str = ""


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A cause that was considered, and why it is not this one."""

    cause: Cause
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why memory ran out (or that it did not), in one sentence with numbers, and its evidence."""

    cause: Cause
    sentence: str
    evidence: tuple[str, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    confidence: Literal["certain", "likely", "possible"] = "likely"
    line_number: int | None = None
    line_source: str = ""
    layer: str = ""
    owner: str = ""
    """The object to blame, by its name in the notebook."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What a step is expected to take of the device at one batch size."""

    batch: int
    low_bytes: int
    peak_bytes: int
    high_bytes: int
    """The truth is expected between the low and the high figure."""
    kinds: Mapping[HoldingKind, int]
    """What the memory holds at the peak; adds up to `peak_bytes`."""


@dataclass(frozen=True, slots=True)
class BatchTrial:
    """Real steps at one batch size, on a device of one size, in a child process."""

    batch: int
    limit_bytes: int
    outcome: Literal["fits", "ran out", "failed", "died", "timed out"]
    peak_bytes: int | None = None
    steps: int = 0
    elapsed_s: float = 0.0
    message: str = ""
    """What happened, where it did not fit."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The device's peak for any batch size, as far as it was predicted."""

    title: str
    """What it is for: a model's or a step's name."""
    task: Literal["training", "prediction", "step"]
    device: str
    rows: tuple[PlannedBatch, ...]
    """From the smallest batch to the largest, in growing strides."""
    ran: tuple[int, ...]
    """The batch sizes that really ran."""
    fixed_bytes: int
    """What stays from step to step whatever the batch: weights, slots."""
    sample_bytes: int
    """What each sample adds."""
    how: str
    """How it was made, in one sentence."""
    elapsed_s: float = 0.0
    limit_bytes: int | None = None
    limit_source: str = ""
    max_batch: int | None = None
    """The largest batch that fits the limit; 0 if none does."""
    notes: tuple[str, ...] = ()
    trials: tuple[BatchTrial, ...] = ()


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of the cell as typed, by its characters, and what comes in its place."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A change of the cell."""

    edits: tuple[Edit, ...]
    source: str
    """The cell with it."""
    diff: tuple[str, ...]
    """Line by line, each behind ` `, `-`, `+` or `@`."""


@dataclass(frozen=True, slots=True)
class Saving:
    """How much lower a peak is expected to be."""

    place: str
    """A device's name, or `host`."""
    low_bytes: int
    bytes: int
    high_bytes: int
    """The truth is expected between the low and the high figure."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A suggestion for this cell: what to change, why here, and what it would save."""

    rule: str
    title: str
    message: str
    safety: Safety
    place: str
    """Where it helps: a device's name, or `host`."""
    cost: str = ""
    """What one pays for it, in a few words."""
    changes: str = ""
    """How results differ, where they do."""
    saving: Saving | None = None
    runs_then: bool = False
    """Memory ran out, and with the change it is expected to suffice."""
    is_guess: bool = False
    """Expected by a step that ran out on its way forward: nobody knows what was still to come."""
    fix: Fix | None = None
    line_number: int | None = None
    instead_of: int | None = None
    """It changes the same lines as the suggestion of this number: take one or the other."""

    @property
    def saving_bytes(self) -> int | None:
        """The saving that is expected."""
        return None if self.saving is None else self.saving.bytes


@dataclass(frozen=True, slots=True)
class TrialRun:
    """The cell's first steps in a child process, as it is or as it would be. None: not known."""

    outcome: Literal["finished", "ran out", "failed", "died", "timed out"]
    device: str = ""
    device_peak_bytes: int | None = None
    host_peak_bytes: int | None = None
    """What it took beyond what the process had before the cell."""
    steps: int = 0
    step_s: float | None = None
    loss: float | None = None
    """After those steps."""
    message: str = ""
    """What happened, where it did not finish."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What suggestions really do: the cell without them and with them, under the same limit."""

    numbers: tuple[int, ...]
    """Of the suggestions, as they were listed."""
    rules: tuple[str, ...]
    before: TrialRun
    after: TrialRun
    limit_bytes: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run showed."""

    source: str
    started_at: str
    elapsed_s: float
    outcome: Outcome
    engine: Engine
    profile: Profile
    host: HostMemory
    devices: tuple[DeviceMemory, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    timeline: Timeline = Timeline()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    compositions: tuple[Composition, ...] = ()
    verdict: Verdict | None = None
    plan: Forecast | None = None
    findings: tuple[Finding, ...] = ()
    """Suggestions, the best first; they are spoken of by their numbers, from 1 on."""
    trials: tuple[Trial, ...] = ()

    def to_json(self) -> str:
        """Say all of it as JSON; what `load` reads."""
        return report_json.to_text(self, FORMAT)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a file, whole or not at all."""
        report_json.write_text(path, self.to_json())


def load(path: str | os.PathLike[str]) -> Report:
    """Read a saved report; a file that is not one is a `ReportFileError`."""
    return report_json.from_text(report_json.read_text(path), Report, FORMAT)
