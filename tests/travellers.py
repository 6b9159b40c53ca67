"""Models of many kinds that are packed for a child, run as a notebook would run: as `__main__`.

`python travellers.py FOLDER` packs each into FOLDER, and writes down what it is and whether
packing has changed anything of it. What reads the parcels knows nothing of this file.
"""

import json
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from description import describe, fingerprint, order_of_making
from keras import layers

from oommagic.trial.parcel import pack

FACTOR = 0.5
KEPT: list[object] = []
Traveller = tuple[Any, tuple[Any, ...]]


def images(*, labels: str = "int32") -> tuple[Any, Any]:
    return np.ones((4, 32, 32, 3), "float32"), np.ones((4,), labels)


def rows() -> tuple[Any, Any]:
    return np.ones((4, 8), "float32"), np.ones((4, 1), "float32")


@keras.saving.register_keras_serializable("here")
class Scaled(layers.Layer):  # type: ignore[misc]
    """A layer of the notebook's own, made with an argument that it must have."""

    def __init__(self, scale: Callable[[Any], Any]) -> None:
        super().__init__()
        self.scale = scale

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1],), initializer="ones", name="kernel")

    def call(self, x: Any) -> Any:
        return self.scale(x) * self.kernel * FACTOR

    def get_config(self) -> Any:
        raise AssertionError("packing has run the user's code")


class Distance(keras.losses.Loss):  # type: ignore[misc]
    """A loss of the notebook's own."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.abs(y_true - y_pred), axis=-1)


class Largest(keras.metrics.Metric):  # type: ignore[misc]
    """A metric of the notebook's own."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.most = self.add_weight(name="most", initializer="zeros")

    def update_state(self, _: Any, y_pred: Any, sample_weight: Any = None) -> None:
        del sample_weight
        self.most.assign(tf.maximum(self.most, tf.reduce_max(y_pred)))

    def result(self) -> Any:
        return self.most


class Branches(keras.Model):  # type: ignore[misc]
    """Layers in dictionaries and lists, a lambda, a closure, and a lock."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.parts = {"one": [layers.Dense(units), layers.Dense(units)], "two": layers.Dense(1)}
        self.activate = lambda x: tf.nn.relu(x) * FACTOR
        self.guard = threading.RLock()
        self.me = weakref.ref(self)

    def call(self, x: Any) -> Any:
        for layer in self.parts["one"]:
            x = self.activate(layer(x))  # type: ignore[no-untyped-call]
        assert self.me() is self
        with self.guard:
            return self.parts["two"](x)


class OwnStep(keras.Model):  # type: ignore[misc]
    """A training step of its own, part of it a tf.function."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(1)
        self.tracker = keras.metrics.Mean(name="loss")

    def call(self, x: Any) -> Any:
        return self.dense(x)

    @tf.function  # type: ignore[untyped-decorator]
    def error(self, x: Any, y: Any) -> Any:
        return tf.reduce_mean((self(x, training=True) - y) ** 2)

    def train_step(self, data: Any) -> Any:
        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = self.error(x, y)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    @property
    def metrics(self) -> Any:
        return [self.tracker]


class Gan(keras.Model):  # type: ignore[misc]
    """Two models and two optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential([keras.Input((4,)), layers.Dense(8)])
        self.discriminator = keras.Sequential([keras.Input((8,)), layers.Dense(1)])
        self.seeds = keras.random.SeedGenerator(1)

    def compile(self, first: Any, second: Any) -> None:
        super().compile()
        self.first, self.second = first, second

    def train_step(self, data: Any) -> Any:
        noise = keras.random.normal((4, 4), seed=self.seeds)
        with tf.GradientTape(persistent=True) as tape:
            fake = self.discriminator(self.generator(noise))
            loss = tf.reduce_mean(fake - self.discriminator(data[0]))
        for model, optimizer in (
            (self.generator, self.first),
            (self.discriminator, self.second),
        ):
            weights = model.trainable_weights
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def sequential() -> Traveller:
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model, images()


def sequential_trained() -> Traveller:
    model, batch = sequential()
    model.train_on_batch(*batch)
    return model, batch


def sequential_not_built() -> Traveller:
    model = keras.Sequential([layers.Dense(4, activation="gelu"), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return model, rows()


def functional_with_names() -> Traveller:
    one, two = keras.Input((8,), name="one"), keras.Input((8,), name="two")
    both = layers.Concatenate()([one, two])
    outputs = {"a": layers.Dense(1, name="a")(both), "b": layers.Dense(2, name="b")(both * 2.0)}
    model = keras.Model({"one": one, "two": two}, outputs)
    model.compile("rmsprop", {"a": "mse", "b": "mae"}, metrics={"a": ["mae"]})
    x: Any = {"one": np.ones((4, 8), "float32"), "two": np.ones((4, 8), "float32")}
    return model, (x, {"a": np.ones((4, 1)), "b": np.ones((4, 2))})


def subclassed() -> Traveller:
    model = Branches(16)
    model.compile("adamw", "mse", jit_compile=False)
    model(rows()[0])
    return model, rows()


def own_train_step() -> Traveller:
    model = OwnStep()
    model.compile("adam")
    model.train_on_batch(*rows())
    return model, rows()


def gan() -> Traveller:
    model = Gan()
    model.compile(keras.optimizers.Adam(1e-4), keras.optimizers.SGD(1e-3))
    return model, (np.ones((4, 8), "float32"), np.ones((4, 1), "float32"))


def application() -> Traveller:
    model = keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3), classes=10)
    model.compile("adam", "sparse_categorical_crossentropy")
    return model, images()


def notebooks_own_classes() -> Traveller:
    half = 0.5
    model = keras.Sequential([keras.Input((8,)), Scaled(lambda x: x * half), layers.Dense(1)])
    model.compile("adam", Distance(), metrics=[Largest()])
    return model, rows()


def mixed_precision() -> Traveller:
    # Layers are made by the child too, at the first call: by the policy of the notebook.
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([layers.Dense(8), layers.Dense(1, dtype="float32")])
    model.compile("adam", "mse")
    model.train_on_batch(*rows())
    return model, rows()


def frozen() -> Traveller:
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.Dense(1)])
    model.layers[0].trainable = False
    model.compile("adam", "mse")
    return model, rows()


def recurrent() -> Traveller:
    model = keras.Sequential(
        [
            keras.Input((12,), dtype="int32"),
            layers.Embedding(2000, 16, mask_zero=True),
            layers.Bidirectional(layers.LSTM(8, return_sequences=True)),
            layers.GRU(8),
            layers.Dense(1),
        ]
    )
    model.compile("nadam", "mse")
    return model, (np.ones((4, 12), "int32"), np.ones((4, 1), "float32"))


def transformer() -> Traveller:
    tokens = keras.Input((12,), dtype="int32")
    x = layers.Embedding(100, 32)(tokens)
    shared = layers.Dense(32)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 16)(x, x))
        x = layers.LayerNormalization()(x + shared(keras.ops.gelu(x)))
    model = keras.Model(tokens, layers.Dense(100)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(global_clipnorm=1.0), loss)
    return model, (np.ones((4, 12), "int32"), np.ones((4, 12), "int32"))


def text() -> Traveller:
    words = layers.TextVectorization(output_sequence_length=5)
    words.adapt(["the cat sat", "the dog ran"])
    model = keras.Sequential([words, layers.Embedding(10, 4), layers.Flatten(), layers.Dense(1)])
    model.compile("adam", "mse")
    return model, (tf.constant(["the cat", "a dog"]), np.ones((2, 1), "float32"))


def normalised() -> Traveller:
    scale = layers.Normalization()
    scale.adapt(np.random.default_rng(0).normal(size=(64, 8)))
    model = keras.Sequential([keras.Input((8,)), scale, layers.Lambda(lambda x: x + FACTOR)])
    model.add(layers.Dense(1))
    model.compile("adam", "mse")
    return model, rows()


def careful_optimizer() -> Traveller:
    model = keras.Sequential([keras.Input((8,)), layers.Dense(1)])
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    optimizer = keras.optimizers.Adam(rate, gradient_accumulation_steps=2, use_ema=True)
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer), "mse")
    model.train_on_batch(*rows())
    return model, rows()


def nested() -> Traveller:
    inner = keras.Sequential([keras.Input((8,)), layers.Dense(8)], name="inner")
    inputs = keras.Input((8,))
    model = keras.Model(inputs, layers.Dense(1)(inner(inner(inputs))))
    model.compile("adam", "mse", steps_per_execution=1)
    return model, rows()


def deep() -> Traveller:
    x = inputs = keras.Input((8,))
    for _ in range(300):
        x = layers.Activation("relu")(x)
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.compile("sgd", "mse")
    return model, rows()


def compiled_by_xla() -> Traveller:
    model = keras.Sequential([keras.Input((8,)), layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=True)
    return model, rows()


def custom_loop() -> Traveller:
    model = keras.Sequential([keras.Input((8,)), layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    count = tf.Variable(0)
    table: Any = np.ones((600, 600), "float32")

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x * table[0, 0], training=True) - y) ** 2) * FACTOR
            if loss < 0:  # a branch of the graph, made from the function's source
                loss = -loss
        weights = model.trainable_weights
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        count.assign_add(1)
        return loss

    step(*rows())
    return step, rows()


def plain_tensorflow() -> Traveller:
    class Line(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = [tf.Variable(tf.ones((8, 1))), tf.Variable(tf.zeros((1,)))]
            self.rates = {"slow": 0.01}

        @tf.function  # type: ignore[untyped-decorator]
        def step(self, x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ self.weights[0] + self.weights[1] - y) ** 2)
            for weight, gradient in zip(
                self.weights, tape.gradient(loss, self.weights), strict=True
            ):
                weight.assign_sub(self.rates["slow"] * gradient)
            return loss

    line = Line()
    KEPT.append(line)  # TensorFlow's method does not keep it
    line.step(*rows())
    return line.step, rows()


TRAVELLERS = (
    sequential,
    sequential_trained,
    sequential_not_built,
    functional_with_names,
    subclassed,
    own_train_step,
    gan,
    application,
    notebooks_own_classes,
    mixed_precision,
    frozen,
    recurrent,
    transformer,
    text,
    normalised,
    careful_optimizer,
    nested,
    deep,
    compiled_by_xla,
    custom_loop,
    plain_tensorflow,
)


def main(folder: Path) -> None:
    told = {}
    for make in TRAVELLERS:
        keras.config.set_dtype_policy("float32")
        thing, batch = make()
        before = fingerprint(thing)
        parcel = pack((thing, batch), folder=folder / "files")
        told[make.__name__] = {
            "what": describe(thing),
            "order": order_of_making(thing),
            "is_unchanged": fingerprint(thing) == before,
            "bytes": len(parcel),
        }
        (folder / f"{make.__name__}.parcel").write_bytes(parcel)
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
