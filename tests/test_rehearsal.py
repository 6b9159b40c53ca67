"""A run that is rehearsed at the size at which it was recorded takes what it really took."""

import pytest
from children import ARENA, run_after_import, run_python

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.slow_once]

# Where the heap has room for the first region, that lies below the others, and else above them.
APART = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "TF_CPU_BFC_MEM_LIMIT_IN_MB": "1024"}

MODELS = {
    "convolutions": """
given, optimizer = (48, 48, 3), "rmsprop"
stack = [
    L.Conv2D(24, 3, activation="relu"), L.Conv2D(24, 3, strides=2), L.BatchNormalization(),
    L.Conv2DTranspose(12, 3, strides=2, activation="relu"), L.Flatten(), L.Dense(64), L.Dense(10),
]
""",
    "text in short convolutions": """
given, optimizer = (200,), "sgd"
stack = [
    L.Embedding(9, 48), L.Conv1D(96, 5, activation="relu"), L.MaxPooling1D(4),
    L.Conv1D(96, 5, activation="relu"), L.GlobalMaxPooling1D(), L.Dense(10),
]
""",
    "a wide network": """
given, optimizer = (64,), "adam"
stack = [
    L.Embedding(9, 64), L.Dense(64), L.LayerNormalization(), L.Dense(256, "gelu"), L.Dense(64),
    L.GlobalAveragePooling1D(), L.Dense(10),
]
""",
    "recurrence": """
given, optimizer = (40,), "adam"
stack = [L.Embedding(9, 64), L.LSTM(64, return_sequences=True), L.LSTM(64), L.Dense(10)]
""",
}

REHEARSED = """
from dataclasses import replace
import keras, numpy as np
from keras import layers as L
from oommagic.explain.rehearsal import Device, Rehearsal
from oommagic.explain.scaling import scripts_of
from oommagic.tf import steps
from oommagic.tf.samples import from_arrays

loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
with steps.Making() as making:
{model}
    model = keras.Sequential([keras.Input(given), *stack])
    model.compile(optimizer, loss)
data = from_arrays((np.ones((8, *given), "float32"), np.zeros(8, "int32")))
tapes = steps.record(model, data, "training", lambda text: None, 4.0)
first = tapes.steps[0].batch
ran = [step.tape for step in tapes.steps if step.batch == first]
told["really"] = [max(tape.in_use_bytes) for tape in ran]
scripts = scripts_of(replace(tapes, made=making.tape))
told["rehearsed"] = Rehearsal(scripts, first, Device(grows=True)).peaks
"""


@pytest.mark.parametrize("model", MODELS)
def test_what_was_recorded_is_rehearsed_with_its_own_peaks(model: str) -> None:
    indented = MODELS[model].replace("\n", "\n    ")
    told = run_python(REHEARSED.replace("{model}", indented), ARENA | APART)
    assert len(told["really"]) > 2
    assert told["rehearsed"] == pytest.approx(told["really"], rel=0.001)


WIDE = """
import keras, numpy as np, tensorflow as tf
from keras import layers as L
from oommagic.tf import steps
from oommagic.tf.samples import from_arrays

stack = [L.Dense(1024, "relu"), L.Dense(1024, "relu"), L.Dense(10)]
model = keras.Sequential([keras.Input((512,)), *stack])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"], jit_compile=True)
rows = lambda n: (np.ones((n, 512), "float32"), np.zeros(n, "int32"))
"""
FITTED = """
model.fit(tf.data.Dataset.from_tensors(rows(61)), verbose=0)
told["peak"] = tf.config.experimental.get_memory_info("CPU:0")["peak"]
"""
RECORDED = """
tapes = steps.record(model, from_arrays(rows(8)), "training", lambda text: None, 0.2, first=61)
told["peak"] = max(tapes.steps[0].tape.in_use_bytes)
"""


def test_a_first_step_takes_what_that_of_a_fit_takes() -> None:
    fitted, recorded = (run_after_import(WIDE + then, ARENA)["peak"] for then in (FITTED, RECORDED))
    assert recorded == pytest.approx(fitted, rel=0.03)
