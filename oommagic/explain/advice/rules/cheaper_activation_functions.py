"""Activation functions of which less is kept."""

from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.activations import EXPENSIVE, kept_beyond, with_activation
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.rule import STEP, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Holding
from oommagic.units import MIB, format_bytes

_GELU = replace(
    STEP_OF_96, holdings=(Holding("activations", 1200 * MIB, layer="conv2d", op="mul", count=4),)
)


class CheaperActivationFunctions(Rule):
    """`relu` instead of `gelu`, for what the backward pass needs."""

    name = "cheaper-activation-functions"
    title = "Cheaper activation functions"
    what = (
        "Where layers with `gelu`, `mish`, `swish`, `softplus` or `leaky_relu` hold a large part "
        "of the peak, it says what others would keep."
    )
    why = (
        "What counts is not how costly a function is to compute, but what its gradient needs: "
        "`relu`, `tanh`, `sigmoid`, `elu`, `selu` and `relu6` need nothing but their own "
        "output, which the next layer keeps anyway. `swish`, `softplus` and `leaky_relu` need what "
        "went in as well; `gelu` and `mish` are several ops, each of which keeps its own. Measured "
        "on a net of five convolutions: 262 MB, 343 to 374 MB, and 598 MB; `gelu` with "
        "`approximate=True` 740 MB."
    )
    example = 'keras.layers.Conv2D(32, 3, activation="gelu")'
    instead = 'keras.layers.Conv2D(32, 3, activation="relu")'
    safety = "hint"
    fix_safety = "It is another model: train it from the start."
    cost = "another model"
    effort = 3.0
    causes = STEP
    speaks = (
        Case('model = keras.Sequential([keras.layers.Conv2D(8, 3, activation="gelu")])\n', _GELU),
        Case("x = L.Activation(tf.nn.silu)(x)\nmodel = keras.Model(i, x)\n", _GELU),
    )
    is_silent = (
        Case('model = keras.Sequential([keras.layers.Conv2D(8, 3, activation="relu")])\n', _GELU),
        Case('plot(x, activation="gelu")\nmodel.fit(x, y)\n'),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find layers with such functions, and what they keep beside their output."""
        found = list(with_activation(cell))
        saved = kept_beyond(here, 1)
        if not found or not saved:
            return
        call, name = max(found, key=lambda one: EXPENSIVE[one[1]])
        yield Found(
            title=f"`relu` instead of `{name}`",
            message=(
                f"The backward pass of `{name}` needs more than what it gave: at the peak, layers "
                f"hold {format_bytes(saved)} beside one tensor of their output each. `relu`, "
                "`tanh` and `elu` need that one alone."
            ),
            place=here.device,
            saving=expected(here.device, saved, 0.5, 1.5),
            line_number=call.lineno,
        )
