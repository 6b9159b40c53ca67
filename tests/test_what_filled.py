"""What filled the device, from a cell under the magic to the last byte, for models of all kinds.

Each child process is one notebook on a training device: a cell prepares, the next is profiled.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from children import ARENA, run_after_import

pytestmark = pytest.mark.of_tensorflow

_LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
_DEVICE = {**ARENA, _LIMIT: "3000"}
_SMALL_DEVICE = {**ARENA, _LIMIT: "300"}

_DRIVE = """
import oommagic
from oommagic.magics import open_shell

shell = open_shell()
for name, before, cell in cells:
    shell.run_cell(before).raise_error()
    ran = shell.run_cell("%%oomprofile -q\\n" + cell)
    report = oommagic.last_report()
    if report.outcome.error_type != "ResourceExhaustedError":
        ran.raise_error()
    (found,) = report.compositions
    (device,) = report.devices
    asked = [one for one in found.holdings if one.kind != "rounding"]
    told[name] = {
        "peak": device.peak_bytes,
        "total": found.total_bytes,
        "sum": sum(one.bytes for one in found.holdings),
        "asked": sum(one.bytes for one in asked),
        "by layer or owner": sum(one.bytes for one in asked if one.layer or one.owner),
        "named": sum(one.bytes for one in asked if one.layer or one.owner or one.line_number),
        "lines": sorted({one.line_number for one in asked if one.line_number}),
        "holders": sorted({(one.kind, one.layer, one.owner) for one in asked}),
        "largest unnamed": [
            [one.kind, one.op, one.bytes]
            for one in asked
            if not (one.layer or one.owner or one.line_number)
        ][:3],
        "ran out": report.outcome.kind == "failed",
        "source": found.source,
        "note": found.note,
    }
"""

_SETTING = """
import numpy as np
import tensorflow as tf
import keras
from keras import layers
keras.utils.set_random_seed(0)
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
"""

_LARGE_IMAGES = """
images = np.random.rand(24, 128, 128, 3).astype(np.float32)
labels = np.random.randint(0, 2, 24)
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8)
model = tf.keras.Sequential([
    tf.keras.layers.Conv2D(32, (3, 3), activation="relu", input_shape=(128, 128, 3)),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Conv2D(64, (3, 3), activation="relu"),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(1, activation="sigmoid"),
])
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
"""
_OWN_STEP = """
model = tf.keras.models.Sequential([
    tf.keras.layers.Conv2D(32, (3, 3), activation="relu", input_shape=(28, 28, 3)),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(10, activation="softmax"),
])
optimizer = tf.keras.optimizers.Adam(learning_rate=0.001)
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy()
images = np.random.rand(512, 28, 28, 3).astype(np.float32)
labels = np.random.randint(0, 10, size=512).astype(np.int32)
train_dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(128)

@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        predictions = model(images)
        loss = loss_fn(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
"""
_ACCUMULATION = """
model = tf.keras.Sequential([
    keras.Input((64, 64, 3)),
    tf.keras.layers.Conv2D(16, 3, activation="relu"),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(1),
])
optimizer = tf.keras.optimizers.Adam()
x_train = np.random.rand(64, 64, 64, 3).astype(np.float32)
y_train = np.random.rand(64, 1).astype(np.float32)
batch_size = 16
optimizer.build(model.trainable_variables)
"""
_ACCUMULATE = """
gradients = None
for step in range(len(x_train) // batch_size):
    with tf.GradientTape() as tape:
        x_batch = x_train[step*batch_size:(step+1)*batch_size]
        y_batch = y_train[step*batch_size:(step+1)*batch_size]
        loss = model(x_batch) - y_batch
        loss = tf.reduce_mean(tf.square(loss))
    grads = tape.gradient(loss, model.trainable_variables)
    if gradients is None:
        gradients = grads
    else:
        gradients = [tf.add(g1, g2) for g1, g2 in zip(gradients, grads)]
optimizer.apply_gradients(zip(gradients, model.trainable_variables))
"""
_EAGER = """
tf.random.uniform(()) * 2.0
weights = tf.Variable(tf.zeros((1000, 1000)))
inputs = tf.ones((1000, 1000))
"""
_EAGER_CELL = """borrowed = tf.zeros((1000, 500))

def square(x):
    product = tf.matmul(x, x)
    return product * 2.0 + product

kept = []
for number in range(8):
    kept.append(tf.ones((200, 500)))
squared = square(inputs)
with tf.GradientTape() as tape:
    hidden = tf.nn.relu(tf.matmul(inputs, weights))
    loss = tf.reduce_sum(hidden * hidden)
gradient = tape.gradient(loss, weights)
del borrowed, tape
"""
_RESNET = """
model = keras.applications.ResNet50(
    weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None
)
model.compile("adam", LOGITS)
x, y = np.zeros((16, 64, 64, 3), "float32"), np.zeros(16, "int32")
"""
_MOBILENET = """
model = keras.applications.MobileNetV2(
    weights=None, input_shape=(96, 96, 3), classes=10, classifier_activation=None
)
model.compile("adam", LOGITS)
x, y = np.zeros((16, 96, 96, 3), "float32"), np.zeros(16, "int32")
"""
_RECURRENT = """
model = keras.Sequential([
    keras.Input((60,), dtype="int32"), layers.Embedding(5000, 64), layers.LSTM(64), layers.Dense(2)
])
model.compile("rmsprop", LOGITS)
x, y = np.zeros((96, 60), "int32"), np.zeros(96, "int32")
"""
_TRANSFORMER = """
inputs = keras.Input((64,), dtype="int32")
x = layers.Embedding(2000, 64)(inputs)
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(256, "gelu")(x)))
model = keras.Model(inputs, layers.Dense(2000)(x))
model.compile("adamw", LOGITS{})
x, y = np.zeros((48, 64), "int32"), np.zeros((48, 64), "int32")
"""
_PICTURES = """
model = keras.Sequential([
    keras.Input((64, 64, 3)),
    layers.Conv2D(32, 3, activation="relu", padding="same"),
    layers.Conv2D(64, 3, activation="relu", padding="same"),
    layers.GlobalAveragePooling2D(),
    layers.Dense(10),
])
model.compile("adam", LOGITS, jit_compile=True)
x, y = np.zeros((32, 64, 64, 3), "float32"), np.zeros(32, "int32")
"""
_TWO_OPTIMIZERS = """
generator = keras.Sequential([
    keras.Input((64,)), layers.Dense(8 * 8 * 64), layers.Reshape((8, 8, 64)),
    layers.Conv2DTranspose(32, 4, strides=2, padding="same", activation="relu"),
    layers.Conv2DTranspose(3, 4, strides=2, padding="same"),
], name="generator")
critic = keras.Sequential([
    keras.Input((32, 32, 3)), layers.Conv2D(32, 3, strides=2), layers.LeakyReLU(),
    layers.Conv2D(64, 3, strides=2), layers.Flatten(), layers.Dense(1),
], name="critic")
makes, judges = keras.optimizers.Adam(), keras.optimizers.RMSprop()

@tf.function
def step(real):
    with tf.GradientTape() as of_maker, tf.GradientTape() as of_judge:
        fake = generator(tf.random.normal((64, 64)), training=True)
        gap = tf.reduce_mean(critic(fake) - critic(real))
        loss = -gap
    weights = generator.trainable_variables
    makes.apply_gradients(zip(of_maker.gradient(loss, weights), weights))
    weights = critic.trainable_variables
    judges.apply_gradients(zip(of_judge.gradient(gap, weights), weights))
    return gap

pictures = tf.data.Dataset.from_tensors(np.zeros((64, 32, 32, 3), "float32")).repeat(3)
"""
_KEPT = """
images = np.random.rand(384, 64, 64, 3).astype(np.float32)
denoiser = keras.Sequential([
    keras.Input((64, 64, 3)),
    layers.Conv2D(8, 3, padding="same", activation="relu"),
    layers.Conv2D(3, 3, padding="same"),
])
optimizer = keras.optimizers.Adam()

@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.square(denoiser(batch + tf.random.normal(batch.shape)) - batch)
    gradients = tape.gradient(loss, denoiser.trainable_variables)
    optimizer.apply_gradients(zip(gradients, denoiser.trainable_variables))
    return loss
"""
_KEEP = """losses = []
for step in range(1000):
    start = step % 12 * 32
    losses.append(train_step(images[start:start + 32]))
"""
_FIT = "history = model.fit(x, y, batch_size=16, verbose=0)"

_NOTEBOOKS = {
    "the articles' programs": {
        "large images": ("", _LARGE_IMAGES + "history = model.fit(dataset, epochs=1, verbose=0)"),
        "own step": (
            "import gc; del dataset, model, history; gc.collect()",
            _OWN_STEP + "for images, labels in train_dataset:\n    train_step(images, labels)",
        ),
        "accumulation": ("", _ACCUMULATION + _ACCUMULATE),
    },
    "eager code": {"eager": (_EAGER, _EAGER_CELL)},
    "compiled steps": {
        "compiled pictures": (_PICTURES, _FIT),
        "compiled transformer": (
            _TRANSFORMER.format(", jit_compile=True"),
            "history = model.fit(x, y, batch_size=24, verbose=0)",
        ),
    },
    "MobileNetV2": {"MobileNetV2": (_MOBILENET, _FIT)},
    "ResNet50": {"ResNet50": (_RESNET, _FIT)},
    "predictions": {
        "predict": (
            _MOBILENET + "images = np.zeros((32, 96, 96, 3), 'float32')",
            "found = model.predict(images, verbose=0)",
        ),
    },
    "words": {
        "embedding and LSTM": (_RECURRENT, _FIT),
        "transformer": (_TRANSFORMER.format(""), _FIT),
    },
    "two optimizers": {
        "GAN": (_TWO_OPTIMIZERS, "gaps = []\nfor real in pictures:\n    gaps.append(step(real))")
    },
    "a list that grows": {"a list that grows": (_KEPT, _KEEP)},
}

_LEAST_NAMED = 0.95
_LEAST_BY_NAME = 0.85


@dataclass(frozen=True)
class Filled:
    """What was told of one cell."""

    told: dict[str, Any]

    @property
    def is_exact(self) -> bool:
        """Whether the parts add up to the allocator's own peak of the cell."""
        return bool(self.told["peak"] == self.told["total"] == self.told["sum"])

    @property
    def says_it_was_not_recorded(self) -> bool:
        """Whether the peak came after the tape (long eager code, many steps), and that is told."""
        is_lower = self.told["total"] < self.told["peak"]
        return is_lower and "when nothing was recorded" in self.told["note"]

    def share(self, what: str) -> float:
        """Give the share of what was asked for; rounding has a name of its own."""
        return float(self.told[what] / self.told["asked"])


@cache
def filled(notebook: str) -> dict[str, Filled]:
    """Run a notebook, and give what filled the device in each of its profiled cells."""
    cells = [(name, *cells) for name, cells in _NOTEBOOKS[notebook].items()]
    cells[0] = (cells[0][0], _SETTING + cells[0][1], cells[0][2])
    device = _SMALL_DEVICE if notebook == "a list that grows" else _DEVICE
    told = run_after_import(f"cells = {cells!r}\n{_DRIVE}", device)
    return {name: Filled(one) for name, one in told.items()}


@pytest.mark.parametrize(
    "notebook",
    [
        "the articles' programs",
        pytest.param("eager code", marks=pytest.mark.long),
        pytest.param("compiled steps", marks=pytest.mark.long),
        pytest.param("MobileNetV2", marks=pytest.mark.long),
        pytest.param("ResNet50", marks=pytest.mark.long),
        pytest.param("predictions", marks=pytest.mark.long),
        pytest.param("words", marks=pytest.mark.long),
        pytest.param("two optimizers", marks=pytest.mark.long),
        pytest.param("a list that grows", marks=pytest.mark.long),
    ],
)
def test_what_filled_the_device_adds_up_to_its_peak_and_has_names(notebook: str) -> None:
    for name, found in filled(notebook).items():
        assert found.told["total"] == found.told["sum"], (name, found.told)
        assert found.is_exact or found.says_it_was_not_recorded, (name, found.told)
        assert found.share("named") >= _LEAST_NAMED, (name, found.told)


@pytest.mark.long
def test_eager_code_is_told_by_names_and_lines() -> None:
    found = filled("eager code")["eager"]
    told = found.told
    holders = {tuple(holder) for holder in told["holders"]}
    assert {("tensors", "", "kept"), ("tensors", "", "squared")} <= holders
    # What `borrowed` held has no name any more.
    assert 1 in told["lines"] or found.says_it_was_not_recorded


@pytest.mark.long
def test_a_list_that_grows_until_it_runs_out_is_told_by_its_name() -> None:
    found = filled("a list that grows")["a list that grows"]
    assert found.told["ran out"]
    assert ["tensors", "", "losses"] in found.told["holders"]
    assert found.share("by layer or owner") >= _LEAST_BY_NAME, found.told


@pytest.mark.long
def test_a_compiled_step_is_told_by_layer() -> None:
    for name, found in filled("compiled steps").items():
        assert found.told["source"] == "compiled buffers", (name, found.told)
        assert "compiled once more" in found.told["note"]
    holders = filled("compiled steps")["compiled pictures"].told["holders"]
    assert ["activations", "conv2d_1", ""] in holders
    assert ["gradients", "conv2d_1", ""] in holders
