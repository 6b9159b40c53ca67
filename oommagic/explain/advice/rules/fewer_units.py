"""Fewer units in the layer whose weights take most."""

from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import DATA_ON_THE_DEVICE
from oommagic.explain.advice.heavy_layer import heaviest_layer, saving_of_half_its_units
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.units import format_bytes


class FewerUnits(Rule):
    """A smaller model, where it is largest."""

    name = "fewer-units"
    title = "Fewer units where the weights are"
    what = (
        "Where one layer's weights, slots and gradients take a good part of the peak, it names the "
        "layer, and what half of its units or outputs would save."
    )
    why = (
        "A weight costs its own memory, that of its gradient and that of the optimizer's slots: "
        "four times its size with Adam. Layers differ by thousands, so it matters which one is "
        "made smaller."
    )
    example = "keras.layers.Dense(4096)"
    instead = "keras.layers.Dense(2048)"
    safety = "hint"
    fix_safety = "It is another model, to be trained anew."
    cost = "a model that can learn less"
    effort = 4.0
    causes = frozenset({"step too big", "unknown"})
    speaks = (
        Case("model.fit(x, y, batch_size=128)\n", STEP_OF_96),
        Case("for x, y in ds:\n    step(x, y)\n", STEP_OF_96),
    )
    is_silent = (
        Case("model.fit(x, y, batch_size=128)\n"),
        Case("model.fit(x, y, batch_size=128)\n", DATA_ON_THE_DEVICE),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the layer whose weights take most."""
        heaviest = heaviest_layer(here, "weights", "optimizer slots")
        if heaviest is not None:
            layer, size = heaviest
            yield Found(
                title=f"Half the units in `{layer}`",
                message=(
                    f"Weights, gradients and slots of `{layer}` take {format_bytes(size)} of "
                    f"{format_bytes(here.device_needs_bytes)}; with half the units they take half "
                    "of it, and the layer behind it gets smaller, too."
                ),
                place=here.device,
                saving=saving_of_half_its_units(here, size),
            )
