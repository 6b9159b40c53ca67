"""Runs in which the device was filled by something else than the step: for docs and tests."""

from dataclasses import replace

from oommagic.explain.advice.examples import MODEL, STEP_OF_96, with_model
from oommagic.explain.growth import Growth
from oommagic.recording import LayerFacts, Named
from oommagic.report import Holding
from oommagic.units import GIB, MIB

OTHERS_ON_THE_CARD = replace(
    STEP_OF_96,
    cause="another process",
    is_on_gpu=True,
    forecast=None,
    others_bytes=11 * GIB,
    device_limit_bytes=3 * GIB,
)
"""A card of which other processes hold 11 GB."""

DATA_ON_THE_DEVICE = replace(
    STEP_OF_96,
    cause="data on the device",
    place="CPU:0",
    device="CPU:0",
    forecast=None,
    holdings=(Holding("data", 600 * MIB, owner="ds"), Holding("weights", 100 * MIB)),
)
"""A training device with 600 MB of data on it."""

DATA_ON_THE_CARD = replace(DATA_ON_THE_DEVICE, place="GPU:0", device="GPU:0", is_on_gpu=True)

IN_PIECES = replace(STEP_OF_96, cause="fragmentation", forecast=None, largest_free_bytes=90 * MIB)
IN_PIECES_ON_A_CARD = replace(IN_PIECES, is_on_gpu=True)

MODELS_GROW = replace(
    STEP_OF_96,
    cause="growth",
    forecast=None,
    growths=(
        Growth("GPU:0", "iteration", 5, 1500 * MIB, what="models", maker="build()", line_number=2),
    ),
)
"""A loop that builds a model of 300 MB each time."""

OUTPUTS_GROW = replace(
    STEP_OF_96,
    cause="growth",
    forecast=None,
    growths=(
        Growth("GPU:0", "step", 400, 1600 * MIB, what="tensors", owner="outs", line_number=3),
    ),
)
"""A list `outs` that keeps 4 MB of each step."""

LOSSES_GROW = replace(
    OUTPUTS_GROW,
    growths=(Growth("GPU:0", "step", 8_000_000, 1900 * MIB, what="tensors", owner="losses"),),
)
"""A list `losses` that keeps a number of each step on the device."""

TRACED_AGAIN = replace(STEP_OF_96, cause="none", place="", forecast=None, traces={"step": 40})
"""A tf.function `step` that was traced 40 times."""

LEFT_IN_OUT = replace(
    STEP_OF_96,
    cause="left behind",
    forecast=None,
    device_outputs={"Out[3]": 700 * MIB, "Out[5]": 200 * MIB},
)
"""IPython keeps 900 MB on the device, as what earlier cells gave."""

HELD_TO_LESS = replace(
    STEP_OF_96,
    cause="a limit",
    limit_set_by="the logical device's memory_limit",
    hardware_bytes=14 * GIB,
)
"""A limit of 2 GB on a card that has 14 GB."""

TWO_REPLICAS = replace(
    STEP_OF_96,
    names={**STEP_OF_96.names, "strategy": Named("other", text="MirroredStrategy")},
)

SOME_CARDS = replace(
    STEP_OF_96, cards={"T4": 13 * GIB, "laptop-6GB": int(3.5 * GIB), "A100-40GB": 37 * GIB}
)

LARGE_DENSE_LAYER = replace(
    with_model(STEP_OF_96, replace(MODEL, layers=(LayerFacts("dense", "Dense", 400 * MIB),))),
    holdings=(
        Holding("weights", 400 * MIB, layer="dense"),
        Holding("optimizer slots", 800 * MIB, layer="dense"),
        Holding("gradients", 400 * MIB, layer="dense"),
        Holding("activations", 300 * MIB, layer="conv2d"),
    ),
)
"""A step that does not fit, most of which is for the weights of one dense layer."""

LARGE_PREDICTION = replace(LARGE_DENSE_LAYER, cause="evaluation", forecast=None)
