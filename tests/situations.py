"""Runs that a cell may have had, by what is known of them."""

from dataclasses import replace
from random import Random
from typing import get_args

from hypothesis import strategies as st

from oommagic.explain.advice.examples import HOST_RAN_OUT, MODEL, STEP_OF_96
from oommagic.explain.advice.rules import RULES
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.growth import Growth
from oommagic.explain.growth.value import WhatGrows
from oommagic.recording import Named
from oommagic.report import HOST, Cause, DeviceUsage, Holding, HoldingKind, LineUsage
from oommagic.units import GIB, KIB, MIB

CASES = tuple(case for rule in RULES for case in rule.speaks)
_BATCHES = (1, 8, 16, 20, 32, 64, 128, 256, 512, 1024)
_DTYPES = ("float64", "float32", "float16", "uint8", "int64", "int32", "bool", "<U12", "object")
_SHAPES = ((50_000, 32, 32, 3), (10_000,), (1000, 200), (), (0,), (3, 224, 224, 3), None)
_MODULES = ("tensorflow", "keras", "tensorflow.keras", "numpy", "pandas", "gc")


def _module(name: str) -> Named | None:
    text = {"tf": "tensorflow", "np": "numpy", "keras": "keras", "pd": "pandas"}.get(name)
    return None if text is None else Named("module", text=text)


def _named(random: Random, name: str) -> Named:
    """Make up what a name holds: by its name, as one would guess, or anything else."""
    guess = _module(name)
    if guess is not None and random.random() < 0.8:
        return guess
    if name in {"model", "net", "gan", "ae"} and random.random() < 0.8:
        return Named("model", model=replace(MODEL, accumulates=random.choice([None, 4])))
    return random.choice(
        [
            Named(
                "array",
                random.choice([0, 3 * KIB, 40 * MIB, 3 * GIB]),
                random.choice(_DTYPES),
                random.choice(_SHAPES),
            ),
            Named("tensor", random.choice([4, 300 * MIB]), "float32", random.choice(_SHAPES)),
            Named("variable", 9 * MIB, "float32", (10, 10)),
            Named("model", model=MODEL),
            Named("model"),
            Named("dataset", text="_BatchDataset"),
            Named("optimizer", text="Adam"),
            Named("module", text=random.choice(_MODULES)),
            Named("number", number=random.choice([*_BATCHES, 0, -1, 0.5])),
            Named("text", text=random.choice(["", "data/x.npy", "float64", "{'\"<%\\"])),
            Named("list", random.choice([0, 2 * GIB]), count=random.choice([0, 3, 60_000])),
            Named("other", text="DataFrame"),
        ]
    )


def _names(random: Random, cell: TypedCell) -> dict[str, Named]:
    known = random.choice([0.0, 0.5, 1.0])
    return {name: _named(random, name) for name in sorted(cell.names) if random.random() < known}


def _lines(random: Random, text: str, device: str) -> tuple[LineUsage, ...]:
    sources = enumerate(text.splitlines(), start=1)
    return tuple(
        LineUsage(
            number,
            source,
            hits=random.choice([1, 100]),
            host_delta_bytes=random.choice([0, 0, 500 * MIB, -MIB]),
            host_peak_bytes=random.choice([2 * GIB, 11 * GIB]),
            devices={device: DeviceUsage(random.choice([0, 400 * MIB]), random.choice([0, GIB]))},
        )
        for number, source in sources
        if random.random() < 0.7
    )


def _growths(random: Random, cell: TypedCell, place: str) -> tuple[Growth, ...]:
    owners = [*sorted(cell.names), ""]
    return tuple(
        Growth(
            place=place,
            per=random.choice(["step", "run"]),
            repeats=random.choice([3, 40]),
            total_bytes=random.choice([20 * MIB, GIB]),
            what=random.choice(get_args(WhatGrows)),
            owner=random.choice(owners),
            count_before=1,
            count_after=40,
            line_number=random.choice([None, 1, 5]),
        )
        for _ in range(random.choice([0, 1, 2]))
    )


def _holdings(random: Random) -> tuple[Holding, ...]:
    layers = [*(layer.name for layer in MODEL.layers), "sequential/dense", ""]
    return tuple(
        Holding(kind, random.choice([MIB, 90 * MIB, 900 * MIB]), random.choice(layers))
        for kind in get_args(HoldingKind)
        if random.random() < 0.7
    )


@st.composite
def healthy(draw: st.DrawFn, text: str) -> Situation:
    """Make up a run that had memory enough, with nothing growing."""
    random = draw(st.randoms(use_true_random=True))
    cell = TypedCell(text)
    lines = (replace(one, host_delta_bytes=0) for one in _lines(random, text, "GPU:0"))
    return replace(
        STEP_OF_96,
        cause="none",
        place="",
        line_number=None,
        device_peak_bytes=700 * MIB,
        device_needs_bytes=700 * MIB,
        device_limit_bytes=16 * GIB,
        host_peak_bytes=3 * GIB,
        host_limit_bytes=32 * GIB,
        lines=tuple(lines),
        batch=random.choice([None, *_BATCHES]),
        names=_names(random, cell),
        traces={"train_step": 1, "f": 2},
        is_on_gpu=random.random() < 0.5,
    )


@st.composite
def troubled(draw: st.DrawFn, text: str) -> Situation:
    """Make up a run that ran out on a device or on the host, or nearly."""
    random = draw(st.randoms(use_true_random=True))
    cell = TypedCell(text)
    device = random.choice(["GPU:0", "CPU:0"])
    place = random.choice([device, HOST])
    start = random.choice([STEP_OF_96, HOST_RAN_OUT])
    lines = _lines(random, text, device) if random.random() < 0.7 else ()
    needs = random.choice([int(1.7 * GIB), 3 * GIB, 6 * GIB])
    return replace(
        start,
        cause=random.choice(get_args(Cause)),
        place=place,
        device=device,
        line_number=random.choice([None, 1, max(1, len(text.splitlines()))]),
        device_needs_bytes=needs,
        device_peak_bytes=min(needs, 2 * GIB),
        device_before_bytes=random.choice([0, GIB]),
        largest_free_bytes=random.choice([None, 20 * MIB]),
        host_peak_bytes=random.choice([2 * GIB, int(11.5 * GIB)]),
        host_limit_bytes=random.choice([None, 12 * GIB]),
        holdings=_holdings(random),
        lines=lines,
        forecast=random.choice([start.forecast, None]),
        batch=random.choice([None, *_BATCHES]),
        growths=_growths(random, cell, place),
        traces={
            name: random.choice([1, 30]) for name in sorted(cell.names) if random.random() < 0.1
        },
        names=_names(random, cell),
        outputs={"Out[3]": 2 * GIB} if random.random() < 0.3 else {},
        device_outputs={"Out[4]": GIB} if random.random() < 0.3 else {},
        is_on_gpu=device == "GPU:0",
        others_bytes=random.choice([0, GIB]),
    )


@st.composite
def as_in_a_case(draw: st.DrawFn, text: str) -> Situation:
    """Take the run of a rule's own case, with this cell's names for what its names held."""
    here = draw(st.sampled_from(CASES)).here
    random = draw(st.randoms(use_true_random=True))
    held = [one for one in here.names.values() if one.kind != "module"] or [Named("other")]
    names = {name: _module(name) or random.choice(held) for name in sorted(TypedCell(text).names)}
    line = random.choice([here.line_number, max(1, len(text.splitlines())), None])
    return replace(here, names={**here.names, **names}, line_number=line)


def situations(text: str) -> st.SearchStrategy[Situation]:
    """Draw one of all sorts."""
    return st.one_of(
        st.just(Situation()), healthy(text), troubled(text), as_in_a_case(text), as_in_a_case(text)
    )
