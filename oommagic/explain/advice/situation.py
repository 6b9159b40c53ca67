"""What is known of the run of a cell, as rules ask for it."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from oommagic.explain.growth import Growth
from oommagic.forecasts import planned, rows_of
from oommagic.recording import ModelFacts, Named, PipelineStep
from oommagic.report import HOST, Cause, Forecast, Holding, HoldingKind, LineUsage, PlannedBatch
from oommagic.units import MIB

TIGHT = 0.8
"""From this share of a place's limit on, its peak is worth being lowered though nothing ran out."""
WORTH = 0.05
"""A saving below this share of a place's peak is not worth a change."""
LEAST_BYTES = MIB


@dataclass(frozen=True, slots=True)
class Situation:
    """The run of one cell. What is not known is empty, 0 or None."""

    cause: Cause = "none"
    """`none` where nothing ran out."""
    place: str = ""
    """What ran out: a device, or the host."""
    line_number: int | None = None
    """The cell's own line that ran when memory ran out."""
    device: str = ""
    """The device that trains."""
    device_peak_bytes: int = 0
    device_needs_bytes: int = 0
    """The peak, or where that ran out what it would have been, at the least."""
    device_before_bytes: int = 0
    """What was in use before the cell."""
    device_limit_bytes: int | None = None
    largest_free_bytes: int | None = None
    asked_bytes: int = 0
    """What was asked for when the device ran out."""
    asked_shape: tuple[int, ...] | None = None
    holdings: tuple[Holding, ...] = ()
    """Who held what of the device at its fullest; they add up to it."""
    host_peak_bytes: int = 0
    """What the process had at its fullest, the cell's part or not."""
    host_needs_bytes: int = 0
    """The peak, or where that ran out what it would have been, at the least."""
    host_before_bytes: int = 0
    host_limit_bytes: int | None = None
    lines: tuple[LineUsage, ...] = ()
    forecast: Forecast | None = None
    batch: int | None = None
    """The size of the training steps that ran."""
    has_all_activations: bool = False
    """Whether the step that ran out had come to gradients: all its activations had been there."""
    growths: tuple[Growth, ...] = ()
    traces: Mapping[str, int] = field(default_factory=dict)
    """How often each tf.function was traced."""
    names: Mapping[str, Named] = field(default_factory=dict)
    """What the names that stand in the cell hold now."""
    names_in_functions: frozenset[str] = frozenset()
    """Names that functions use which the cell calls, wherever those stand."""
    outputs: Mapping[str, int] = field(default_factory=dict)
    """What IPython keeps of earlier cells' values, in bytes: `Out[3]`."""
    device_outputs: Mapping[str, int] = field(default_factory=dict)
    """The same, of what lies on the device."""
    is_on_gpu: bool = False
    others_bytes: int = 0
    """What other processes hold of the card."""
    keras_has: frozenset[str] = frozenset()
    """What the installed Keras offers under its own name, of what only newer ones do."""
    limit_set_by: str = ""
    """What holds the place that ran out to less than there is: `ulimit -v`."""
    hardware_bytes: int | None = None
    """What that place would have without it."""
    cards: Mapping[str, int] = field(default_factory=dict)
    """Known cards, and what TensorFlow gets of their memory."""

    @property
    def ran_out(self) -> bool:
        """Whether memory ran out."""
        return self.cause != "none"

    def peak(self, place: str) -> int:
        """Say how full a place was, or would have had to be."""
        if place == HOST:
            return max(self.host_peak_bytes, self.host_needs_bytes)
        return self.device_needs_bytes

    def limit(self, place: str) -> int | None:
        """Give a place's limit."""
        return self.host_limit_bytes if place == HOST else self.device_limit_bytes

    def is_short(self, place: str) -> bool:
        """Say whether a place ran out, or nearly did."""
        if self.ran_out:
            return self.place == place
        limit = self.limit(place)
        return bool(limit) and self.peak(place) >= TIGHT * (limit or 0)

    def is_worth(self, saving_bytes: int, place: str) -> bool:
        """Say whether a saving is worth a change of the cell."""
        return saving_bytes >= max(LEAST_BYTES, WORTH * self.peak(place))

    # ---- Who held what ------------------------------------------------------------------------

    def held(self, *kinds: HoldingKind, layer: str | None = None) -> int:
        """Add up what the device held of some kinds at its fullest, in one layer or all."""
        return sum(one.bytes for one in self._holdings_of(kinds, layer))

    def shapes(self, *kinds: HoldingKind, layer: str | None = None) -> set[tuple[int, ...]]:
        """Give the shapes of what was held of some kinds, but for scalars."""
        return {one.shape for one in self._holdings_of(kinds, layer) if one.shape}

    def _holdings_of(self, kinds: Sequence[HoldingKind], layer: str | None) -> Iterator[Holding]:
        for one in self.holdings:
            if one.kind in kinds and (layer is None or same_layer(one.layer, layer)):
                yield one

    def layers_by_bytes(self, *kinds: HoldingKind) -> list[tuple[str, int]]:
        """Give the layers with what each held of some kinds, the largest first."""
        sums: dict[str, int] = {}
        for one in self.holdings:
            if one.kind in kinds and one.layer:
                sums[one.layer] = sums.get(one.layer, 0) + one.bytes
        return sorted(sums.items(), key=lambda item: -item[1])

    # ---- Names --------------------------------------------------------------------------------

    def known(self, value: ast.AST | None) -> Named | None:
        """Give what is known of an expression that is a name and nothing more."""
        return self.names.get(value.id) if isinstance(value, ast.Name) else None

    def array(self, name: str) -> Named | None:
        """Give what is known of a NumPy array of that name."""
        found = self.names.get(name)
        return found if found is not None and found.kind == "array" else None

    def pipelines(self) -> Iterator[tuple[PipelineStep, ...]]:
        """Yield the steps of the cell's data sets."""
        yield from (one.pipeline for one in self.names.values() if one.pipeline)

    def models(self) -> Iterator[tuple[str, ModelFacts]]:
        """Yield the cell's models, the largest first, by their names."""
        found = [(name, one.model) for name, one in self.names.items() if one.model is not None]
        yield from sorted(found, key=lambda item: -item[1].weight_bytes)

    def module(self, *modules: str) -> str | None:
        """Give the notebook's name for one of these modules: `tf` for `tensorflow`."""
        for wanted in modules:
            for name, one in self.names.items():
                if one.kind == "module" and one.text == wanted:
                    return name
        return None

    def growth_of(self, *whats: str) -> Growth | None:
        """Give the largest growth of one of these sorts."""
        return next((one for one in self.growths if one.what in whats), None)

    # ---- Batches ------------------------------------------------------------------------------

    def planned(self, batch: int) -> PlannedBatch | None:
        """Say what a step of that size is expected to take."""
        return None if self.forecast is None else planned(rows_of(self.forecast), batch)

    @property
    def batch_that_fits(self) -> int | None:
        """The largest batch that is expected to fit; None if that is not known, 0 if none does."""
        if self.forecast is None or self.forecast.max_batch is None:
            return None
        return min(self.forecast.max_batch, self.batch or self.forecast.max_batch)


def same_layer(told: str, layer: str) -> bool:
    """Say whether a layer's name as an op has it (`sequential/conv2d`) is that of a layer."""
    return told == layer or told.rpartition("/")[2] == layer
