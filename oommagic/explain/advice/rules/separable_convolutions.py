"""Separable convolutions, where weights of convolutions are a large part."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from oommagic.explain.advice.examples import STEP_OF_96, with_model
from oommagic.explain.advice.keras_names import spelled_beside
from oommagic.explain.advice.layers import layer_made
from oommagic.explain.advice.nodes import dotted
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import Part, kernel_shape, layer_part
from oommagic.explain.advice.training import slots_of
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.wording import code_list
from oommagic.recording import LayerFacts, ModelFacts
from oommagic.report import Edit, Holding
from oommagic.units import MIB, format_bytes

_MOST_ARGUMENTS = 3
"""From the fourth on, the places of the arguments differ."""
_SAME = frozenset(
    {"filters", "kernel_size", "strides", "padding", "activation", "use_bias", "name", "dtype"}
)
"""What both layers take under the same name, with the same meaning."""
_LARGE = 0.05
_WEIGHTS = 144 * MIB
_WIDE = ModelFacts(
    layers=(LayerFacts("conv2d", "Conv2D", MIB), LayerFacts("conv2d_1", "Conv2D", _WEIGHTS)),
    optimizer="Adam",
)
_LARGE_KERNELS = replace(
    with_model(STEP_OF_96, _WIDE),
    holdings=(
        Holding("weights", _WEIGHTS, layer="conv2d_1", shape=(3, 3, 2048, 2048)),
        Holding("optimizer slots", 2 * _WEIGHTS, layer="conv2d_1", shape=(3, 3, 2048, 2048)),
    ),
)


class SeparableConvolutions(Rule):
    """A convolution over each map, and one over the maps at each pixel."""

    name = "separable-convolutions"
    title = "Separable convolutions"
    what = (
        "Where weights of convolutions, with their slots and gradients, are a large part of the "
        "peak, it makes those `SeparableConv2D`. Where activations are what counts, it says "
        "nothing."
    )
    why = (
        "A 3 x 3 convolution from 512 maps to 512 has nine times 512 x 512 weights, the separable "
        "one about a ninth of that. But it keeps another tensor for the backward pass, what the "
        "first of its two steps gave: in a net whose memory is activations it takes more, not "
        "less (measured: 301 MB instead of 262)."
    )
    example = 'keras.layers.Conv2D(512, 3, padding="same")'
    instead = 'keras.layers.SeparableConv2D(512, 3, padding="same")'
    safety = "changes results"
    fix_safety = "It is another model, with fewer weights: train it from the start."
    cost = "another model"
    effort = 4.0
    causes = STEP
    speaks = (
        Case(
            "x = keras.layers.Conv2D(2048, 3)(x)\n"
            "x = keras.layers.Conv2D(2048, 3, padding='same')(x)  # wide\n"
            "model = keras.Model(i, x)\n",
            _LARGE_KERNELS,
            "x = keras.layers.Conv2D(2048, 3)(x)\n"
            "x = keras.layers.SeparableConv2D(2048, 3, padding='same')(x)  # wide\n"
            "model = keras.Model(i, x)\n",
        ),
        Case(
            "model = keras.Sequential([Conv2D(2048, 3),\n\tConv2D(2048, (3, 3), strides=2)])\n",
            _LARGE_KERNELS,
            "model = keras.Sequential([Conv2D(2048, 3),\n"
            "\tkeras.layers.SeparableConv2D(2048, (3, 3), strides=2)])\n",
        ),
    )
    is_silent = (
        Case(
            "model = keras.Sequential([keras.layers.Conv2D(32, 3), keras.layers.Conv2D(32, 3)])\n",
            STEP_OF_96,
        ),
        Case(
            "model = keras.Sequential([Conv2D(2048, 3), Conv2D(2048, 3, groups=8)])\n",
            _LARGE_KERNELS,
        ),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find convolutions with large kernels, and weigh what they would take otherwise."""
        for name, model in here.models():
            slots = slots_of(model.optimizer)
            large = {
                call: (layer, part)
                for call in cell.calls_of("Conv2D")
                if (layer := layer_made(cell, model, call)) is not None
                and (part := _saved(here, layer, slots)) is not None
                and _is_plain(call)
            }
            if large:
                yield _found(cell, here, name, large)
                return


def _found(
    cell: TypedCell,
    here: Situation,
    name: str,
    large: dict[ast.Call, tuple[LayerFacts, Part]],
) -> Found:
    weights = sum(layer.weight_bytes for layer, _ in large.values())
    saved = sum((part for _, part in large.values()), Part(0.0))
    return Found(
        title=f"`SeparableConv2D` for {code_list(one.name for one, _ in large.values())}",
        message=(
            f"These convolutions have {format_bytes(weights)} of weights in `{name}`, and as "
            "much again for each slot and for their gradients; separable ones have a few "
            "percent to a ninth of that, and keep one more tensor of their input's size."
        ),
        place=here.device,
        saving=saved.saving(here.device),
        edits=tuple(dict.fromkeys(_edits(cell, here, large))),
        line_number=next(iter(large)).lineno,
    )


def _saved(here: Situation, layer: LayerFacts, slots: float) -> Part | None:
    """Say what one convolution would no longer take, if that is much."""
    shape = kernel_shape(here, layer)
    if shape is None or len(shape) != len("hwio") or shape[:2] == (1, 1):
        return None
    height, width, maps, filters = shape
    left = 1 / filters + 1 / (height * width)
    extra = here.held("activations", layer=layer.name) * maps / filters
    part = layer_part(here, layer, slots) * (1 - left) + Part(-extra)
    return part if part.lasting_bytes > _LARGE * here.peak(here.device) else None


def _edits(cell: TypedCell, here: Situation, calls: Iterable[ast.Call]) -> Iterator[Edit]:
    for call in calls:
        separable = spelled_beside(cell, here, call.func, "layers.SeparableConv2D")
        yield from separable.imports
        yield cell.replace(call.func, separable.text)


def _is_plain(call: ast.Call) -> bool:
    """Say whether the other layer takes the same arguments."""
    has_star = any(isinstance(one, ast.Starred) for one in call.args)
    return (
        not has_star
        and len(call.args) <= _MOST_ARGUMENTS
        and all(one.arg in _SAME for one in call.keywords)
        and dotted(call.func) != ""
    )
