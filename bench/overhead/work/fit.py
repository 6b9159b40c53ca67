"""Keras `fit` of a dense network."""

import numpy as np
import tensorflow as tf

DEFAULT_ITERATIONS = 6
random = np.random.default_rng(0)
x = random.normal(size=(16_384, 256)).astype("float32")
y = random.integers(0, 10, size=16_384)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Dense(256, activation="relu"),
        tf.keras.layers.Dense(256, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss)
model.fit(x, y, batch_size=64, epochs=1, verbose=0)

# measured
history = model.fit(x, y, batch_size=64, epochs=ITERATIONS, verbose=0)
last = history.history["loss"][-1]
