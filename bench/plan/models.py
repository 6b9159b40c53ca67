"""Models of the usual kinds, each with what makes a batch of its data.

Those called `seeds_…` are programs that people asked about because they ran out of memory.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers
_OF_LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
_CLASSES = 10
_NOISE = 32


@dataclass(frozen=True, slots=True)
class _Made:
    """A model that is not compiled yet, what makes a batch of a size, and what it learns by."""

    model: Any
    make_batch: Callable[[int], Any]
    loss: Any = _OF_LOGITS
    metrics: tuple[str, ...] = ()


def build(name: str, optimizer: str, *, jit: bool) -> tuple[Any, Callable[[int], Any]]:
    """Give one of `MODELS`, compiled to be trained, and what makes a batch of a size."""
    made = MODELS[name]()
    made.model.compile(optimizer, made.loss, metrics=list(made.metrics), jit_compile=jit)
    return made.model, made.make_batch


def _on_images(model: Any, *shape: int, loss: Any = _OF_LOGITS) -> _Made:
    return _Made(model, lambda n: (_pixels(n, *shape), _labels(n)), loss)


def _on_texts(model: Any, words: int, length: int, loss: Any = _OF_LOGITS) -> _Made:
    return _Made(model, lambda n: (_words(words, n, length), _labels(n, 2)), loss)


def _pixels(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, dtype="float32")


def _labels(count: int, classes: int = _CLASSES) -> Any:
    return np.random.default_rng(1).integers(0, classes, size=count, dtype="int32")


def _words(different: int, *shape: int) -> Any:
    return np.random.default_rng(2).integers(0, different, size=shape, dtype="int32")


def cnn() -> _Made:
    """Stack convolutions, as in every first tutorial."""
    stack = [
        keras.Input((64, 64, 3)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(_CLASSES),
    ]
    return _on_images(keras.Sequential(stack), 64, 64, 3)


def vgg_like() -> _Made:
    """Convolve twice or three times before each pooling, and end with wide layers."""
    stack = [keras.Input((48, 48, 3))]
    for filters, times in ((32, 2), (64, 2), (128, 3)):
        stack += [
            layers.Conv2D(filters, 3, padding="same", activation="relu") for _ in range(times)
        ]
        stack.append(layers.MaxPooling2D())
    stack += [layers.Flatten(), layers.Dense(512, activation="relu"), layers.Dropout(0.5)]
    stack.append(layers.Dense(_CLASSES))
    return _on_images(keras.Sequential(stack), 48, 48, 3)


def unet() -> _Made:
    """Label every pixel; the way up takes what the way down has kept."""
    inputs = x = keras.Input((64, 64, 1))
    kept = []
    for filters in (16, 32, 64):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = layers.BatchNormalization()(x)
        kept.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(128, 3, padding="same", activation="relu")(x)
    for filters in (64, 32, 16):
        x = layers.Conv2DTranspose(filters, 2, strides=2)(x)
        x = layers.Concatenate()([x, kept.pop()])
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    model = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))
    return _Made(
        model,
        lambda n: (_pixels(n, 64, 64, 1), _pixels(n, 64, 64, 1).round()),
        "binary_crossentropy",
    )


def autoencoder() -> _Made:
    """Squeeze images through a narrow layer, and draw them again."""
    stack = [
        keras.Input((64, 64, 3)),
        layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
        layers.Conv2D(64, 3, strides=2, padding="same", activation="relu"),
        layers.Flatten(),
        layers.Dense(128),
        layers.Dense(16 * 16 * 64, activation="relu"),
        layers.Reshape((16, 16, 64)),
        layers.Conv2DTranspose(64, 3, strides=2, padding="same", activation="relu"),
        layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu"),
        layers.Conv2D(3, 3, padding="same", activation="sigmoid"),
    ]
    model = keras.Sequential(stack)
    return _Made(model, lambda n: (_pixels(n, 64, 64, 3),) * 2, "mse")


def conv3d() -> _Made:
    """Classify short films."""
    stack = [
        keras.Input((16, 32, 32, 1)),
        layers.Conv3D(16, 3, activation="relu"),
        layers.MaxPooling3D(),
        layers.Conv3D(32, 3, activation="relu"),
        layers.GlobalAveragePooling3D(),
        layers.Dense(_CLASSES),
    ]
    return _on_images(keras.Sequential(stack), 16, 32, 32, 1)


def _of_keras(kind: Any, side: int) -> _Made:
    """Take one of Keras's own models, without weights, on small images."""
    model = kind(
        weights=None,
        input_shape=(side, side, 3),
        classes=_CLASSES,
        classifier_activation=None,
    )
    return _on_images(model, side, side, 3)


def mobilenet_v2() -> _Made:
    """Take Keras's MobileNetV2."""
    return _of_keras(keras.applications.MobileNetV2, 96)


def resnet50() -> _Made:
    """Take Keras's ResNet50."""
    return _of_keras(keras.applications.ResNet50, 64)


def efficientnet_b0() -> _Made:
    """Take Keras's EfficientNetB0."""
    return _of_keras(keras.applications.EfficientNetB0, 64)


def lstm() -> _Made:
    """Classify texts with two LSTMs."""
    stack = [
        keras.Input((60,), dtype="int32"),
        layers.Embedding(5000, 64),
        layers.LSTM(64, return_sequences=True),
        layers.LSTM(64),
        layers.Dense(2),
    ]
    return _on_texts(keras.Sequential(stack), 5000, 60)


def gru() -> _Made:
    """Read sequences of measurements from both ends."""
    stack = [
        keras.Input((40, 16)),
        layers.Bidirectional(layers.GRU(96, return_sequences=True)),
        layers.GlobalMaxPooling1D(),
        layers.Dense(3),
    ]
    model = keras.Sequential(stack)
    return _Made(model, lambda n: (_pixels(n, 40, 16), _pixels(n, 3)), "mse")


def conv1d_text() -> _Made:
    """Classify texts by their phrases."""
    stack = [
        keras.Input((200,), dtype="int32"),
        layers.Embedding(10_000, 64),
        layers.Conv1D(128, 5, activation="relu"),
        layers.MaxPooling1D(4),
        layers.Conv1D(128, 5, activation="relu"),
        layers.GlobalMaxPooling1D(),
        layers.Dense(2),
    ]
    return _on_texts(keras.Sequential(stack), 10_000, 200)


def _attend(x: Any, *, causal: bool) -> Any:
    """Let each word look at the others, and think about it."""
    width = x.shape[-1]
    seen = layers.MultiHeadAttention(4, width // 4)(x, x, use_causal_mask=causal)
    x = layers.LayerNormalization()(x + seen)
    thought = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))
    return layers.LayerNormalization()(x + thought)


def transformer_encoder() -> _Made:
    """Classify texts with three blocks of attention."""
    inputs = keras.Input((64,), dtype="int32")
    x = layers.Embedding(5000, 128)(inputs)
    for _ in range(3):
        x = _attend(x, causal=False)
    model = keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))
    return _on_texts(model, 5000, 64)


def decoder_lm() -> _Made:
    """Tell each next word from those before it."""
    inputs = keras.Input((64,), dtype="int32")
    x = layers.Embedding(4000, 128)(inputs)
    for _ in range(2):
        x = _attend(x, causal=True)
    model = keras.Model(inputs, layers.Dense(4000)(x))
    return _Made(model, lambda n: (_words(4000, n, 64), _words(4000, n, 64)))


class _Gan(keras.Model):  # type: ignore[misc] # Keras is untyped here
    """A generator against a discriminator, each with an optimizer of its own."""

    def __init__(self) -> None:
        """Make both players."""
        super().__init__(name="gan")
        self.generator = _generator()
        self.discriminator = _discriminator()
        self.guess = keras.losses.BinaryCrossentropy(from_logits=True)

    def compile(self, optimizer: str, *_: Any, jit_compile: bool, **_others: Any) -> None:
        """Give each player an optimizer."""
        super().compile(jit_compile=jit_compile)
        self.generators_own = keras.optimizers.get(optimizer)
        self.discriminators_own = keras.optimizers.get(optimizer)

    def call(self, noise: Any) -> Any:
        """Draw images."""
        return self.generator(noise)

    def train_step(self, images: Any) -> Mapping[str, Any]:
        """Let both learn from one batch."""
        with tf.GradientTape(persistent=True) as tape:
            noise = tf.random.normal([tf.shape(images)[0], _NOISE])
            of_fakes = self.discriminator(self.generator(noise, training=True), training=True)
            of_images = self.discriminator(images, training=True)
            fooled = self.guess(tf.ones_like(of_fakes), of_fakes)
            caught = self.guess(tf.zeros_like(of_fakes), of_fakes)
            caught += self.guess(tf.ones_like(of_images), of_images)
        players = (
            (self.generator, self.generators_own, fooled),
            (self.discriminator, self.discriminators_own, caught),
        )
        for player, optimizer, loss in players:
            weights = player.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
        return {"fooled": fooled, "caught": caught}


def _generator() -> Any:
    stack = [
        keras.Input((_NOISE,)),
        layers.Dense(8 * 8 * 64, activation="relu"),
        layers.Reshape((8, 8, 64)),
        layers.Conv2DTranspose(64, 4, strides=2, padding="same", activation="relu"),
        layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="tanh"),
    ]
    return keras.Sequential(stack)


def _discriminator() -> Any:
    stack = [
        keras.Input((32, 32, 1)),
        layers.Conv2D(64, 4, strides=2, padding="same", activation="leaky_relu"),
        layers.Conv2D(128, 4, strides=2, padding="same", activation="leaky_relu"),
        layers.Flatten(),
        layers.Dense(1),
    ]
    return keras.Sequential(stack)


def gan() -> _Made:
    """Train two models against each other, in a training step of their own."""
    return _Made(_Gan(), lambda n: _pixels(n, 32, 32, 1))


def wide_mlp() -> _Made:
    """Take most of the memory for weights."""
    stack = [
        keras.Input((784,)),
        layers.Dense(2048, activation="relu"),
        layers.Dense(2048, activation="relu"),
        layers.Dense(_CLASSES),
    ]
    return _on_images(keras.Sequential(stack), 784)


def seeds_large_images() -> _Made:
    """Tell two kinds of images of 256 by 256 apart, with an accuracy metric."""
    stack = [
        keras.Input((256, 256, 3)),
        layers.Conv2D(32, (3, 3), activation="relu"),
        layers.MaxPooling2D((2, 2)),
        layers.Conv2D(64, (3, 3), activation="relu"),
        layers.MaxPooling2D((2, 2)),
        layers.Flatten(),
        layers.Dense(1, activation="sigmoid"),
    ]
    model = keras.Sequential(stack)
    return _Made(
        model,
        lambda n: (_pixels(n, 256, 256, 3), _labels(n, 2)),
        "binary_crossentropy",
        ("accuracy",),
    )


def seeds_long_text() -> _Made:
    """Tell two kinds of text apart: many words, each a long vector."""
    stack = [
        keras.Input((128,), dtype="int32"),
        layers.Embedding(20_000, 256),
        layers.LSTM(64),
        layers.Dense(1, activation="sigmoid"),
    ]
    return _on_texts(keras.Sequential(stack), 20_000, 128, "binary_crossentropy")


def seeds_complex_cnn() -> _Made:
    """Classify small images, with wide layers and a softmax."""
    stack = [
        keras.Input((64, 64, 3)),
        layers.Conv2D(64, (3, 3), activation="relu"),
        layers.MaxPooling2D((2, 2)),
        layers.Conv2D(128, (3, 3), activation="relu"),
        layers.MaxPooling2D((2, 2)),
        layers.Flatten(),
        layers.Dense(256, activation="relu"),
        layers.Dense(_CLASSES, activation="softmax"),
    ]
    model = keras.Sequential(stack)
    loss = "sparse_categorical_crossentropy"
    return _on_images(model, 64, 64, 3, loss=loss)


MODELS: Mapping[str, Callable[[], _Made]] = {
    make.__name__: make
    for make in (
        cnn,
        vgg_like,
        unet,
        autoencoder,
        conv3d,
        mobilenet_v2,
        resnet50,
        efficientnet_b0,
        lstm,
        gru,
        conv1d_text,
        transformer_encoder,
        decoder_lm,
        gan,
        wide_mlp,
        seeds_large_images,
        seeds_long_text,
        seeds_complex_cnn,
    )
}
