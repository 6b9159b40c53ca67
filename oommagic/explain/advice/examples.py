"""Runs that the rules' cases stand in: for the docs and the tests."""

from dataclasses import replace

from oommagic.explain.advice.situation import Situation
from oommagic.recording import LayerFacts, ModelFacts, Named, PipelineStep
from oommagic.report import Forecast, Holding, LineUsage, PlannedBatch
from oommagic.units import GIB, MIB

MODEL = ModelFacts(
    layers=(
        LayerFacts("conv2d", "Conv2D", MIB),
        LayerFacts("conv2d_1", "Conv2D", 2 * MIB),
        LayerFacts("flatten", "Flatten", 0),
        LayerFacts("dense", "Dense", 96 * MIB),
        LayerFacts("dense_1", "Dense", MIB),
    ),
    optimizer="Adam",
    policy="float32",
    is_compiled_by_xla=False,
)
"""A small convolutional net with one large dense layer."""


def _row(batch: int) -> PlannedBatch:
    fixed, each = 300 * MIB, 16 * MIB
    peak = fixed + batch * each
    kinds = {"weights": 100 * MIB, "optimizer slots": 200 * MIB, "activations": batch * each}
    return PlannedBatch(batch, int(0.95 * peak), peak, int(1.05 * peak), kinds)  # type: ignore[arg-type]  # a dict of literals


STEP_OF_96 = Situation(
    cause="step too big",
    place="GPU:0",
    line_number=1,
    device="GPU:0",
    device_peak_bytes=int(1.9 * GIB),
    device_needs_bytes=_row(128).peak_bytes,
    device_limit_bytes=2 * GIB,
    holdings=(
        Holding("weights", 100 * MIB, layer="dense"),
        Holding("optimizer slots", 200 * MIB, layer="dense"),
        Holding("activations", 900 * MIB, layer="conv2d"),
        Holding("activations", 500 * MIB, layer="conv2d_1"),
        Holding("gradients", 200 * MIB, layer="conv2d_1"),
    ),
    host_peak_bytes=3 * GIB,
    host_before_bytes=GIB,
    host_limit_bytes=12 * GIB,
    forecast=Forecast(
        title="model",
        task="training",
        device="GPU:0",
        rows=tuple(map(_row, (1, 16, 32, 64, 96, 128, 256))),
        ran=(128,),
        fixed_bytes=300 * MIB,
        sample_bytes=16 * MIB,
        how="",
        limit_bytes=2 * GIB,
        max_batch=96,
    ),
    batch=128,
    names={
        "model": Named("model", model=MODEL),
        "x": Named("array", 600 * MIB, "float32", (50_000, 32, 32, 3)),
        "y": Named("array", MIB, "int64", (50_000,)),
        "tf": Named("module", text="tensorflow"),
        "keras": Named("module", text="keras"),
        "np": Named("module", text="numpy"),
    },
)
"""A training step at batch 128 that does not fit 2 GB, where 96 would."""

HOST_RAN_OUT = Situation(
    cause="host memory",
    place="host",
    line_number=1,
    host_peak_bytes=12 * GIB,
    host_before_bytes=GIB,
    host_limit_bytes=12 * GIB,
    names={
        "x": Named("array", 4 * GIB, "float64", (10_000, 224, 224, 1)),
        "y": Named("array", MIB, "int64", (10_000,)),
        "tf": Named("module", text="tensorflow"),
        "keras": Named("module", text="keras"),
        "np": Named("module", text="numpy"),
    },
)
"""A cell that filled the host's 12 GB."""


def with_model(here: Situation, model: ModelFacts) -> Situation:
    """Give a run whose `model` is another."""
    return replace(here, names={**here.names, "model": Named("model", model=model)})


def data_set(*steps: PipelineStep) -> Situation:
    """Give a run that filled the host's memory with a data set of these steps."""
    names = {**HOST_RAN_OUT.names, "ds": Named("dataset", pipeline=steps)}
    return replace(HOST_RAN_OUT, names=names, line_number=None)


def host_peaks(*peaks_gib: float) -> tuple[LineUsage, ...]:
    """Say how full the host's memory was at each line, from the first on."""
    return tuple(
        LineUsage(number, "", hits=1, host_peak_bytes=int(peak * GIB))
        for number, peak in enumerate(peaks_gib, start=1)
    )
