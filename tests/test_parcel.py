"""What travels to a child: models of many kinds, what their code uses, and what cannot."""

import json
import math
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import ROOT, run_after_import
from hypothesis import given
from hypothesis import strategies as st

from oommagic.errors import CannotTravelError
from oommagic.trial.parcel import pack
from oommagic.trial.whereabouts import way_to

TESTS = ROOT / "tests"
_LIST = re.compile(r"^TRAVELLERS = \((.*?)^\)", re.DOTALL | re.MULTILINE)
# Read, not imported: TensorFlow stays out of the tests' own process.
KINDS = _LIST.findall((TESTS / "travellers.py").read_text(encoding="utf-8"))[0].split(",\n")[:-1]
KINDS = [kind.strip() for kind in KINDS]


def run_script(name: str, folder: Path) -> None:
    """Run one of the two sides of the journey, as a program of its own."""
    ran = subprocess.run(
        [sys.executable, str(TESTS / name), str(folder)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pack all kinds in one process, and open them in another; give what each says of them."""
    folder = tmp_path_factory.mktemp("journey")
    run_script("travellers.py", folder)
    run_script("arrivals.py", folder)
    told, arrived = (json.loads((folder / f"{n}.json").read_text()) for n in ("told", "arrived"))
    assert set(told) == set(arrived) == set(KINDS)
    return told, arrived


@pytest.mark.of_tensorflow
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_arrives_as_it_is_and_trains(
    journey: tuple[dict[str, Any], dict[str, Any]], kind: str
) -> None:
    told, arrived = journey
    assert arrived[kind]["what"] == told[kind]["what"]
    assert math.isfinite(arrived[kind]["second"])


@pytest.mark.of_tensorflow
def test_variables_are_made_in_the_order_in_which_the_models_were(
    journey: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    told, arrived = journey
    orders = {kind: one["order"] for kind, one in told.items()}
    assert {kind: one["order"] for kind, one in arrived.items()} == orders
    assert any(order != sorted(order) for order in orders.values())


@pytest.mark.of_tensorflow
def test_packing_changes_nothing_to_the_bit(
    journey: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    assert [kind for kind, told in journey[0].items() if not told["is_unchanged"]] == []


@pytest.mark.of_tensorflow
def test_a_parcel_is_small(journey: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert max(told["bytes"] for told in journey[0].values()) < 1 << 20


@pytest.mark.of_tensorflow
def test_large_weights_and_what_cannot_travel() -> None:
    told = run_after_import("""
import pickle, resource, sys, tempfile
from pathlib import Path
import keras, numpy as np, tensorflow as tf
from oommagic.errors import CannotTravelError
from oommagic.trial.parcel import pack

def refused(*things):
    try:
        return len(pack(things))
    except CannotTravelError as error:
        return str(error)

model = keras.Sequential([keras.Input((4000,)), keras.layers.Dense(4000)])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
told["bytes"] = len(pack(model))
with tempfile.TemporaryDirectory() as folder:
    parcel = pack(model, values=True, folder=Path(folder))
    told["grown_kb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    told["files"] = [file.stat().st_size for file in Path(folder).iterdir()]
    arrived = pickle.loads(parcel)
told["is_same"] = bool(np.array_equal(arrived.get_weights()[0], model.get_weights()[0]))

screen = sys.stderr
train_ds = tf.data.Dataset.range(3)
def step(x):
    return [x for _ in train_ds]
told["dataset"] = refused(step)
model.log = open("/dev/null")
told["file"] = refused(model)
del model.log
told["printer"] = refused(lambda: print("", file=screen))
model.batches = {"first": iter(train_ds)}
told["iterator"] = refused(model)
del model.batches
asked = []
inner = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
inner.layers[0].__class__ = type("Own", (keras.layers.Dense,), {
    "variables": property(lambda layer: asked.append(layer) or []),
})
pack(inner)
told["asked"] = len(asked)
with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
    spread = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
told["strategy"] = refused(spread)

@tf.function
def graph(x):
    told["tensor"] = refused(x)
    return x
graph(tf.constant(1.0))
""")
    assert told["bytes"] < 100_000
    assert told["grown_kb"] < 30_000, "the weights are 64 MB"
    assert told["files"] == [pytest.approx(4000 * 4000 * 4, rel=1e-3)]
    assert told["is_same"]
    assert told["dataset"].startswith("`train_ds`, a tf.data.Dataset, cannot be sent to a child")
    assert told["file"].startswith("`model.log`, an open file, cannot be sent")
    assert told["iterator"].startswith("`model.batches['first']`, a tf.data.Iterator, cannot be")
    assert told["asked"] == 0, "a property of the user's ran"
    assert "a MirroredStrategy, cannot be sent" in told["strategy"]
    assert "a tensor of a graph, cannot be sent" in told["tensor"]
    assert told["printer"] > 0


def opened(thing: object, folder: Path | None = None) -> Any:
    return pickle.loads(pack(thing, folder=folder))  # noqa: S301 (packed on this line)


def test_a_function_brings_the_names_that_it_uses() -> None:
    factor, lock = 3, threading.Lock()

    def scaled(x: int) -> int:
        with lock:
            return x * factor

    assert opened(scaled)(2) == 6


def test_a_large_array_is_read_from_a_file_and_cannot_be_written(tmp_path: Path) -> None:
    table = np.arange(1_000_000).reshape(1000, 1000)
    there = opened({"table": table, "again": table, "part": table[:, 5]}, tmp_path)
    assert np.array_equal(there["table"], table)
    assert there["table"] is there["again"]
    assert isinstance(there["table"], np.memmap)
    assert not there["table"].flags.writeable
    assert np.array_equal(there["part"], table[:, 5])


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_that_is_a_file_is_not_copied(tmp_path: Path, order: Any) -> None:
    table: Any = np.memmap(tmp_path / "mine", "int32", "w+", 128, (700, 800), order)
    table[3, 4] = 5
    there = opened(table, tmp_path / "none")
    assert np.array_equal(there, table)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("part", [lambda t: t[10:], lambda t: t[:, ::2], lambda t: t.T])
def test_a_part_of_such_an_array_is_that_part(tmp_path: Path, part: Callable[[Any], Any]) -> None:
    table: Any = np.memmap(tmp_path / "mine", "int32", "w+", 0, (900, 800))
    table[:] = np.arange(720_000).reshape(900, 800)
    assert np.array_equal(opened(part(table), tmp_path / "more"), part(table))


def test_a_large_array_without_a_folder_is_refused_by_its_name() -> None:
    table = np.zeros(1_000_000)

    def step() -> Any:
        return table[0]

    with pytest.raises(CannotTravelError, match=r"`table`, an array of 7.63 MB, cannot be sent"):
        pack(step)


def test_too_much_of_anything_is_refused() -> None:
    with pytest.raises(CannotTravelError, match="it is more than 256 MB"):
        pack([bytes(200 << 20), bytes(100 << 20)])


class Locker:
    """Something that holds what cannot be copied, in places of all kinds."""

    def __init__(self, content: Any) -> None:
        self.content = content


def wrappings() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(["list", "tuple", "dict", "object", "closure"]), max_size=6)


@given(wrappings())
def test_what_cannot_travel_is_found_wherever_it_is(kinds: list[str]) -> None:
    culprit = threading.current_thread()
    thing: Any = culprit
    for kind in kinds:
        thing = _wrapped(kind, thing)
    assert way_to(culprit, (("root", thing),)) != ""


def _wrapped(kind: str, inner: Any) -> Any:
    match kind:
        case "list":
            return [0, inner]
        case "tuple":
            return (inner, 0)
        case "dict":
            return {"key": inner}
        case "object":
            return Locker(inner)
    return lambda: inner
