"""All that is known of one run, or of one error alone, when a verdict is to be given."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from oommagic.explain.clues import Clues, clues_in
from oommagic.recording import Held, Tape, TracedLines
from oommagic.report import (
    HOST,
    Composition,
    DeviceMemory,
    Failure,
    Gpu,
    HostMemory,
    LineUsage,
    Profile,
    Report,
    Timeline,
)


@dataclass(frozen=True, slots=True)
class SetLimit:
    """A limit that someone has set on the host's or a device's memory."""

    text: str
    """What set it, to be followed by its size: `ulimit -v`, `the logical device's memory_limit`."""
    bytes: int
    device: str = ""
    """Empty for the host."""
    hardware_bytes: int | None = None
    """What there would be without it. None: not known, or the limit stands for the hardware, as
    that of a training device does."""


@dataclass(frozen=True)
class Facts:
    """Whatever is known; each part may be missing.

    Without a `profile` the run was not recorded: a device's figures, and `held_after`, are then
    those of now, and nothing is known of before.
    """

    failure: Failure | None = None
    source: str = ""
    """The cell, as executed, or the file that ran."""
    first_line: int = 1
    """The number of the source's first line."""
    filename: str = ""
    """What errors call the source's file; empty for a recorded cell."""
    line_number: int | None = None
    """The source's own line that ran when it failed: that, or one that called what failed."""
    stack: tuple[str, ...] = ()
    """The functions that ran when it failed, outermost first, and those in the error's text."""
    names_used: frozenset[str] | None = None
    """Names that the cell reaches, also through the functions that it calls. None: those that
    stand in its source."""
    names_in_functions: frozenset[str] = frozenset()
    """Those of them that the notebook's functions use, whether the cell itself does or not."""
    profile: Profile | None = None
    host: HostMemory | None = None
    devices: tuple[DeviceMemory, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    timeline: Timeline = field(default_factory=Timeline)
    compositions: tuple[Composition, ...] = ()
    tapes: tuple[Tape, ...] = ()
    held_before: tuple[Held, ...] = ()
    held_after: tuple[Held, ...] = ()
    is_as_it_failed: bool = False
    """Without a recording: whether what was in use when it failed still is, as far as the error
    tells. It ended no step, and no function of Keras's, that has given back what it had."""
    traced: tuple[TracedLines, ...] = ()
    earlier: tuple[Report, ...] = ()
    """The reports of this kernel before this one, the oldest first."""
    limits: tuple[SetLimit, ...] = ()
    host_limit_bytes: int | None = None
    """Without a recording: what this process can have of the host's memory at most."""

    @cached_property
    def clues(self) -> Clues:
        """What the source says."""
        return clues_in(self.source, self.first_line)

    @property
    def place(self) -> str:
        """The device that ran out, or the host; empty where it is not known, or nothing did."""
        if self.failure is None:
            return ""
        if self.failure.place == "host":
            return HOST
        only = self.devices[0].name if len(self.devices) == 1 else ""
        return self.failure.device or only

    @property
    def knows_before(self) -> bool:
        """Whether it is known what names held before."""
        return self.profile is not None or bool(self.held_before)

    def device(self, name: str) -> DeviceMemory | None:
        """Find a device's figures."""
        return next((device for device in self.devices if device.name == name), None)

    def gpu(self, device: str) -> Gpu | None:
        """Find the card behind a device of TensorFlow's."""
        kind, _, number = device.partition(":")
        if kind != "GPU":
            return None
        return next((gpu for gpu in self.gpus if str(gpu.index) == number), None)

    def composition(self, device: str) -> Composition | None:
        """Find who held what on a device, when it failed rather than at the peak."""
        ours = [each for each in self.compositions if each.device == device]
        failed = (each for each in ours if each.moment == "failure")
        return next(failed, ours[0] if ours else None)

    def lines(self) -> tuple[LineUsage, ...]:
        """The cell's own lines."""
        return self.profile.lines if self.profile is not None else ()

    def earlier_runs(self) -> tuple[Report, ...]:
        """Earlier runs of the same cell."""
        text = self.source.strip()
        return tuple(report for report in self.earlier if text and report.source.strip() == text)

    def uses(self, owner: str) -> bool:
        """Say whether the cell reaches what is held under that name."""
        used = self.clues.names_used if self.names_used is None else self.names_used
        return root_of(owner) in used


def root_of(owner: str) -> str:
    """Give the name that one would have to delete: `losses` for `losses[3]`.

    What IPython keeps of a cell's value, and what a function's own name holds, stay as they are:
    `Out[3]`, `x in train_step`.
    """
    if " in " in owner:
        return owner
    root = owner.partition("[")[0].partition(".")[0]
    return owner.partition("]")[0] + "]" if root == "Out" and "]" in owner else root


def once_each(held: Iterable[Held], facts: Facts) -> Iterator[Held]:
    """Yield each piece of memory once, under a name that the cell uses if it has one."""
    by_address: dict[tuple[str, int], Held] = {}
    for each in held:
        key = (each.device, each.address)
        if not each.address:
            yield each
        elif key not in by_address or facts.uses(each.owner):
            by_address[key] = each
    yield from by_address.values()
