"""Runs a piece of code in a child process while the tape runs, as the recorder does."""

from typing import Any

from children import ARENA, run_after_import

_BEFORE = """
import _thread, glob, os, sys, tempfile, threading, time, traceback
import tensorflow as tf
from oommagic.tf import context
from oommagic.tf.tape import Taping
from oommagic.tf.tape_bounds import Limits
from tensorflow.python.profiler import profiler_v2

def memory():
    return tf.config.experimental.get_memory_info("CPU:0")

class Taped:
    # Ticks as the recorder's thread does.
    def __init__(self, **limits):
        self.taping = Taping(Limits(**limits))
        self.over = threading.Event()

    def __enter__(self):
        self.taping.begin()
        self.ticker = threading.Thread(target=self.tick)
        self.ticker.start()
        return self

    def tick(self):
        while not self.over.wait(0.05):
            self.taping.tick()

    def __exit__(self, *error):
        self.over.set()
        self.ticker.join()
        self.tapes = self.taping.end()

    def facts(self):
        return [facts_of(tape) for tape in self.tapes]

def facts_of(tape):
    now, wrong = tape.before_bytes, 0
    for size, in_use in zip(tape.bytes, tape.in_use_bytes):
        now += size
        wrong += now != in_use
    return {
        "device": tape.device,
        "events": len(tape.bytes),
        "wrong": wrong,
        "peak": max(tape.in_use_bytes),
        "in_order": list(tape.times_s) == sorted(tape.times_s),
        "steps": [name for _, _, name in tape.steps],
        "within": [sum(a <= t <= b for t in tape.times_s) for a, b, _ in tape.steps],
        "is_whole": tape.is_whole,
        "kinds": sorted({role.kind for role in tape.roles}),
        "layers": sorted({role.layer for role in tape.roles}),
        "tensors": [[shape and list(shape), dtype] for shape, dtype in tape.tensors],
    }

def left_behind():
    return {
        "on the context": [n for n in vars(context.current_context()) if n == "call_function"],
        "lock": type(profiler_v2._profiler_lock).__name__,
        "threads": threading.active_count(),
        "folders": glob.glob(f"{tempfile.gettempdir()}/oommagic-{os.getpid()}-*"),
    }

x = tf.random.uniform((64, 16, 16, 3))
y = tf.zeros((64,), tf.int32)

def make_model():
    import keras
    model = keras.Sequential([
        keras.Input((16, 16, 3)),
        keras.layers.Conv2D(8, 3, activation="relu", name="eyes"),
        keras.layers.Flatten(),
        keras.layers.Dense(10, name="head"),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""

NOTHING_LEFT = {"on the context": [], "lock": "lock", "threads": 1, "folders": []}


def tape(source: str) -> dict[str, Any]:
    """Run source on an arena, beside the helpers above, and give the `told` that it filled."""
    return run_after_import(_BEFORE + source, ARENA)
