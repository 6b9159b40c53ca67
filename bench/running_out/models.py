"""Ten models of the usual kinds. Each makes a function that trains one step at a batch size."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Train = Callable[[int], object]
layers = keras.layers
_LOGITS_LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
_WORDS = 5000


def _on_images(model: Any, *shape: int) -> Train:
    model.compile("adam", _LOGITS_LOSS)
    return lambda batch: model.train_on_batch(_noise(batch, *shape), np.zeros(batch, "int32"))


def _on_words(model: Any, length: int) -> Train:
    model.compile("adam", _LOGITS_LOSS)
    random = np.random.default_rng(0)

    def train(batch: int) -> object:
        words = random.integers(0, _WORDS, size=(batch, length), dtype="int32")
        return model.fit(words, np.zeros(batch, "int32"), batch_size=batch, verbose=0)

    return train


def _noise(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, dtype="float32")


def cnn() -> Train:
    """Stack convolutions, as in every first tutorial."""
    stack = [
        keras.Input((64, 64, 3)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(10),
    ]
    return _on_images(keras.Sequential(stack), 64, 64, 3)


def resnet50() -> Train:
    """Take Keras's ResNet50 on small images."""
    model = keras.applications.ResNet50(
        weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None
    )
    return _on_images(model, 64, 64, 3)


def mobilenet_v2() -> Train:
    """Take Keras's MobileNetV2 on small images."""
    model = keras.applications.MobileNetV2(
        weights=None, input_shape=(96, 96, 3), classes=10, classifier_activation=None
    )
    return _on_images(model, 96, 96, 3)


def lstm() -> Train:
    """Classify sequences with two LSTMs."""
    stack = [
        keras.Input((80,), dtype="int32"),
        layers.Embedding(_WORDS, 64),
        layers.LSTM(64, return_sequences=True),
        layers.LSTM(64),
        layers.Dense(2),
    ]
    return _on_words(keras.Sequential(stack), 80)


def gru() -> Train:
    """Classify sequences with a GRU that is read from both ends."""
    stack = [
        keras.Input((80,), dtype="int32"),
        layers.Embedding(_WORDS, 64),
        layers.Bidirectional(layers.GRU(64)),
        layers.Dense(2),
    ]
    return _on_words(keras.Sequential(stack), 80)


def transformer() -> Train:
    """Classify sequences with two blocks of attention."""
    inputs = keras.Input((128,), dtype="int32")
    x = layers.Embedding(_WORDS, 64)(inputs)
    for _ in range(2):
        attended = layers.MultiHeadAttention(4, 16)(x, x)
        x = layers.LayerNormalization()(x + attended)
        x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(256, "relu")(x)))
    outputs = layers.Dense(2)(layers.GlobalAveragePooling1D()(x))
    return _on_words(keras.Model(inputs, outputs), 128)


def embedding_classifier() -> Train:
    """Average the words of a long text."""
    stack = [
        keras.Input((500,), dtype="int32"),
        layers.Embedding(_WORDS, 128),
        layers.GlobalAveragePooling1D(),
        layers.Dense(64, activation="relu"),
        layers.Dense(2),
    ]
    return _on_words(keras.Sequential(stack), 500)


def unet() -> Train:
    """Label every pixel with a small U-Net."""
    inputs = keras.Input((64, 64, 3))
    left = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    middle = layers.MaxPooling2D()(left)
    middle = layers.Conv2D(32, 3, padding="same", activation="relu")(middle)
    right = layers.Conv2DTranspose(16, 2, strides=2)(middle)
    right = layers.Concatenate()([left, right])
    outputs = layers.Conv2D(1, 3, padding="same")(right)
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse")
    return lambda batch: model.fit(
        _noise(batch, 64, 64, 3), _noise(batch, 64, 64, 1), batch_size=batch, verbose=0
    )


def conv3d() -> Train:
    """Classify short films."""
    stack = [
        keras.Input((16, 32, 32, 3)),
        layers.Conv3D(16, 3, activation="relu"),
        layers.Conv3D(32, 3, activation="relu"),
        layers.GlobalAveragePooling3D(),
        layers.Dense(10),
    ]
    return _on_images(keras.Sequential(stack), 16, 32, 32, 3)


def gan() -> Train:
    """Train a generator against a discriminator, each with an optimizer, in a loop of its own."""
    generator = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(16 * 16 * 32, activation="relu"),
            layers.Reshape((16, 16, 32)),
            layers.Conv2DTranspose(32, 4, strides=2, padding="same", activation="relu"),
            layers.Conv2DTranspose(3, 4, strides=2, padding="same"),
        ]
    )
    discriminator = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            layers.Conv2D(32, 4, strides=2, activation="leaky_relu"),
            layers.Conv2D(64, 4, strides=2, activation="leaky_relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(1),
        ]
    )
    players = [(generator, keras.optimizers.Adam()), (discriminator, keras.optimizers.Adam())]
    for player, optimizer in players:
        optimizer.build(player.trainable_variables)
    guess = keras.losses.BinaryCrossentropy(from_logits=True)

    def step(images: Any) -> None:
        with tf.GradientTape(persistent=True) as tape:
            fakes = generator(tf.random.normal([tf.shape(images)[0], 64]), training=True)
            of_fakes, of_images = discriminator(fakes), discriminator(images)
            fooled = guess(tf.ones_like(of_fakes), of_fakes)
            caught = guess(tf.zeros_like(of_fakes), of_fakes)
            losses = [fooled, caught + guess(tf.ones_like(of_images), of_images)]
        for (player, optimizer), loss in zip(players, losses, strict=True):
            weights = player.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)

    compiled = tf.function(step, reduce_retracing=True)
    return lambda batch: compiled(tf.constant(_noise(batch, 64, 64, 3)))


MODELS: Mapping[str, Callable[[], Train]] = {
    make.__name__: make
    for make in (
        cnn,
        resnet50,
        mobilenet_v2,
        lstm,
        gru,
        transformer,
        embedding_classifier,
        unet,
        conv3d,
        gan,
    )
}
