"""Programs whose training step needs a fix on a small device."""

from staged_fixes.stage import Stage

_IMAGES = """
import keras
import numpy as np

rng = np.random.default_rng(0)
x = rng.random((256, 64, 64, 3), dtype="float32")
y = rng.integers(0, 10, 256)
"""
_VECTORS = """
import keras
import numpy as np

rng = np.random.default_rng(0)
x = rng.random((128, 1024), dtype="float32")
y = rng.integers(0, 10, 128)
"""
_WORDS = """
import keras
import numpy as np

rng = np.random.default_rng(0)
x = rng.integers(0, 20000, (128, 64))
y = rng.integers(0, 10, 128)
"""
_ROWS = """
import keras
import numpy as np

rng = np.random.default_rng(0)
x = rng.random((64, 256, 128), dtype="float32")
y = rng.integers(0, 10, 64)
"""
_TEXTS = """
import keras
import numpy as np

rng = np.random.default_rng(0)
texts = [rng.integers(1, 2000, size).tolist() for size in rng.integers(50, 400, 128)]
y = rng.integers(0, 10, 128)
"""
_LOOP = """
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
x = rng.random((128, 64, 64, 3), dtype="float32")
y = rng.integers(0, 10, 128)
"""

_CONVOLUTIONS = """
model = keras.Sequential([
    keras.Input((64, 64, 3)),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    keras.layers.MaxPooling2D(),
    keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(10, activation="softmax"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
model.fit(x, y, batch_size=64, epochs=1, verbose=0)
"""

ACCUMULATION = Stage("gradient-accumulation", _CONVOLUTIONS.lstrip(), _IMAGES, "200MB")
MIXED_PRECISION = Stage("mixed-precision", _CONVOLUTIONS.lstrip(), _IMAGES, "270MB")
RECOMPUTING = Stage(
    "recompute-activations",
    _CONVOLUTIONS.lstrip().replace("relu", "gelu").replace("=64, epochs", "=32, epochs"),
    _IMAGES,
    "300MB",
)
POOLING = Stage(
    "pooling-instead-of-flatten",
    """
model = keras.Sequential([
    keras.Input((64, 64, 3)),
    keras.layers.Conv2D(16, 3, activation="relu"),
    keras.layers.MaxPooling2D(),
    keras.layers.Conv2D(32, 3, activation="relu"),
    keras.layers.MaxPooling2D(),
    keras.layers.Flatten(),
    keras.layers.Dense(512, activation="relu"),
    keras.layers.Dense(10, activation="softmax"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
model.fit(x, y, batch_size=32, epochs=1, verbose=0)
""".lstrip(),
    _IMAGES,
    "120MB",
)
SEPARABLE = Stage(
    "separable-convolutions",
    """
model = keras.Sequential([
    keras.Input((64, 64, 3)),
    keras.layers.Conv2D(32, 3, strides=4, activation="relu"),
    keras.layers.Conv2D(512, 3, padding="same", activation="relu"),
    keras.layers.MaxPooling2D(4),
    keras.layers.Conv2D(512, 3, padding="same", activation="relu"),
    keras.layers.Conv2D(1024, 3, padding="same", activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(10, activation="softmax"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
model.fit(x, y, batch_size=16, epochs=1, verbose=0)
""".lstrip(),
    _IMAGES,
    "195MB",
)
SMALLER_INPUTS = Stage(
    "smaller-inputs",
    """
model = keras.Sequential([
    keras.Input((64, 64, 3)),
    keras.layers.Resizing(96, 96),
    keras.layers.Conv2D(32, 3, activation="relu"),
    keras.layers.Conv2D(32, 3, activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(10, activation="softmax"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
model.fit(x, y, batch_size=32, epochs=1, verbose=0)
""".lstrip(),
    _IMAGES,
    "270MB",
)
SHORTER_SEQUENCES = Stage(
    "shorter-sequences",
    """
maxlen = 256  # words
z = keras.utils.pad_sequences(texts, maxlen=maxlen)
i = keras.Input((maxlen,))
h = keras.layers.Embedding(2000, 64)(i)
h = keras.layers.Conv1D(128, 5, padding="same", activation="relu")(h)
h = keras.layers.MultiHeadAttention(4, 32)(h, h)
h = keras.layers.GlobalMaxPooling1D()(h)
model = keras.Model(i, keras.layers.Dense(10, activation="softmax")(h))
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
model.fit(z, y, batch_size=32, epochs=1, verbose=0)
""".lstrip(),
    _TEXTS,
    "140MB",
)
EMBEDDING = Stage(
    "smaller-embedding",
    """
vocab_size, sequence_length = 20000, 64
embedding_dim = 256
model = keras.Sequential([
    keras.Input((sequence_length,)),
    keras.layers.Embedding(vocab_size, embedding_dim),
    keras.layers.LSTM(64),
    keras.layers.Dense(10, activation="softmax"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
model.fit(x, y, batch_size=32, epochs=1, verbose=0)
""".lstrip(),
    _WORDS,
    "160MB",
)
OPTIMIZER = Stage(
    "lighter-optimizer",
    """
model = keras.Sequential([
    keras.Input((1024,)),
    keras.layers.Dense(2048, activation="relu"),
    keras.layers.Dense(2048, activation="relu"),
    keras.layers.Dense(1024, activation="relu"),
    keras.layers.Dense(10, activation="softmax"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
model.fit(x, y, batch_size=32, epochs=1, verbose=0)
""".lstrip(),
    _VECTORS,
    "180MB",
)
XLA = Stage(
    "xla",
    _CONVOLUTIONS.lstrip()
    .replace('entropy")', 'entropy", jit_compile=True)')
    .replace("=64, epochs", "=32, epochs"),
    _IMAGES,
    "300MB",
)
WITH_XLA = Stage(
    "with-xla",
    """
i = h = keras.Input((256, 128))
for _ in range(2):
    h = keras.layers.LayerNormalization()(h + keras.layers.MultiHeadAttention(4, 32)(h, h))
    inner = keras.layers.Dense(512, activation="gelu")(h)
    h = keras.layers.LayerNormalization()(h + keras.layers.Dense(128)(inner))
h = keras.layers.GlobalAveragePooling1D()(h)
model = keras.Model(i, keras.layers.Dense(10, activation="softmax")(h))
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
model.fit(x, y, batch_size=32, epochs=1, verbose=0)
""".lstrip(),
    _ROWS,
    "320MB",
)
ACCUMULATES_NOTHING = Stage(
    "accumulates-nothing",
    """
model = tf.keras.Sequential([
    tf.keras.Input((64, 64, 3)),
    tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10),
])
optimizer = tf.keras.optimizers.Adam()
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
accumulation_steps = 4  # Accumulate gradients over 4 steps
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)

for epoch in range(2):
    for batch in data:
        with tf.GradientTape() as tape:
            loss = loss_fn(batch[1], model(batch[0], training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = [g / accumulation_steps for g in gradients]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
""".lstrip(),
    _LOOP,
    "300MB",
)

STAGES = (
    ACCUMULATION,
    ACCUMULATES_NOTHING,
    MIXED_PRECISION,
    RECOMPUTING,
    POOLING,
    SEPARABLE,
    SMALLER_INPUTS,
    SHORTER_SEQUENCES,
    EMBEDDING,
    OPTIMIZER,
    XLA,
    WITH_XLA,
)
