"""Pruning that makes arrays smaller, rather than weights zero."""

from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import LARGE_DENSE_LAYER, LARGE_PREDICTION
from oommagic.explain.advice.heavy_layer import heaviest_layer, saving_of_half_its_units
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.units import format_bytes


class Pruning(Rule):
    """What pruning would bring: nothing, unless the arrays get smaller."""

    name = "pruning"
    title = "Pruned units, not zeros"
    what = (
        "Where a prediction ran out and one layer's weights take much, or the cell prunes weights "
        "with `prune_low_magnitude`, it says what pruning would bring."
    )
    why = (
        "Pruning as most libraries have it sets small weights to zero, and a zero takes as much "
        "memory as any number, in training and in predictions; `prune_low_magnitude` adds a mask "
        "for each weight while it trains. It makes files smaller that are compressed. Memory is "
        "less where whole units or channels go, so that the arrays get smaller, and with them "
        "their gradients and slots."
    )
    example = "pruned = sparsity.prune_low_magnitude(model)"
    instead = "smaller = keras.Sequential([keras.layers.Dense(512), keras.layers.Dense(10)])"
    safety = "hint"
    fix_safety = "It is another model: train it on, and look at what that costs."
    cost = "another model"
    effort = 4.0
    causes = STEP
    speaks = (
        Case("model.predict(x)\n", LARGE_PREDICTION),
        Case("p = sparsity.prune_low_magnitude(model)\np.fit(x, y)\n", LARGE_DENSE_LAYER),
    )
    is_silent = (
        Case("model.fit(x, y)\n", LARGE_DENSE_LAYER),
        Case("model.fit(x, y)\nmodel.predict(x)\n", LARGE_PREDICTION),
        Case("model.predict(x)\n", STEP_OF_96),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the layer whose weights take most, where weights are what counts."""
        is_pruned = any(cell.calls_of("prune_low_magnitude"))
        predicts = any(cell.calls_of("predict")) and not any(cell.calls_of("fit", "GradientTape"))
        if not is_pruned and not (predicts and here.cause == "evaluation"):
            return
        heaviest = heaviest_layer(here, "weights")
        if heaviest is not None:
            layer, size = heaviest
            yield Found(
                title=f"Prune whole units of `{layer}`",
                message=(
                    f"The weights of `{layer}`, and their gradients and slots where it trains, "
                    f"take {format_bytes(size)}, zeros or not. With half its units they take "
                    "half of that, and the layer behind it gets smaller, too."
                ),
                place=here.device,
                saving=saving_of_half_its_units(here, size),
            )
