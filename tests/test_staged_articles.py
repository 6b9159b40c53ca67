"""Programs of the articles that ask why memory runs out, as they stand there, made to run out.

Where an article catches the error to print it, it is raised instead, and what an article leaves
out ("your layers") is filled in.
"""

import pytest
from staging import PROFILE, run_cells

pytestmark = pytest.mark.long

IMPORTS = "import numpy as np, tensorflow as tf\nfrom tensorflow import keras\n"


def test_an_accumulation_of_gradients_whose_mini_batch_is_too_big() -> None:
    begin = (
        IMPORTS
        + """
model = tf.keras.models.Sequential([
    tf.keras.layers.Conv2D(32, (3, 3), activation='relu'),
    tf.keras.layers.Conv2D(64, (3, 3), activation='relu'),
    tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.Adam()
accumulation_steps = 4
num_epochs = 1
data_generator = [(np.zeros((64, 64, 64, 3), 'float32'),)] * 8
"""
    )
    cell = """
    for epoch in range(num_epochs):
        for batch in data_generator:
            with tf.GradientTape() as tape:
                loss = model(batch[0], training=True)
                loss = tf.reduce_mean(loss)
            gradients = tape.gradient(loss, model.trainable_variables)
            gradients = [g / accumulation_steps for g in gradients]
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    """
    _, recorded = run_cells(begin, cell, device_mb=128, profiled=True)
    assert recorded.cause == "step too big"
    assert recorded.line_source in {
        "loss = model(batch[0], training=True)",
        "gradients = tape.gradient(loss, model.trainable_variables)",
    }


FIT = """
image_shape = (128, 128, 3)
num_images = 200
images = np.random.rand(num_images, *image_shape).astype(np.float32)
labels = np.random.randint(0, 2, num_images)
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(128)
model = tf.keras.Sequential([
    tf.keras.layers.Conv2D(32, (3, 3), activation='relu', input_shape=image_shape),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Conv2D(64, (3, 3), activation='relu'),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(1, activation='sigmoid')
])
model.compile(optimizer='adam', loss='binary_crossentropy', metrics=['accuracy'])
model.fit(dataset, epochs=5, verbose=0)
"""


@pytest.mark.parametrize("magic", [PROFILE, ""], ids=["recorded", "late"])
def test_a_fit_whose_batch_of_images_is_too_big(magic: str) -> None:
    _, ended = run_cells(IMPORTS, magic + FIT)
    assert ended.was_loaded == bool(magic)
    assert ended.cause == "step too big"
    assert ended.line_source == "model.fit(dataset, epochs=5, verbose=0)"
    assert ended.layer.startswith("conv2d")
    assert "at batch size 128" in ended.sentence


COMPLEX = """
def create_complex_cnn():
    model = tf.keras.models.Sequential([
        tf.keras.layers.Conv2D(64, (3, 3), activation='relu', input_shape=(64, 64, 3)),
        tf.keras.layers.MaxPooling2D((2, 2)),
        tf.keras.layers.Conv2D(128, (3, 3), activation='relu'),
        tf.keras.layers.MaxPooling2D((2, 2)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(256, activation='relu'),
        tf.keras.layers.Dense(10, activation='softmax')
    ])
    return model
def generate_dummy_data(num_samples, batch_size):
    images = np.random.rand(num_samples, 64, 64, 3).astype(np.float32)
    labels = np.random.randint(0, 10, size=num_samples).astype(np.int32)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch_size)
    return dataset
model = create_complex_cnn()
optimizer = tf.keras.optimizers.Adam(learning_rate=0.001)
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy()
@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        predictions = model(images)
        loss = loss_fn(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
num_samples = 200
batch_size = 64
train_dataset = generate_dummy_data(num_samples, batch_size)
"""


def test_a_train_step_of_ones_own_whose_batch_is_too_big() -> None:
    cell = PROFILE + "for images, labels in train_dataset:\n    train_step(images, labels)\n"
    _, recorded = run_cells(IMPORTS + COMPLEX, cell, device_mb=150)
    assert recorded.cause == "step too big"
    assert recorded.line_source in {
        "predictions = model(images)",
        "gradients = tape.gradient(loss, model.trainable_variables)",
    }
    assert recorded.layer.startswith("conv2d")


LEAKY = """
def create_leaky_model():
    model = tf.keras.models.Sequential([
        tf.keras.layers.Dense(100, activation='relu', input_shape=(10,)),
        tf.keras.layers.Dense(10, activation='softmax')
    ])
    return model
def generate_dummy_data(num_samples, batch_size):
    inputs = np.random.rand(num_samples, 10).astype(np.float32)
    labels = np.random.randint(0, 10, size=num_samples).astype(np.int32)
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(batch_size)
    return dataset
model = create_leaky_model()
optimizer = tf.keras.optimizers.Adam(learning_rate=0.001)
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy()
@tf.function
def leaky_train_step(inputs, labels):
    with tf.GradientTape() as tape:
        activations = model(inputs)
        loss = loss_fn(labels, activations)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return activations  # <-- 'activations' tensor is returned, not explicitly deallocated
num_samples = 200000
"""


def test_a_step_that_returns_its_activations_does_not_leak_and_is_only_too_big() -> None:
    loop = """
    train_dataset = generate_dummy_data(num_samples, {size})
    for inputs, labels in train_dataset:
        leaky_train_step(inputs, labels)
    """
    small, big = loop.format(size=1000), loop.format(size=200000)
    _, calm, recorded = run_cells(IMPORTS + LEAKY, small, big, device_mb=280, profiled=True)
    assert calm.cause == "none"
    assert not any("grows" in line for line in calm.evidence)
    assert recorded.cause == "step too big"
    assert recorded.layer.startswith("dense")


def test_a_batch_that_is_halved_after_the_error_and_is_still_too_big() -> None:
    begin = (
        IMPORTS
        + """
x_train, y_train = np.zeros((4, 512, 512, 3), 'float32'), np.zeros((4, 1), 'float32')
model = tf.keras.models.Sequential([
    tf.keras.layers.Conv2D(32, (3, 3), activation='relu'),
    tf.keras.layers.Conv2D(64, (3, 3), activation='relu'),
    tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(1)])
model.compile('adam', 'mse')
batch_size = 2
"""
    )
    cell = """
    try:
        model.fit(x_train, y_train, batch_size=batch_size, epochs=10, verbose=0)
    except tf.errors.ResourceExhaustedError:
        print("Resource Exhausted. Reducing batch size...")
        batch_size //= 2
        model.fit(x_train, y_train, batch_size=batch_size, epochs=10, verbose=0)
    """
    _, recorded = run_cells(begin, cell, device_mb=64, profiled=True)
    assert recorded.cause == "step too big"
    assert recorded.line_source.startswith("model.fit(x_train, y_train, batch_size=batch_size")
    assert recorded.layer.startswith("conv2d")


def test_a_search_for_a_batch_size_that_ends_in_an_error_of_its_own() -> None:
    begin = (
        IMPORTS
        + """
x_train, y_train = np.zeros((2, 900, 900, 3), 'float32'), np.zeros((2, 10), 'float32')
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = keras.Sequential([
        keras.layers.Conv2D(32, (3, 3), activation='relu', input_shape=(900, 900, 3)),
        keras.layers.MaxPooling2D((2, 2)),
        keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)
    ])
    model.compile(optimizer='sgd', loss='categorical_crossentropy', metrics=['accuracy'])
initial_batch_size = 1
"""
    )
    cell = """
    batch_size = initial_batch_size
    while True:
        try:
            model.fit(x_train, y_train, batch_size=batch_size, epochs=1, verbose=0)
            break
        except tf.errors.ResourceExhaustedError:
            batch_size //= 2
            print(f"Resource exhausted, reducing batch size to {batch_size}")
            if batch_size < 1:
                raise RuntimeError("Cannot find suitable batch size.")
    """
    _, recorded = run_cells(begin, cell, device_mb=120, profiled=True)
    assert recorded.error == "RuntimeError"
    assert recorded.cause == "step too big"
    assert recorded.line_source.startswith("model.fit(x_train, y_train, batch_size=batch_size")
    assert recorded.layer
