"""The layer whose weights take most, and what half of its units would save."""

from oommagic.explain.advice.rule import expected
from oommagic.explain.advice.situation import Situation
from oommagic.report import HoldingKind, Saving

_LEAST_SHARE = 0.1
_BY_WEIGHTS: tuple[HoldingKind, ...] = ("weights", "optimizer slots", "gradients")


def heaviest_layer(here: Situation, *by: HoldingKind) -> tuple[str, int] | None:
    """Give the layer that holds most of these kinds, with what it takes by its weights, if much."""
    layer, _ = next(iter(here.layers_by_bytes(*by)), ("", 0))
    size = here.held(*_BY_WEIGHTS, layer=layer) if layer else 0
    return (layer, size) if size and size >= _LEAST_SHARE * here.device_needs_bytes else None


def saving_of_half_its_units(here: Situation, size: int) -> Saving:
    """Say what is saved of what it takes by its weights: the layer behind it gets smaller, too."""
    return expected(here.device, 0.75 * size, low=0.55, high=1.5)
