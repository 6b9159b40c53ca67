"""The articles' own programs, made to run: what they leave out is filled in, and sizes fit.

Their texts are otherwise as the articles have them, so that suggestions are made for what people
really find and copy. An error that an article catches only to print it is not caught.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """A notebook of two cells, of which the second is profiled."""

    name: str
    """As docs/articles.py names it."""
    cell: str
    before: str
    device: str = "300MB"
    host_mb: int = 0
    """How much more the process may take on the host; 0 for all there is."""


_IMPORTS = "import numpy as np, tensorflow as tf\nfrom tensorflow import keras\n"
_CONVOLUTIONS = """\
model = tf.keras.models.Sequential([
    tf.keras.layers.Conv2D(32, (3, 3), activation='relu'),
    tf.keras.layers.Conv2D(64, (3, 3), activation='relu'),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(1)
])
"""
_IMAGES = f"""\
{_IMPORTS}
x_train = np.random.rand(256, 64, 64, 3).astype('float32')
y_train = np.random.rand(256, 1).astype('float32')
{_CONVOLUTIONS}
model.compile('adam', 'mse')
"""
_STEP = """\
@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        predictions = model(images)
        loss = loss_fn(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

train_dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)
for images, labels in train_dataset:
    train_step(images, labels)
"""
_CLASSIFIED = f"""\
{_IMPORTS}
x = np.random.rand(1000, 64, 64, 3).astype(np.float32)
y = np.random.randint(0, 10, size=1000).astype(np.int32)
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy()
"""

PROGRAMS = (
    Program(
        "accumulates nothing",
        """\
optimizer = tf.keras.optimizers.Adam()
accumulation_steps = 4  # Accumulate gradients over 4 steps
for epoch in range(1):
    for batch in data_generator:
        with tf.GradientTape() as tape:
            loss = model(batch[0], training=True)
            loss = tf.reduce_mean(loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = [g / accumulation_steps for g in gradients] # Average gradients
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
""",
        f"""\
{_IMPORTS}{_CONVOLUTIONS}
data_generator = [(np.zeros((16, 64, 64, 3), 'float32'),)] * 8
""",
    ),
    Program(
        "a file read whole",
        """\
data = np.load('large_dataset.npy') # Likely to fail for massive datasets
chunk_size = 1024
for i in range(0, data_size, chunk_size):
    chunk = data[i:i+chunk_size]
    total += chunk.sum()
""",
        """\
import numpy as np
data_size, total = 100_000, 0.0
np.save('large_dataset.npy', np.ones((data_size, 512), 'float64'))
""",
        host_mb=300,
    ),
    Program(
        "slices of an array",
        """\
dataset = tf.data.Dataset.from_tensor_slices(data) # Assume data is your numpy array
dataset = dataset.batch(batch_size).prefetch(buffer_size=tf.data.AUTOTUNE)

for batch in dataset:
    # Process the batch.
    pass
""",
        f"{_IMPORTS}data, batch_size = np.ones((15_000, 1_000), 'float32'), 64\n",
        device="150MB",
    ),
    Program(
        "large images",
        """\
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(128)

# Create a dummy CNN Model (Replace with your model)
model = tf.keras.Sequential([
    tf.keras.layers.Conv2D(32, (3, 3), activation='relu', input_shape=image_shape),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Conv2D(64, (3, 3), activation='relu'),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(1, activation='sigmoid')
])

# Compile the model
model.compile(optimizer='adam', loss='binary_crossentropy', metrics=['accuracy'])
model.fit(dataset, epochs=5)
""",
        f"""\
{_IMPORTS}
image_shape = (64, 64, 3)
images = np.random.rand(512, *image_shape).astype(np.float32)
labels = np.random.randint(0, 2, 512)
""",
    ),
    Program(
        "a large embedding",
        """\
model = tf.keras.Sequential([
    tf.keras.layers.Embedding(vocab_size, embedding_dim),
    tf.keras.layers.LSTM(64),
    tf.keras.layers.Dense(1, activation='sigmoid')
])
model.compile(optimizer='adam', loss='binary_crossentropy', metrics=['accuracy'])
model.fit(dataset, epochs=5)
""",
        f"""\
{_IMPORTS}
vocab_size = 20000  # large vocabulary
sequence_length = 128
embedding_dim = 256
input_data = np.random.randint(0, vocab_size, size=(256, sequence_length))
labels = np.random.randint(0, 2, 256)
dataset = tf.data.Dataset.from_tensor_slices((input_data, labels)).batch(32)
""",
        device="160MB",
    ),
    Program(
        "a custom loop",
        f"batch_size = 256  # This could be excessive for smaller GPUs\n{_STEP}",
        f"""\
{_CLASSIFIED}
model = tf.keras.models.Sequential([
    tf.keras.layers.Conv2D(32, (3, 3), activation='relu', input_shape=(64, 64, 3)),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(10, activation='softmax')
])
optimizer = tf.keras.optimizers.Adam(learning_rate=0.001)
""",
    ),
    Program(
        "memory growth",
        f"""\
batch_size = 64 # Batch size set deliberately high
gpus = tf.config.list_physical_devices('GPU')
if gpus:
    try:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as e:
        print(e)

{_STEP}""",
        f"""\
{_CLASSIFIED}
model = tf.keras.models.Sequential([
    tf.keras.layers.Conv2D(64, (3, 3), activation='relu', input_shape=(64, 64, 3)),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Conv2D(128, (3, 3), activation='relu'),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(256, activation='relu'),
    tf.keras.layers.Dense(10, activation='softmax')
])
optimizer = tf.keras.optimizers.Adam(learning_rate=0.001)
""",
    ),
    Program(
        "a fit that is retried",
        """\
batch_size = 64 # Start with a reasonable batch size

try:
    model.fit(x_train, y_train, batch_size=batch_size, epochs=10)
except tf.errors.ResourceExhaustedError:
    print("Resource Exhausted. Reducing batch size...")
    batch_size //= 2  # Halve the batch size
    model.fit(x_train, y_train, batch_size=batch_size, epochs=10)
""",
        _IMAGES,
        device="150MB",
    ),
    Program(
        "accumulation by hand",
        """\
accumulation_steps = 4  # Accumulate gradients over 4 mini-batches
batch_size = 64   # Smaller batch size for accumulation

for epoch in range(1):
    gradients = None
    for step in range(len(x_train) // batch_size):
        with tf.GradientTape() as tape:
            x_batch = x_train[step*batch_size:(step+1)*batch_size]
            y_batch = y_train[step*batch_size:(step+1)*batch_size]
            loss = model(x_batch) - y_batch
            loss = tf.reduce_mean(tf.square(loss)) #Example Loss Function


        grads = tape.gradient(loss, model.trainable_variables)
        if gradients is None:
            gradients = grads
        else:
            gradients = [tf.add(g1, g2) for g1, g2 in zip(gradients, grads)]

        if (step + 1) % accumulation_steps == 0:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            gradients = None
""",
        f"{_IMAGES}\noptimizer = tf.keras.optimizers.Adam()\n",
        device="160MB",
    ),
    Program(
        "halved until it fits",
        """\
initial_batch_size = 128
batch_size = initial_batch_size
while True:
    try:
        model.fit(x_train, y_train, batch_size=batch_size, epochs=1, verbose=1)
        break  # Success: batch_size works
    except tf.errors.ResourceExhaustedError:
        batch_size //= 2
        print(f"Resource exhausted, reducing batch size to {batch_size}")
        if batch_size < 1:
            raise RuntimeError("Cannot find suitable batch size.")
""",
        _IMAGES,
    ),
    Program(
        "a shuffled pipeline",
        """\
dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
dataset = dataset.shuffle(buffer_size=1000).batch(batch_size).prefetch(buffer_size=tf.data.AUTOTUNE)

model.fit(dataset, epochs=10)
""",
        f"""\
{_IMPORTS}
x_train = np.random.rand(1200, 64, 64, 3).astype('float32')
y_train, batch_size = np.random.rand(1200, 1).astype('float32'), 16
{_CONVOLUTIONS}
model.compile('adam', 'mse')
""",
        device="190MB",
    ),
)
