"""Weights of eight bits, for predictions."""

from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import LARGE_PREDICTION
from oommagic.explain.advice.rule import Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.units import format_bytes

_WITH_INT8 = ("Dense", "EinsumDense", "Embedding")
_LEAST_SHARE = 0.1
_SAVED, _RANGE = 0.6, (0.66, 1.3)
"""Of weights of 32 bits: three quarters, less what predicting by eight bits needs at once."""


class Quantisation(Rule):
    """`model.quantize("int8")` where a model only predicts."""

    name = "quantisation"
    title = "Weights of eight bits"
    what = (
        "Where a prediction ran out and the weights take much: what `model.quantize('int8')` would "
        "save, which Keras has for `Dense`, `EinsumDense` and `Embedding`."
    )
    why = (
        "A weight of eight bits takes a quarter of one of 32. It is for predictions only: a "
        "quantised layer can't be trained, and training keeps gradients, slots and activations "
        "besides. Pruning is no way to less memory either: a weight of zero takes as much as any."
    )
    example = "model.predict(x)"
    instead = 'model.quantize("int8")\nmodel.predict(x)'
    safety = "hint"
    fix_safety = "Predictions differ slightly."
    cost = "less exact predictions, and a model that can't be trained any more"
    effort = 4.0
    causes = frozenset({"evaluation"})
    speaks = (
        Case("model.predict(x)\n", LARGE_PREDICTION),
        Case("for b in ds:\n    out = model.predict(b)\n", LARGE_PREDICTION),
    )
    is_silent = (
        Case("model.fit(x, y)\n", STEP_OF_96),
        Case("model.fit(x, y)\nmodel.predict(x)\n", LARGE_PREDICTION),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Add up the weights that could be of eight bits."""
        if any(cell.calls_of("fit", "GradientTape")) or not any(cell.calls_of("predict")):
            return
        for name, model in here.models():
            size = sum(one.weight_bytes for one in model.layers if one.kind in _WITH_INT8)
            saving = expected(here.device, _SAVED * size, *_RANGE)
            if model.policy == "float32" and saving.bytes >= _LEAST_SHARE * here.device_needs_bytes:
                yield Found(
                    title=f"Predict with weights of eight bits: `{name}.quantize('int8')`",
                    message=(
                        f"Dense layers' and embeddings' weights take {format_bytes(size)} of "
                        f"{format_bytes(here.device_needs_bytes)}; of eight bits they take a "
                        "quarter of that. It is for predictions only."
                    ),
                    place=here.device,
                    saving=saving,
                )
                return
