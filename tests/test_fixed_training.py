"""Training as the fixes make it: accumulation is the large batch, mixed precision trains right."""

from collections.abc import Mapping
from typing import Any

import pytest
from children import run_after_import

from oommagic.explain.advice.engine import findings_of
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.rule import Rule
from oommagic.explain.advice.rules.accumulates_nothing import AccumulatesNothing
from oommagic.explain.advice.rules.gradient_accumulation import GradientAccumulation
from oommagic.explain.advice.rules.mixed_precision import MixedPrecision
from oommagic.explain.advice.typed import TypedCell

pytestmark = pytest.mark.of_tensorflow

NET = """\
keras.utils.set_random_seed(7)
model = keras.Sequential([
    keras.Input((8,)),
    keras.layers.Dense(16, activation="tanh"),
    keras.layers.Dense(1),
])
"""
BY_FIT = (
    NET
    + """\
model.compile(optimizer="adam", loss="mse")
history = model.fit(x, y, batch_size=128, epochs=3, shuffle=False, verbose=0)
"""
)
BY_LOOP = (
    NET
    + """\
optimizer = keras.optimizers.Adam(0.001)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(128)

@tf.function
def train_step(a, b):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(a) - b))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

for epoch in range(3):
    for a, b in data:
        train_step(a, b)
"""
)
MEANT = BY_LOOP.replace("batch(128)", "batch(64)").replace(
    "    optimizer.apply",
    "    gradients = [g / accumulation_steps for g in gradients]\n    optimizer.apply",
)
ONLY_MEANT = MEANT.replace("optimizer = k", "accumulation_steps = 2\noptimizer = k")
TINY_GRADIENTS = (
    NET
    + """\
optimizer = keras.optimizers.SGD(1e6)

@tf.function
def train_step(a, b):
    with tf.GradientTape() as tape:
        loss = 1e-8 * tf.reduce_mean(tf.square(model(a) - b))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

before = model.get_weights()[0]
for _ in range(4):
    train_step(x, y)
"""
)
RUN = """
import keras
import numpy as np
import tensorflow as tf

def weights(model):
    return np.concatenate([np.ravel(one) for one in model.get_weights()])

def run(cell):
    keras.mixed_precision.set_global_policy("float32")
    rng = np.random.default_rng(0)
    x = rng.random((512, 8), dtype="float32")
    names = {"keras": keras, "tf": tf, "x": x, "y": x.mean(1, keepdims=True)}
    exec(cell, names)
    return names

def apart(one, other):
    return float(np.abs(weights(one["model"]) - weights(other["model"])).max())
"""


def fixed(rule: Rule, cell: str) -> str:
    fix = findings_of(TypedCell(cell), STEP_OF_96, [rule])[0].fix
    assert fix is not None
    return fix.source


@pytest.fixture(scope="module")
def told() -> Mapping[str, Any]:
    cells = {
        "by fit": BY_FIT,
        "by fit, accumulated": fixed(GradientAccumulation(), BY_FIT),
        "by fit, smaller": BY_FIT.replace("=128", "=64"),
        "by loop": BY_LOOP,
        "by loop, accumulated": fixed(GradientAccumulation(), BY_LOOP),
        "nothing accumulated": ONLY_MEANT,
        "accumulated as meant": fixed(AccumulatesNothing(), ONLY_MEANT),
        "mixed": fixed(MixedPrecision(), BY_FIT),
        "tiny": TINY_GRADIENTS,
        "tiny, mixed": fixed(MixedPrecision(), TINY_GRADIENTS),
    }
    cells["tiny, unscaled"] = (
        cells["tiny, mixed"]
        .replace("optimizer.scale_loss(loss)", "loss")
        .replace(
            "keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(1e6))",
            "keras.optimizers.SGD(1e6)",
        )
    )
    return run_after_import(
        f"{RUN}\nran = {{name: run(cell) for name, cell in {cells!r}.items()}}\n{_TELL}"
    )


_TELL = """
told["by fit"] = apart(ran["by fit"], ran["by fit, accumulated"])
told["by fit, smaller"] = apart(ran["by fit"], ran["by fit, smaller"])
told["by loop"] = apart(ran["by loop"], ran["by loop, accumulated"])
told["nothing accumulated"] = apart(ran["by loop"], ran["nothing accumulated"])
told["accumulated as meant"] = apart(ran["by loop"], ran["accumulated as meant"])

mixed = ran["mixed"]
told["losses"] = mixed["history"].history["loss"]
told["skipped"] = int(mixed["model"].optimizer.dynamic_scale.numpy())
told["losses in float32"] = ran["by fit"]["history"].history["loss"]
told["weights"] = sorted({one.dtype for one in mixed["model"].weights})
told["computes"] = [layer.compute_dtype for layer in mixed["model"].layers]
told["gives"] = str(mixed["model"](mixed["x"][:2]).dtype.name)

def moved(names):
    # The first layer's gradients go through float16; the last one computes in float32.
    return float(np.abs(names["model"].get_weights()[0] - names["before"]).max())

told["moved"] = {name: moved(ran[name]) for name in ("tiny", "tiny, mixed", "tiny, unscaled")}
told["apart"] = apart(ran["tiny"], ran["tiny, mixed"])
ran["tiny, mixed"]["optimizer"].dynamic_scale.assign(2.0**17)
for name in ("tiny", "tiny, mixed"):
    ran[name]["train_step"](ran[name]["x"], ran[name]["y"])
told["apart at another scale"] = apart(ran["tiny"], ran["tiny, mixed"])
"""


def test_accumulation_in_fit_is_the_large_batch(told: Mapping[str, Any]) -> None:
    assert told["by fit"] < 1e-5
    assert told["by fit, smaller"] > 1e-3, "else nothing would tell the two apart"


def test_accumulation_in_a_loop_is_the_large_batch(told: Mapping[str, Any]) -> None:
    assert told["by loop"] < 1e-5


def test_a_loop_that_accumulated_nothing_then_does(told: Mapping[str, Any]) -> None:
    assert told["nothing accumulated"] > 1e-3
    assert told["accumulated as meant"] < 1e-5


def test_mixed_precision_computes_in_float16_and_keeps_weights_and_outputs_in_float32(
    told: Mapping[str, Any],
) -> None:
    assert told["weights"] == ["float32"]
    assert told["computes"] == ["float16", "float32"]
    assert told["gives"] == "float32"


def test_a_model_in_mixed_precision_learns_as_it_does_in_float32(told: Mapping[str, Any]) -> None:
    assert told["losses"][-1] < told["losses"][0]
    assert told["losses"] == pytest.approx(told["losses in float32"], rel=0.01)


def test_small_gradients_survive_in_a_loop_in_mixed_precision(told: Mapping[str, Any]) -> None:
    moved = told["moved"]
    assert moved["tiny, mixed"] == pytest.approx(moved["tiny"], rel=0.02)
    assert told["apart"] < 0.05 * moved["tiny"]
    assert moved["tiny, unscaled"] < 0.5 * moved["tiny"], "else there was nothing to be lost"


def test_a_loop_s_step_follows_the_scale_of_the_loss(told: Mapping[str, Any]) -> None:
    assert told["apart at another scale"] < 0.06 * told["moved"]["tiny"]
