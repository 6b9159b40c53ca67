"""Programs that fill the device with something else than the step, or try again the wrong way."""

from staged_fixes.stage import Stage

_IMPORTS = """\
import keras
import numpy as np
import tensorflow as tf
from keras import layers
"""
_STEP = """
dense = keras.Sequential([keras.Input((256,)), layers.Dense(512), layers.Dense(512)])
optimizer = keras.optimizers.SGD()

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        out = dense(x)
        loss = tf.reduce_mean(out**2)
    gradients = tape.gradient(loss, dense.trainable_variables)
    optimizer.apply_gradients(zip(gradients, dense.trainable_variables))
    return loss, out

first = step(tf.zeros((1024, 256)))
"""
_CNN = """
def build():
    model = keras.Sequential([
        keras.Input((32, 32, 3)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(10),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

x = np.random.default_rng(0).random((1024, 32, 32, 3), dtype="float32")
y = np.random.default_rng(1).integers(0, 10, 1024)
"""
_WIDE = """
def build():
    model = keras.Sequential([keras.Input((1000,)), layers.Dense(1000), layers.Dense(1000)])
    model.compile("adam", "mse")
    return model

x, y = np.zeros((64, 1000), "float32"), np.zeros((64, 1000), "float32")
"""
_ROWS = """
model = keras.Sequential([keras.Input((1000,)), layers.Dense(8), layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.zeros((24_000, 1000), "float32"), np.zeros((24_000, 1), "float32")
"""

STAGES: tuple[Stage, ...] = (
    Stage(
        rule="list-keeps-tensors",
        before=_IMPORTS + _STEP,
        cell="outs = []\nfor number in range(60):\n    loss, out = step(tf.zeros((1024, 256)))\n"
        "    outs.append(out)\n",
    ),
    Stage(
        rule="list-keeps-tensors",
        before=_IMPORTS + _STEP,
        cell="""\
history = {"out": []}  # for a plot
for number in range(400):
    loss, out = step(tf.zeros((1024, 256)))
    history["out"].append(out - 1)
""",
    ),
    Stage(
        rule="one-model",
        before=_IMPORTS + _WIDE,
        cell="""\
scores = []
for fold in range(8):
    keras.backend.clear_session()
    model = build()
    model.fit(x, y, verbose=0)
    scores.append(model.evaluate(x, y, verbose=0))
""",
    ),
    Stage(
        rule="data-on-host",
        before=_IMPORTS + _ROWS,
        cell="""\
ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(256)
model.fit(ds, verbose=0)
""",
    ),
    Stage(
        rule="batch-size-fallback",
        before=_IMPORTS + _CNN + "model = build()\nsize = 1024\n",
        cell="""\
while True:
    try:
        model.fit(x, y, batch_size=size, verbose=0)
        break
    except tf.errors.ResourceExhaustedError:
        size //= 2
""",
    ),
    Stage(
        rule="retraces",
        before=_IMPORTS + "big = np.ones((500, 500), 'float32')\n",
        cell="""\
@tf.function
def total(x):
    return tf.reduce_sum(x) + tf.reduce_sum(tf.constant(big))

for rows in range(1, 80):
    total(tf.zeros((rows, 4)))
""",
    ),
    Stage(
        rule="checkpoints",
        before=_IMPORTS + _CNN + "model = build()\n",
        cell="model.fit(x, y, batch_size=1024, epochs=20, verbose=0)\n",
    ),
)
