"""Global average pooling before a large dense layer, in place of flattening."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.examples import MODEL, STEP_OF_96, with_model
from oommagic.explain.advice.keras_names import spelled_beside
from oommagic.explain.advice.nodes import keyword
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import kernel_shape, layer_part
from oommagic.explain.advice.training import slots_of
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import LayerFacts, ModelFacts
from oommagic.report import Edit
from oommagic.units import format_bytes

_OF_MAPS = ("Conv2D", "SeparableConv2D", "DepthwiseConv2D", "MaxPooling2D", "AveragePooling2D")
_TRANSPARENT = ("Dropout", "BatchNormalization", "Activation", "ReLU", "SpatialDropout2D")
_MAPS_LEFT = 0.05
"""Of the dense layer's weights, what is left where the number of maps is not known."""


class PoolingInsteadOfFlatten(Rule):
    """A dense layer that sees each map's mean rather than each of its pixels."""

    name = "pooling-instead-of-flatten"
    title = "Pooling instead of flattening"
    what = (
        "Where a dense layer behind `Flatten` has weights that, with their slots and gradients, "
        "are a large part of the step, it puts `GlobalAveragePooling2D` in place of `Flatten`."
    )
    why = (
        "Behind `Flatten` a dense layer has a weight for each pixel of each map and each unit. An "
        "optimizer like Adam keeps each of them three times, a fourth time as its gradient, and "
        "no batch is small enough to change that."
    )
    example = "x = keras.layers.Flatten()(x)\nx = keras.layers.Dense(512)(x)"
    instead = "x = keras.layers.GlobalAveragePooling2D()(x)\nx = keras.layers.Dense(512)(x)"
    safety = "changes results"
    fix_safety = (
        "It is another model, which no longer sees where in the image something was: train it "
        "from the start. For most classification that does not hurt. Saved weights of the dense "
        "layer do not fit any more."
    )
    cost = "another model"
    effort = 4.0
    causes = STEP
    speaks = (
        Case(
            "model = keras.Sequential([\n"
            "    keras.layers.Conv2D(32, 3), keras.layers.Conv2D(64, 3),\n"
            "    keras.layers.Flatten(),  # for the head\n"
            "    keras.layers.Dense(512), keras.layers.Dense(10),\n"
            "])\n",
            STEP_OF_96,
            "model = keras.Sequential([\n"
            "    keras.layers.Conv2D(32, 3), keras.layers.Conv2D(64, 3),\n"
            "    keras.layers.GlobalAveragePooling2D(),  # for the head\n"
            "    keras.layers.Dense(512), keras.layers.Dense(10),\n"
            "])\n",
        ),
        Case(
            "x = L.Flatten(name='flat')(x)\nmodel = keras.Model(i, L.Dense(10)(L.Dense(512)(x)))\n",
            STEP_OF_96,
            "x = L.GlobalAveragePooling2D(name='flat')(x)\n"
            "model = keras.Model(i, L.Dense(10)(L.Dense(512)(x)))\n",
        ),
    )
    is_silent = (
        Case("x = a.flatten()\nmodel.fit(x, y)\n", STEP_OF_96),
        Case(
            "h = keras.layers.Flatten()(x)\nmodel = keras.Model(x, keras.layers.Dense(9)(h))\n",
            with_model(STEP_OF_96, replace(MODEL, layers=(LayerFacts("flatten", "Flatten", 0),))),
        ),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the one `Flatten` of the cell, and the dense layer behind it in the model."""
        calls = list(cell.calls_of("Flatten"))
        if len(calls) != 1 or keyword(calls[0], "input_shape") is not None:
            return
        pooling = spelled_beside(cell, here, calls[0].func, "layers.GlobalAveragePooling2D")
        for _, model in here.models():
            dense = _dense_behind_maps(model)
            if dense is not None:
                edits = (*pooling.imports, cell.replace(calls[0].func, pooling.text))
                yield _found(here, calls[0], model, dense, edits)
                return


def _found(
    here: Situation,
    flatten: ast.Call,
    model: ModelFacts,
    dense: LayerFacts,
    edits: tuple[Edit, ...],
) -> Found:
    slots = slots_of(model.optimizer)
    part = layer_part(here, dense, slots) * (1 - _left(here, model, dense))
    return Found(
        title=f"`GlobalAveragePooling2D` instead of `Flatten` before `{dense.name}`",
        message=(
            f"`{dense.name}` has {format_bytes(dense.weight_bytes)} of the "
            f"{format_bytes(model.weight_bytes)} of weights, since each pixel "
            f"of each map has its own. With slots and gradients they come to "
            f"{format_bytes(int(dense.weight_bytes * (2 + slots)))}, whatever the batch."
        ),
        place=here.device,
        saving=part.saving(here.device),
        edits=edits,
        line_number=flatten.lineno,
    )


def _dense_behind_maps(model: ModelFacts) -> LayerFacts | None:
    """Give the dense layer behind the model's one `Flatten`, if there are maps before that."""
    kinds = [layer.kind for layer in model.layers]
    if kinds.count("Flatten") != 1:
        return None
    at = kinds.index("Flatten")
    before = next((kind for kind in reversed(kinds[:at]) if kind not in _TRANSPARENT), "")
    behind = next((one for one in model.layers[at + 1 :] if one.kind not in _TRANSPARENT), None)
    is_of_maps = before in _OF_MAPS and behind is not None and behind.kind == "Dense"
    return behind if is_of_maps else None


def _left(here: Situation, model: ModelFacts, dense: LayerFacts) -> float:
    """Say what share of the weights is left: one for each map, rather than for each pixel."""
    maps = [
        shape[-1]
        for layer in model.layers[: model.layers.index(dense)]
        if layer.kind in ("Conv2D", "SeparableConv2D")
        if (shape := kernel_shape(here, layer)) is not None
    ]
    shape = kernel_shape(here, dense)
    return maps[-1] / shape[0] if maps and shape is not None else _MAPS_LEFT
