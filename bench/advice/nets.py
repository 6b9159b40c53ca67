"""Measures what the advice says of kinds of nets: with XLA and without, kernels, tables, copies.

Run from the root of the checkout, all or those that are named: `python -m bench.advice.nets
[NAME ...]`. Each net trains in a process of its own on a training device of the CPU with room for
it. The figures stand in the pages of the rules.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from oommagic.units import format_bytes

RESULTS = Path(__file__).with_name("nets.json")
_PATIENCE_S = 600

_BEGIN = """
import oommagic
oommagic.use_device("6GB")
import keras, numpy as np, tensorflow as tf
from keras import layers as L, ops
rng = np.random.default_rng(0)
def images(*inner):
    return keras.Sequential([keras.Input((64, 64, 3)), *inner, L.GlobalAveragePooling2D(),
                             L.Dense(10)]), rng.random((64, 64, 64, 3), dtype="float32"), 10
def convolutions(size=3, activation="relu"):
    return images(*(L.Conv2D(32, size, padding="same", activation=activation) for _ in range(4)))
class Chain(L.Layer):
    def call(self, x):
        for _ in range(4):
            x = x * ops.sigmoid(1.702 * x) + ops.tanh(x * x) * 0.5
        return x
class Norm(L.Layer):
    def call(self, x):
        mean = ops.mean(x, -1, keepdims=True)
        return (x - mean) / ops.sqrt(ops.mean((x - mean) ** 2, -1, keepdims=True) + 1e-5)
def blocks(h, count, activation="gelu", dropout=0.0):
    for _ in range(count):
        n = L.LayerNormalization()(h)
        h = h + L.MultiHeadAttention(4, 32, dropout=dropout)(n, n)
        n = L.Dense(512, activation=activation)(L.LayerNormalization()(h))
        h = h + L.Dropout(dropout)(L.Dense(128)(n))
    return h
def rows(shape, inner):
    i = keras.Input(shape)
    o = L.Dense(10)(L.GlobalAveragePooling1D()(inner(i)))
    return keras.Model(i, o), rng.random((64, *shape), dtype="float32"), 10
def words(inner, size=4000, length=128):
    i = keras.Input((length,), dtype="int32")
    return keras.Model(i, inner(i)), rng.integers(0, size, (64, length)), size
def dense_and_norm(h):
    for _ in range(4):
        h = L.LayerNormalization()(L.Dense(512, activation="gelu")(h))
    return h
def model_of_words(**more):
    return words(lambda i: L.Dense(4000)(blocks(L.Embedding(4000, 128)(i), 3, **more)))
def two_tables(is_one):
    i, j = keras.Input((32,)), keras.Input((32,))
    first = L.Embedding(20000, 128)
    second = first if is_one else L.Embedding(20000, 128)
    both = [L.GlobalAveragePooling1D()(first(i)), L.GlobalAveragePooling1D()(second(j))]
    x = rng.integers(0, 20000, (64, 32))
    return keras.Model([i, j], L.Dense(10)(L.Concatenate()(both))), [x, x], 10
def with_output(is_one):
    table = (L.ReversibleEmbedding if is_one else L.Embedding)(20000, 128)
    def inner(i):
        h = L.GlobalAveragePooling1D()(table(i))
        return table(h, reverse=True) if is_one else L.Dense(20000)(h)
    net, x, size = words(inner, 20000, 32)
    return net, x, size
"""
_TRAIN = """
is_of_words = net.output_shape[1:-1]
y = rng.integers(0, classes, (64, *is_of_words))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
net.compile("adam", loss, jit_compile=jit)
net.fit(x, y, batch_size=32, epochs=2, verbose=0)
print(tf.config.experimental.get_memory_info("CPU:0")["peak"])
"""
_FIT = """
import keras, numpy as np
def told(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))
x, y = np.random.default_rng(0).random((1600, 256, 256), dtype="float32"), np.zeros(1600)
class Rows(keras.utils.PyDataset):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows
    def __len__(self):
        return -(-len(self.rows) // 32)
    def __getitem__(self, number):
        rows = self.rows[number * 32 : (number + 1) * 32]
        return x[rows], y[rows]
net = keras.Sequential([keras.Input((256, 256)), keras.layers.Flatten(), keras.layers.Dense(1)])
net.compile("sgd", "mse")
net.fit(x[:64], y[:64], validation_split=0.5, verbose=0)
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
before = told("VmRSS")
{fit}
print(told("VmHWM") - before)
"""

_WITH_XLA_TOO = {
    "convolutions, relu": "convolutions()",
    "convolutions, gelu": 'convolutions(activation="gelu")',
    "convolutions, mish": 'convolutions(activation="mish")',
    "a chain of small ops": 'images(L.Conv2D(16, 3, padding="same"), Chain())',
    "small ops and normalisation": "images(*(one() for _ in range(3) for one in "
    '(lambda: L.Conv2D(16, 1, padding="same"), Norm, Chain)))',
    "dense layers, gelu, normalisation": "rows((256, 512), dense_and_norm)",
    "an encoder of two blocks": "rows((256, 128), lambda i: blocks(i, 2))",
    "an encoder of patches": "rows((256, 128), lambda i: blocks(i, 3))",
    "a model of words, gelu": "model_of_words()",
    "a model of words, relu": 'model_of_words(activation="relu")',
    "a model of words, dropout": "model_of_words(dropout=0.1)",
    "an embedding and an output": "words(lambda i: L.Dense(20000)(L.Embedding(20000, 128)(i)), "
    "20000, 64)",
    "two LSTMs": "rows((128, 64), lambda i: L.LSTM(128, return_sequences=True)"
    "(L.LSTM(128, return_sequences=True)(i)))",
    "dense layers, relu": "(keras.Sequential([keras.Input((1024,)), *(L.Dense(2048, "
    'activation="relu") for _ in range(3)), L.Dense(10)]), '
    'rng.random((64, 1024), dtype="float32"), 10)',
}
_WITHOUT = {
    "kernels of 3": "convolutions(3)",
    "kernels of 5": "convolutions(5)",
    "kernels of 7": "convolutions(7)",
    "two tables": "two_tables(False)",
    "one table for both": "two_tables(True)",
    "a table and an output": "with_output(False)",
    "a table that is the output": "with_output(True)",
}
_FITS = {
    "fit of arrays": "net.fit(x, y, epochs=2, verbose=0)",
    "fit of arrays, a quarter split off": "net.fit(x, y, validation_split=0.25, epochs=2, "
    "verbose=0)",
    "fit of rows, a quarter split off": "net.fit(Rows(np.random.permutation(1200)), "
    "validation_data=Rows(np.arange(1200, 1600)), epochs=2, verbose=0)",
}


def _programs() -> Iterator[tuple[str, str]]:
    """Yield what is measured, and the program that prints its bytes."""
    for name, net in {**_WITH_XLA_TOO, **_WITHOUT}.items():
        yield name, f"{_BEGIN}net, x, classes = {net}\njit = False\n{_TRAIN}"
    for name, net in _WITH_XLA_TOO.items():
        yield f"{name}, with XLA", f"{_BEGIN}net, x, classes = {net}\njit = True\n{_TRAIN}"
    for name, fit in _FITS.items():
        yield name, _FIT.format(fit=fit)


def _peak_bytes(program: str) -> int:
    child = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    return int(child.stdout.split()[-1])


def main(wanted: Sequence[str]) -> int:
    """Measure the nets, print and (where it was all of them) write what came out."""
    if os.environ.get("BENCH_QUICK") == "1":
        wanted = ["kernels of 3"]
    found = {}
    for name, program in _programs():
        if not wanted or name in wanted:
            found[name] = _peak_bytes(program)
            print(f"{name}: {format_bytes(found[name])}", flush=True)
    if not wanted:
        RESULTS.write_text(json.dumps({"peak_bytes": found}, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
