"""What our own work takes of the process's memory, and gives back, is not the program's."""

from statistics import median
from typing import Any

import pytest
from children import ARENA, run_after_import, run_python

_MEASURE = """
from oommagic.measure.host import open_host_meter
from oommagic.measure.programs_memory import ProgramsMemory
from oommagic.tf.heap import OwnWork

memory = ProgramsMemory(open_host_meter())
told["is exact"] = memory.is_exact

def blocks(mebibytes):
    return [bytes(4000) for _ in range(mebibytes * 256)]

def work(mebibytes, take=blocks):
    doing = OwnWork()
    memory.read()
    with memory.without(doing):
        taken = take(mebibytes)
        del taken[:-1]  # the last one keeps the heap from shrinking by itself
        doing.end()
    return doing

def after(happens):
    before = memory.read()[0]
    happens()
    own, _, peak = memory.read()
    return [(own - before) >> 20, (peak - before) >> 20]
"""
_NOISE = 4
"""Mebibytes."""


def measured(source: str) -> dict[str, Any]:
    """Run source beside the helpers above."""
    told = run_python(_MEASURE + source)
    if not told["is exact"]:
        pytest.skip("this system has no exact figures")
    return told


def test_what_our_work_takes_and_gives_back_raises_no_figure() -> None:
    told = measured("""
told["seen"] = after(lambda: work(100))
doing = work(100)
told["work"] = [doing.took_bytes >> 20, doing.gave_back_bytes >> 20]
""")
    assert max(map(abs, told["seen"])) <= _NOISE
    assert abs(told["work"][0] - 100) <= _NOISE
    assert abs(told["work"][1]) <= _NOISE


def test_what_the_program_kept_unused_stays_in_its_figures_after_our_work_gave_it_back() -> None:
    told = measured("""
hoard = blocks(80)
pin = bytes(4000)  # above the others: the heap cannot shrink to what is in use
hoard.clear()
told["kept"] = after(lambda: work(0))
told["gave back"] = work(0).gave_back_bytes >> 20
""")
    assert max(map(abs, told["kept"])) <= _NOISE
    assert told["gave back"] <= _NOISE, "a second time there is nothing to give back"


def test_what_the_program_takes_meanwhile_is_the_programs() -> None:
    told = measured("""
kept = []
def take(mebibytes):
    kept.append(bytearray(b"x") * (300 << 20))
    return blocks(mebibytes)
told["seen"] = after(lambda: work(50, take))
""")
    own, peak = told["seen"]
    assert abs(own - 300) <= _NOISE
    assert abs(peak - 300) <= _NOISE


def test_while_our_work_goes_on_it_is_left_out_too() -> None:
    told = measured("""
doing = OwnWork()
with memory.without(doing):
    ours = blocks(60)
    told["read"] = after(lambda: ours.extend(blocks(60)))
    before = memory.peek()[0]
    ours.extend(blocks(60))
    told["peek"] = (memory.peek()[0] - before) >> 20
    doing.end()
""")
    assert max(map(abs, [*told["read"], told["peek"]])) <= _NOISE


_TAPED = """
import keras, oommagic
import tensorflow as tf

model = keras.Sequential([keras.Input((100, 64)), keras.layers.LSTM(128), keras.layers.Dense(1)])
model.compile("adam", "mse")
x, y = tf.random.uniform((640, 100, 64)), tf.zeros((640, 1))
model.fit(x, y, batch_size=64, verbose=0)

def trained(steps):
    with oommagic.profile(tape_steps=steps) as run:
        model.fit(x, y, batch_size=64, epochs=2, verbose=0)
    host, notes = run.report.host, run.report.notes
    return {
        "change": (host.after_bytes - host.before_bytes) >> 20,
        "peak": (host.peak_bytes - host.before_bytes) >> 20,
        "notes": [note for note in notes if "record of allocations" in note],
    }

told["plain"], told["taped"] = trained(0), [trained(3) for _ in range(3)]
"""


@pytest.mark.slow_once
@pytest.mark.of_tensorflow
def test_a_run_that_is_taped_takes_about_as_much_of_the_host_as_one_that_is_not() -> None:
    told = run_after_import(_TAPED, ARENA)
    plain, taped = told["plain"], told["taped"]
    assert plain["notes"] == []
    assert len(taped[0]["notes"]) == 1
    # What other threads give back meanwhile cannot be told apart, and so a single run may be off.
    for figure in ("change", "peak"):
        assert abs(median(run[figure] for run in taped) - plain[figure]) <= 25
