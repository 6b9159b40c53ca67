"""Programs that take the host's memory, and what their data sets keep."""

from staged_fixes.stage import Stage

_NUMPY = """
import numpy as np

rng = np.random.default_rng(0)
"""
_A_FILE = """
import os
import tempfile

import numpy as np

path = os.path.join(tempfile.mkdtemp(), "x.npy")
np.save(path, np.random.default_rng(0).random((300, 512, 512), dtype="float32"))
"""
_ARRAYS = """
import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
x = rng.random((1200, 256, 256), dtype="float32")
y = rng.integers(0, 10, 1200)
model = keras.Sequential([
    keras.Input((256, 256)), keras.layers.Flatten(), keras.layers.Dense(1),
])
model.compile("sgd", "mse")
model.fit(x[:32], y[:32], verbose=0)
"""
_ELEMENTS = """
import tensorflow as tf

def image(number):
    return tf.fill((512, 512), tf.cast(number % 255, tf.uint8))

def to_float(pixels):
    return tf.cast(pixels, tf.float32) / 255.0
"""
_CLASSES = """
import keras
import numpy as np

rng = np.random.default_rng(0)
x = rng.random((40_000, 16), dtype="float32")
labels = rng.integers(0, 1000, 40_000)
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1000, activation="softmax")])
"""
_CONVOLUTIONS = """
import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
x = rng.random((500, 32, 32, 3), dtype="float32")
model = keras.Sequential([
    keras.Input((32, 32, 3)),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(10),
])
"""

MAPPED = Stage(
    "memory-mapped",
    """x = np.load(path)
total = 0.0
for start in range(0, len(x), 50):
    total += x[start : start + 50].sum()
""",
    _A_FILE,
    host="450MB",
)
STREAMED = Stage(
    "stream-instead-of-hold",
    """ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
model.fit(ds, verbose=0)
""",
    _ARRAYS,
    device="3GB",
    host="1900MB",
)
STREAMED_IN_A_LOOP = Stage(
    "stream-instead-of-hold",
    """ds = tf.data.Dataset.from_tensor_slices((x, y))
total = 0.0
for images, labels in ds.batch(32).prefetch(1):
    total += float(tf.reduce_sum(images))
""",
    _ARRAYS,
    device="3GB",
    host="1900MB",
)
PREFETCHED_SAMPLES = Stage(
    "prefetch-buffer",
    """import time

ds = tf.data.Dataset.range(600).map(image).map(to_float).prefetch(320).batch(8)
for images in ds:
    time.sleep(0.02)  # a step
""",
    _ELEMENTS,
    device="3GB",
    host="1GB",
)
PREFETCHED = Stage(
    "prefetch-buffer",
    """import time

ds = tf.data.Dataset.range(400).map(image).map(to_float).batch(8).prefetch(40)
for images in ds:
    time.sleep(0.02)  # a step
""",
    _ELEMENTS,
    device="3GB",
    host="1GB",
)
SHUFFLED = Stage(
    "shuffle-buffer",
    """ds = tf.data.Dataset.range(600).map(image).map(to_float)
ds = ds.shuffle(400).batch(8)
for images in ds:
    pass
""",
    _ELEMENTS,
    device="3GB",
    host="1GB",
)
BATCHES_SHUFFLED = Stage(
    "shuffle-buffer",
    """ds = tf.data.Dataset.range(800).map(image).map(to_float).batch(16).shuffle(25)
for images in ds:
    pass
""",
    _ELEMENTS,
    device="3GB",
    host="1GB",
)
SHUFFLED_ON_THE_DEVICE = Stage(
    "shuffle-buffer",
    """ds = tf.data.Dataset.range(600).map(image).map(to_float)
ds = ds.shuffle(400).batch(8)
for images in ds:
    pass
""",
    _ELEMENTS,
    device="520MB",
)
CACHED = Stage(
    "cache-to-file",
    """ds = tf.data.Dataset.range(300).map(image).map(to_float).cache().batch(8)
for epoch in range(2):
    for images in ds:
        pass
""",
    _ELEMENTS,
    device="3GB",
    host="1GB",
)
CACHED_AS_FLOATS = Stage(
    "map-order",
    """ds = tf.data.Dataset.range(300).map(image)
ds = ds.map(to_float).cache().batch(8)
for epoch in range(2):
    for images in ds:
        pass
""",
    _ELEMENTS,
    device="3GB",
    host="1GB",
)
SHUFFLED_AS_FLOATS = Stage(
    "map-order",
    """ds = tf.data.Dataset.range(600).map(image)
ds = ds.map(to_float)
ds = ds.shuffle(300)
for image_now in ds.batch(8):
    pass
""",
    _ELEMENTS,
    device="3GB",
    host="1GB",
)
MAPPED_IN_PARALLEL = Stage(
    "map-in-parallel",
    """import time

ds = tf.data.Dataset.range(480).map(image).batch(16)
ds = ds.map(to_float, num_parallel_calls=12)
for images in ds:
    time.sleep(0.1)  # a step
""",
    _ELEMENTS,
    device="3GB",
    host="1GB",
)
DIVIDED = Stage(
    "float64-to-float32",
    """images = rng.integers(0, 255, (400, 256, 256), dtype="uint8")
x = images / 255.0
mean = x.mean()
""",
    _NUMPY,
    host="450MB",
)
MADE_WIDE = Stage(
    "float64-to-float32",
    """z = x.astype(float)
model.fit(z, y, verbose=0)
""",
    _ARRAYS,
    device="3GB",
    host="2500MB",
)
IN_PLACE = Stage(
    "in-place-arithmetic",
    """x = np.random.rand(400, 256, 256)
x = x - 0.5
x = x * 2.0
""",
    _NUMPY,
    host="550MB",
)
DELETED = Stage(
    "early-del",
    """raw = rng.random((1200, 256, 256))
z = raw.astype("float32")
model.fit(z, y, verbose=0)
""",
    _ARRAYS,
    device="3GB",
    host="2500MB",
)
WHOLE_NUMBERS = Stage(
    "integer-labels",
    """t = keras.utils.to_categorical(labels, 1000)
model.compile("sgd", loss="categorical_crossentropy", metrics=["accuracy"])
model.fit(x, t, batch_size=256, verbose=0)
""",
    _CLASSES,
    device="3GB",
    host="1500MB",
)
PREDICTED_CLASSES = Stage(
    "predict-in-pieces",
    """classes = np.argmax(model.predict(x, verbose=0), axis=1)
""",
    _CLASSES,
    device="3GB",
    host="1GB",
)
PREDICTED_ARRAY = Stage(
    "predict-in-pieces",
    """outputs = model.predict(x, verbose=0)
""",
    _ARRAYS,
    device="3GB",
    host="1500MB",
)
CALLED = Stage(
    "predict-instead-of-call",
    """outputs = model(x).numpy()
""",
    _CONVOLUTIONS,
    device="240MB",
)

STAGES = (
    MAPPED,
    STREAMED,
    STREAMED_IN_A_LOOP,
    PREFETCHED,
    PREFETCHED_SAMPLES,
    SHUFFLED,
    SHUFFLED_ON_THE_DEVICE,
    BATCHES_SHUFFLED,
    CACHED,
    CACHED_AS_FLOATS,
    SHUFFLED_AS_FLOATS,
    MAPPED_IN_PARALLEL,
    DIVIDED,
    MADE_WIDE,
    IN_PLACE,
    DELETED,
    WHOLE_NUMBERS,
    PREDICTED_CLASSES,
    PREDICTED_ARRAY,
    CALLED,
)
