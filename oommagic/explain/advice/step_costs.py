"""What parts of a training step take of the device: what lasts, and what passes."""

from dataclasses import dataclass
from math import prod

from oommagic.explain.advice.situation import Situation, same_layer
from oommagic.recording import LayerFacts
from oommagic.report import Holding, HoldingKind, Saving

_LASTING: tuple[HoldingKind, ...] = ("weights", "optimizer slots")
_LESS, _MORE = 0.8, 1.35
"""Chunks are handed out whole where they are not much too large, and updates race: the same step
of one program took 147 MB and 162 MB."""


@dataclass(frozen=True, slots=True)
class Part:
    """What would not be needed: always there, or for a moment."""

    lasting_bytes: float
    """Weights and slots: they are there at the peak, wherever it moves."""
    passing_bytes: float = 0.0
    """Gradients, activations and workspace: without them the peak may come at another moment."""

    def __mul__(self, share: float) -> "Part":
        """Take a share of it."""
        return Part(self.lasting_bytes * share, self.passing_bytes * share)

    def __add__(self, other: "Part") -> "Part":
        """Take both."""
        return Part(
            self.lasting_bytes + other.lasting_bytes, self.passing_bytes + other.passing_bytes
        )

    def saving(self, place: str) -> Saving:
        """Say what the peak is expected to fall by."""
        least, most = self.lasting_bytes, self.lasting_bytes + self.passing_bytes
        return Saving(place, int(_LESS * least), int((least + most) / 2), int(_MORE * most))


def layer_part(here: Situation, layer: LayerFacts, slots: float) -> Part:
    """Say what one layer's weights bring with them: slots, gradients, an update's workspace."""
    shapes = weight_shapes(here, layer)
    passing: float = sum(
        one.bytes
        for one in here.holdings
        if one.kind not in _LASTING
        and (one.shape in shapes or (one.kind == "rounding" and same_layer(one.layer, layer.name)))
    )
    passing += _of_all_weights(here) * layer.weight_bytes / max(here.held("weights"), 1)
    return Part(layer.weight_bytes * (1 + slots), max(passing, layer.weight_bytes))


def _of_all_weights(here: Situation) -> float:
    """Say what the optimizer held that is known for no weight: new slots, rounding."""
    owners = {model.optimizer.lower() for _, model in here.models()}
    return sum(one.bytes for one in here.holdings if one.layer in owners and one.shape is None)


def weight_shapes(here: Situation, layer: LayerFacts) -> set[tuple[int, ...]]:
    """Give the shapes of a layer's large weights, as the device held them."""
    return {shape for shape in here.shapes(*_LASTING, layer=layer.name) if len(shape) > 1}


def kernel_shape(here: Situation, layer: LayerFacts) -> tuple[int, ...] | None:
    """Give the shape of a layer's largest weight."""
    return max(weight_shapes(here, layer), key=prod, default=None)


def growing(here: Situation, *kinds: HoldingKind) -> tuple[Holding, ...]:
    """Give what grows with the batch: what layers computed, its gradients, workspace."""
    weights = here.shapes(*_LASTING)
    return tuple(one for one in here.holdings if one.kind in kinds and one.shape not in weights)


def computed_bytes(here: Situation) -> int:
    """Say what layers compute in a step, with its gradients and what is needed meanwhile."""
    return sum(one.bytes for one in growing(here, "activations", "gradients", "workspace"))


def update_bytes(here: Situation) -> int:
    """Say what an optimizer's update had for itself at the peak: pieces as large as weights."""
    weights = here.shapes(*_LASTING)
    return sum(
        one.bytes
        for one in here.holdings
        if one.kind == "workspace" and one.shape in weights and len(one.shape or ()) > 1
    )
