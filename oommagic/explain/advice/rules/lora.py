"""Fine-tuning with low-rank updates: no gradients and slots for the large weights."""

from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.examples_of_causes import LARGE_DENSE_LAYER
from oommagic.explain.advice.rule import STEP, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import LayerFacts, Named
from oommagic.units import format_bytes

_WITH_LORA = ("Dense", "EinsumDense", "Embedding")
_LOADED_BY = ("from_preset", "load_model", "load_weights")
_LEAST_SHARE = 0.1
"""Of the peak: what adds rank-4 updates beside it takes some of it back."""


class Lora(Rule):
    """`enable_lora` on the large dense layers of a model that was loaded."""

    name = "lora"
    title = "Low-rank updates (LoRA)"
    what = (
        "Where a model that was loaded is trained further and its dense layers' gradients and "
        "slots take much: what `layer.enable_lora(rank)` would save, which Keras has for `Dense`, "
        "`EinsumDense` and `Embedding`."
    )
    why = (
        "Frozen weights have no gradients and no slots. Two thin matrices beside each are trained "
        "instead. Activations stay as they are, and so do the weights themselves: where those are "
        "most of it, LoRA does not help. From scratch it is no way to train."
    )
    example = 'model = keras.models.load_model("base.keras")\nmodel.fit(x, y)'
    instead = (
        'model = keras.models.load_model("base.keras")\nmodel.get_layer("dense").enable_lora(4)\n'
        'model.compile("adam", "mse")\nmodel.fit(x, y)'
    )
    safety = "hint"
    fix_safety = "Only low-rank changes of the weights are learned."
    cost = "a model that can change less"
    effort = 4.0
    causes = STEP
    speaks = (
        Case("model.load_weights('base.weights.h5')\nmodel.fit(x, y)\n", LARGE_DENSE_LAYER),
        Case("model = keras.models.load_model('m.keras')\nmodel.fit(x, y)\n", LARGE_DENSE_LAYER),
    )
    is_silent = (
        Case("model.fit(x, y)\n", LARGE_DENSE_LAYER),
        Case(
            "model.load_weights('base.weights.h5')\nmodel.fit(x, y)\n",
            replace(LARGE_DENSE_LAYER, names={"model": Named("model")}),
        ),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Add up what the dense layers' gradients and slots take."""
        if not any(cell.calls_of(*_LOADED_BY)) or not any(cell.calls_of("fit")):
            return
        for name, model in here.models():
            layers = [one for one in model.layers if _can_have_lora(one)]
            slots = sum(here.held("optimizer slots", layer=one.name) for one in layers)
            gradients = sum(here.held("gradients", layer=one.name) for one in layers)
            if slots + gradients >= _LEAST_SHARE * here.device_needs_bytes:
                yield _found(here, name, layers, slots, gradients)
                return


def _can_have_lora(layer: LayerFacts) -> bool:
    return layer.kind in _WITH_LORA and layer.is_trainable


def _found(
    here: Situation, name: str, layers: list[LayerFacts], slots: int, gradients: int
) -> Found:
    largest = max(layers, key=lambda one: one.weight_bytes).name
    most = slots + gradients
    return Found(
        title=f"Train low-rank updates of `{name}`: `enable_lora`",
        message=(
            f"Gradients and slots of its dense layers take {format_bytes(most)}, most for "
            f"`{largest}`. With `enable_lora(4)` on them, and compiled anew, only thin matrices "
            "have some."
        ),
        place=here.device,
        saving=expected(here.device, 0.95 * most, 0.73, 1.16),
    )
