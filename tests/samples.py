"""Reports as real runs would give them, and strategies for every report there could be."""

import math
from dataclasses import replace
from typing import Literal, TypeVar, cast

from hypothesis import strategies as st

from oommagic.report import (
    BatchTrial,
    Composition,
    DeviceMemory,
    DeviceUsage,
    Engine,
    Failure,
    Finding,
    Fix,
    Forecast,
    FunctionProfile,
    Gpu,
    Holding,
    HoldingKind,
    HostMemory,
    Lane,
    LineUsage,
    Outcome,
    PlannedBatch,
    Profile,
    Report,
    RuledOut,
    Saving,
    Timeline,
    Trial,
    TrialRun,
    Verdict,
)
from oommagic.units import GIB, MIB

_Value = TypeVar("_Value")
Unit = Literal["bytes", "percent", "bytes/s", "celsius", "watts"]

MONITORING = Engine("monitoring", "Python 3.12 has it, and nothing else was using it.")
HOST = HostMemory(
    before_bytes=612 * MIB,
    after_bytes=1180 * MIB,
    peak_bytes=1240 * MIB,
    file_peak_bytes=210 * MIB,
    source="the kernel's high-water mark",
    is_exact=True,
    limit_bytes=int(23.5 * GIB),
    limit_source="the cgroup's limit, memory.max",
)
VERSIONS = {"oommagic": "0.1.0", "Python": "3.12.1", "TensorFlow": "2.20.0", "Keras": "3.13.2"}

TRAINING_CELL = """\
import keras
import numpy as np

# A small residual network on synthetic images.
images = np.random.rand(4096, 128, 128, 3).astype("float32")
labels = np.random.randint(0, 10, 4096)

def block(x, filters):
\ty = keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
\treturn keras.layers.Add()([keras.layers.Conv2D(filters, 1)(x), y])

inputs = keras.Input((128, 128, 3))
x = keras.layers.Rescaling(1 / 255)(inputs)
for filters in (32, 64, 128, 256):
    x = block(x, filters)
    x = keras.layers.MaxPooling2D()(x)
outputs = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x))
model = keras.Model(inputs, outputs)

model.compile(
    optimizer="adam",
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
print("数据 ready 🚀", images.shape)
model.fit(images, labels, batch_size=256, epochs=5, validation_split=0.1, verbose=2)
model.save("model.keras")"""


WEIGHT_KINDS: tuple[tuple[HoldingKind, int], ...] = (("weights", 2), ("optimizer slots", 4))


def failed_training() -> Report:
    """Make the report of a cell of 25 lines that ran out of memory on one of two devices."""
    lines = TRAINING_CELL.split("\n")
    usages = {
        1: _ran(1, 1.84, 310, 930),
        2: _ran(1, 0.00002, 0, 930),
        5: _ran(1, 0.91, 192, 1122),
        6: _ran(1, 0.0004, 0, 1122),
        8: _ran(1, 0.00001, 0, 1122),
        9: _ran(4, 0.044, 1, 1128, cpu=(2, 2), gpu=(5, 5), worst_s=0.019),
        10: _ran(4, 0.012, 0, 1130, cpu=(0, 2), gpu=(1, 6), worst_s=0.004),
        12: _ran(1, 0.003, 0, 1130, cpu=(0, 2), gpu=(0, 6)),
        13: _ran(1, 0.004, 0, 1130, cpu=(0, 2), gpu=(0, 6)),
        14: _ran(5, 0.00003, 0, 1130, cpu=(0, 2), gpu=(0, 6), worst_s=0.00001),
        15: _ran(4, 0.0002, 0, 1130, cpu=(0, 2), gpu=(0, 6), worst_s=0.0001),
        16: _ran(4, 0.006, 0, 1130, cpu=(0, 2), gpu=(0, 6), worst_s=0.002),
        17: _ran(1, 0.008, 0, 1130, cpu=(0, 2), gpu=(1, 7)),
        18: _ran(1, 0.004, 0, 1130, cpu=(0, 2), gpu=(0, 7)),
        20: _ran(1, 0.011, 0, 1130, cpu=(0, 2), gpu=(0, 7)),
        24: _ran(1, 0.00009, 0, 1130, cpu=(0, 2), gpu=(0, 7)),
        25: _ran(1, 11.42, 58, 1240, cpu=(1, 190), gpu=(14, 7935)),
    }
    report = Report(
        source=TRAINING_CELL,
        started_at="2026-11-18 11:40:02",
        elapsed_s=14.24,
        outcome=Outcome(
            "failed",
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError",
            "OOM when allocating tensor with shape[256,256,128,128] and type float on "
            "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n[[more]]",
            25,
        ),
        engine=MONITORING,
        profile=Profile(
            tuple(
                replace(usages.get(number, LineUsage(0, "")), line_number=number, source=source)
                for number, source in enumerate(lines, start=1)
            )
        ),
        host=HOST,
        devices=(
            DeviceMemory("GPU:0", 0, 21 * MIB, 7935 * MIB, 8000 * MIB),
            DeviceMemory("CPU:0", 0, 3 * MIB, 190 * MIB, 512 * MIB),
        ),
        gpus=(Gpu(0, "NVIDIA T4", 15 * GIB, 2100 * MIB, 87.0, 66.0, 61.0),),
        notes=("TensorFlow was imported on line 1; device figures begin there.",),
        versions=VERSIONS,
        compositions=(what_training_held(),),
        verdict=too_big_a_step(),
    )
    return replace(report, timeline=_training_timeline())


def short_cell() -> Report:
    """Make the report of five lines without any device, one of them a comment."""
    sources = (
        "import numpy as np",
        "# half a gigabyte",
        "a = np.ones((8192, 8192))",
        "b = np.memmap('data.bin').sum()",
        "del a",
    )
    usages = (
        _ran(1, 0.00001, 0, 612),
        LineUsage(0, ""),
        _ran(1, 0.21, 512, 1124),
        _ran(1, 0.13, 0, 1324, file_mib=200),
        _ran(1, 0.02, -512, 1324),
    )
    return Report(
        source="\n".join(sources),
        started_at="2026-11-18 11:41:00",
        elapsed_s=0.36,
        outcome=Outcome("finished"),
        engine=Engine("settrace", "Python 3.11 has no sys.monitoring."),
        profile=Profile(_numbered(sources, usages)),
        host=replace(HOST, peak_bytes=1324 * MIB, after_bytes=812 * MIB),
        notes=("TensorFlow was not imported, so there are no device figures.",),
        versions={"oommagic": "0.1.0", "Python": "3.11.7"},
    )


def hot_loop() -> Report:
    """Make the report of a loop too hot to watch, that calls a function asked for by name."""
    sources = ("total = 0", "for i in range(9_000_000):", "    total += step(i)", "total")
    usages = (
        _ran(1, 0.000004, 0, 612),
        replace(_ran(8_991_204, 0.71, 0, 613, worst_s=0.0007), is_partial=True),
        replace(_ran(8_991_203, 2.05, 0.25, 613, worst_s=0.002), is_partial=True),
        _ran(1, 0.000002, 0, 613),
    )
    inner = ("def step(i):", "    # odd numbers only", "    return i if i % 2 else 0")
    inner_usages = (LineUsage(0, ""), LineUsage(0, ""), usages[2])
    return Report(
        source="\n".join(sources),
        started_at="2026-11-18 11:42:00",
        elapsed_s=3.4,
        outcome=Outcome("interrupted", "KeyboardInterrupt", "", 3),
        engine=MONITORING,
        profile=Profile(
            _numbered(sources, usages),
            (
                FunctionProfile(
                    "step",
                    "cell 3",
                    _numbered(inner, inner_usages),
                    "Keras traced it into a graph: its lines ran once, at tracing.",
                ),
            ),
        ),
        host=replace(HOST, children_peak_bytes=0),
        versions=VERSIONS,
    )


def too_big_a_step() -> Verdict:
    """Make the verdict on that training, with all that a verdict can say."""
    return Verdict(
        "step too big",
        "One training step at batch size 256 needs more than the 7.81 GB that GPU:0 has: "
        "block_0/conv2d_0 asked for 6.00 GB when 2.73 GB were in use.",
        evidence=(
            "The first step ran out, so nothing had time to grow.",
            "Of what was held, 38 % were activations, which grow with the batch size.",
            "5.08 GB were free, in one block.",
        ),
        ruled_out=(
            RuledOut("growth", "no step had ended before."),
            RuledOut("left behind", "7.00 MB were in use when the line began."),
            RuledOut("another process", "others hold 2.05 GB of the card, beyond that limit."),
            RuledOut("fragmentation", "all that was free was one block."),
        ),
        confidence="certain",
        line_number=25,
        line_source="model.fit(images, labels, batch_size=256, epochs=5, validation_split=0.1, "
        "verbose=2)",
        layer="block_0/conv2d_0",
        owner="model",
        failure=Failure(
            "allocation",
            "device",
            "OOM when allocating tensor with shape[256,256,128,128]",
            asked_bytes=6 * GIB,
            shape=(256, 256, 128, 128),
            dtype="float",
            layer="block_0/conv2d_0",
            line_number=25,
        ),
    )


def what_training_held() -> Composition:
    """Make the composition of that device as it ran out."""
    sizes = (32, 64, 128, 256)
    named = [
        Holding("data", 48 * MIB, owner="images[:256]", shape=(256, 128, 128, 3), dtype="float32"),
        *(
            Holding(
                "activations",
                512 * MIB // (place + 1) + 4096,
                f"functional/block_{place}/conv2d_{place}",
                "Relu",
                shape=(256, 128 >> place, 128 >> place, filters),
                dtype="float32",
            )
            for place, filters in enumerate(sizes)
        ),
        *(
            Holding(
                kind,
                3 * filters * 3000,
                f"conv2d_{filters}",
                shape=(3, 3, 3, filters),
                dtype="float32",
                count=count,
            )
            for filters in sizes
            for kind, count in WEIGHT_KINDS
        ),
        Holding("gradients", 811 * MIB, "functional/block_0/conv2d_0", count=2),
        Holding(
            "gradients", 120 * MIB, "functional/block_0/conv2d_0", shape=(64,), dtype="float32"
        ),
        Holding("workspace", 730 * MIB, "functional/block_1/conv2d_1", "Conv2DBackpropFilter"),
        Holding("loss and metrics", 1024, "compile_loss", shape=(), dtype="float32", count=3),
        Holding("rounding", 3_214_592),
        Holding("unknown", 11 * MIB, op="cluster_0_1/xla_run"),
    ]
    total = sum(holding.bytes for holding in named)
    return Composition("GPU:0", "failure", total, tuple(named), "tape", "The first of 3 steps.")


PER_SAMPLE: tuple[tuple[HoldingKind, float], ...] = (
    ("activations", 104.5),
    ("workspace", 18.25),
    ("gradients", 3.5),
    ("data", 0.6),
    ("loss and metrics", 0.01),
)
FIXED: tuple[tuple[HoldingKind, int], ...] = (
    ("weights", 98),
    ("optimizer slots", 196),
    ("gradients", 98),
    ("rounding", 12),
)


def planned_batch(batch: int) -> PlannedBatch:
    """Make what a step of a residual network would take at that size, a few percent unsure."""
    kinds = {kind: megabytes * MIB for kind, megabytes in FIXED}
    for kind, megabytes in PER_SAMPLE:
        kinds[kind] = kinds.get(kind, 0) + int(megabytes * MIB * batch)
    peak = sum(kinds.values())
    return PlannedBatch(batch, int(peak * 0.975), peak, int(peak * 1.03), kinds)


def planned_training() -> Forecast:
    """Make the forecast of a residual network on a card on which batch 102 fits."""
    sizes = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 102, 128, 192, 256, 384, 512)
    return Forecast(
        title="resnet50",
        task="training",
        device="GPU:0",
        rows=tuple(map(planned_batch, sizes)),
        ran=(5, 7, 13),
        fixed_bytes=404 * MIB,
        sample_bytes=int(126.9 * MIB),
        how="Every allocation of real steps scaled by itself, and the allocator replayed.",
        elapsed_s=12.6,
        limit_bytes=13757 * MIB,
        limit_source="T4",
        max_batch=102,
        notes=("The plan is for sequences of 512 tokens, the longest in the data.",),
    )


def tried_training() -> Forecast:
    """Make the same forecast after real steps at its answer, and at one that ran out."""
    limit = 13757 * MIB
    fitted = BatchTrial(102, limit, "fits", 13200 * MIB, 3, 8.4)
    ran_out = BatchTrial(110, limit, "ran out", None, 0, 2.1, "OOM when allocating a tensor.")
    hung = BatchTrial(64, limit, "timed out", None, 0, 60.0, "It took more than 60 s.")
    return replace(planned_training(), trials=(ran_out, fitted, hung))


def too_large_a_model() -> Forecast:
    """Make the forecast of a model whose weights alone do not fit."""
    return replace(
        planned_training(), limit_bytes=64 * MIB, limit_source="a tiny card", max_batch=0
    )


def unlimited_training() -> Forecast:
    """Make a forecast for a device whose limit is not known."""
    return replace(
        planned_training(), device="CPU:0", limit_bytes=None, limit_source="", max_batch=None
    )


def hostile_forecast() -> Forecast:
    """Make a forecast whose every text tries to break out of the page."""
    trial = BatchTrial(102, 13757 * MIB, "died", MIB, 1, 1.0, HOSTILE)
    return replace(
        planned_training(),
        title=HOSTILE,
        device=HOSTILE,
        how=HOSTILE,
        limit_source=HOSTILE,
        notes=(HOSTILE,),
        trials=(trial,),
    )


def empty_cell() -> Report:
    """Make the report of a cell without a line."""
    return Report(
        source="",
        started_at="2026-11-18 11:43:00",
        elapsed_s=0.00004,
        outcome=Outcome("finished"),
        engine=MONITORING,
        profile=Profile(()),
        host=HOST,
        versions=VERSIONS,
    )


def eight_gpus() -> Report:
    """Make the report of one training line on eight GPUs, and a ninth left idle."""
    names = [f"GPU:{i}" for i in (*range(2, 9), 10, 1)]
    usage = {name: DeviceUsage(i * MIB, (9 + i) * GIB) for i, name in enumerate(names[:-1])}
    lines = (
        replace(_ran(1, 0.1, 1, 620), line_number=1, source="dataset = load()"),
        replace(_ran(1, 61.0, 4, 900), line_number=2, source="model.fit(dataset)", devices=usage),
    )
    return replace(
        empty_cell(),
        source="dataset = load()\nmodel.fit(dataset)",
        elapsed_s=61.1,
        profile=Profile(lines),
        devices=tuple(
            DeviceMemory(name, 0, 0, usage[name].peak_bytes if name in usage else 0, 24 * GIB)
            for name in names
        ),
    )


HOSTILE = (
    "</style></title><script>window.pwned=1</script><img src=x onerror='window.pwned=1'>\u202e\""
)


def hostile() -> Report:
    """Make a report whose every text tries to break out of the page."""
    line = replace(
        _ran(2, 1.0, 1, 700),
        line_number=1,
        source=HOSTILE,
        devices={HOSTILE: DeviceUsage(MIB, MIB)},
    )
    times = (0.5, 1.0)
    return Report(
        source=HOSTILE,
        started_at=HOSTILE,
        elapsed_s=1.0,
        outcome=Outcome("failed", HOSTILE, HOSTILE, 1),
        engine=Engine("sampling", HOSTILE),
        profile=Profile((line,), (FunctionProfile(HOSTILE, HOSTILE, (line,), HOSTILE),)),
        host=replace(HOST, source=HOSTILE, limit_source=HOSTILE),
        devices=(DeviceMemory(HOSTILE, 0, MIB, MIB, None, HOSTILE),),
        gpus=(Gpu(0, HOSTILE, note=HOSTILE),),
        timeline=Timeline(
            times,
            (1, 1),
            (
                Lane(HOSTILE, "bytes", (1.0, 2.0), (1.0, 2.0)),
                Lane(HOSTILE, "percent", (0.0, 0.0), (0.0, 0.0)),
            ),
        ),
        notes=(HOSTILE,),
        versions={HOSTILE: HOSTILE},
        compositions=(hostile_composition(),),
        verdict=hostile_verdict(),
        findings=(hostile_finding(),) * 6,
        trials=(hostile_trial((1,)), hostile_trial((1, 2))),
    )


def hostile_finding() -> Finding:
    """Make a suggestion whose every text tries to break out of the page."""
    diff = tuple(f"{sign}{HOSTILE}" for sign in " -+@\u202e<")
    return Finding(
        rule=HOSTILE,
        title=HOSTILE,
        message=HOSTILE,
        safety="changes results",
        place=HOSTILE,
        cost=HOSTILE,
        changes=HOSTILE,
        saving=Saving(HOSTILE, MIB, MIB, MIB),
        fix=Fix((), HOSTILE, diff),
    )


def hostile_trial(numbers: tuple[int, ...]) -> Trial:
    """Make a trial whose every text tries to break out of the page."""
    run = TrialRun("failed", HOSTILE, MIB, MIB, 1, 1.0, 1.0, HOSTILE)
    return Trial(numbers, (HOSTILE,), run, run, MIB, (HOSTILE,))


def hostile_composition() -> Composition:
    """Make a composition whose every text tries to break out of the page."""
    held = Holding("tensors", MIB, HOSTILE, HOSTILE, HOSTILE, (1, 2), HOSTILE)
    return Composition(HOSTILE, "peak", MIB, (held,), "names", HOSTILE)


def hostile_verdict() -> Verdict:
    """Make a verdict whose every text tries to break out of the page."""
    failure = Failure("python", "host", HOSTILE, line_number=1, filename=HOSTILE)
    return Verdict(
        "host memory",
        HOSTILE,
        (HOSTILE,),
        (RuledOut("growth", HOSTILE),),
        line_number=1,
        line_source=HOSTILE,
        layer=HOSTILE,
        owner=HOSTILE,
        failure=failure,
    )


def any_report() -> st.SearchStrategy[Report]:
    """Draw any report that the types allow, sensible or not."""
    return _any(Report)


def any_verdict() -> st.SearchStrategy[Verdict]:
    """Draw any verdict that the types allow, sensible or not."""
    return _any(Verdict)


def any_forecast() -> st.SearchStrategy[Forecast]:
    """Draw any forecast that the types allow, sensible or not."""
    return _any(Forecast)


def any_findings() -> st.SearchStrategy[list[Finding]]:
    """Draw any suggestions that the types allow, sensible or not."""
    return st.lists(_any(Finding), max_size=7)


def any_trials() -> st.SearchStrategy[list[Trial]]:
    """Draw any trials that the types allow, of any numbers."""
    numbers = st.lists(st.integers(0, 8), max_size=3).map(tuple)
    trial = st.builds(replace, _any(Trial), numbers=numbers)
    return st.lists(trial, max_size=4)


def any_composition() -> st.SearchStrategy[Composition]:
    """Draw any composition that the types allow, whether it adds up or not."""
    return _any(Composition)


def _any(kind: type[_Value]) -> st.SearchStrategy[_Value]:
    finite = st.floats(allow_nan=False, allow_infinity=False)
    figures = st.integers(-(2**63) + 1, 2**63 - 1)
    st.register_type_strategy(float, finite)
    st.register_type_strategy(int, figures)
    return cast("st.SearchStrategy[_Value]", st.from_type(kind))


def _ran(  # noqa: PLR0913 - a line has that many figures
    hits: int,
    elapsed_s: float,
    host_mib: float,
    host_peak_mib: float,
    *,
    cpu: tuple[int, int] | None = None,
    gpu: tuple[int, int] | None = None,
    file_mib: int = 0,
    worst_s: float | None = None,
) -> LineUsage:
    devices = {
        name: DeviceUsage(usage[0] * MIB, usage[1] * MIB)
        for name, usage in (("CPU:0", cpu), ("GPU:0", gpu))
        if usage is not None
    }
    return LineUsage(
        0,
        "",
        hits,
        elapsed_s,
        elapsed_s if worst_s is None else worst_s,
        int(host_mib * MIB),
        int(host_peak_mib * MIB),
        file_mib * MIB,
        devices=devices,
    )


def _numbered(sources: tuple[str, ...], usages: tuple[LineUsage, ...]) -> tuple[LineUsage, ...]:
    pairs = zip(sources, usages, strict=True)
    return tuple(
        replace(usage, line_number=number, source=source)
        for number, (source, usage) in enumerate(pairs, start=1)
    )


def _training_timeline() -> Timeline:
    times = tuple(0.05 * (i + 1) for i in range(284))
    numbers = tuple(1 if t < 1.84 else 5 if t < 2.75 else 0 if t < 2.82 else 25 for t in times)

    def lane(name: str, unit: Unit, height: float, base: float = 0.0) -> Lane:
        highs = tuple(base + height * math.sin(t * 3) ** 2 * min(1, t / 9) for t in times)
        return Lane(name, unit, tuple(value * 0.96 for value in highs), highs)

    return Timeline(
        times,
        numbers,
        (
            lane("host", "bytes", 620.0 * MIB, 612.0 * MIB),
            lane("CPU:0", "bytes", 190.0 * MIB),
            lane("GPU:0", "bytes", 7935.0 * MIB),
            lane("CPU", "percent", 180.0, 10.0),
            lane("disk read", "bytes/s", 140.0 * MIB),
            lane("disk write", "bytes/s", 0.0),
            lane("network received", "bytes/s", 0.0),
            lane("GPU 0 busy", "percent", 95.0),
            lane("GPU 0 temperature", "celsius", 26.0, 41.0),
        ),
    )
