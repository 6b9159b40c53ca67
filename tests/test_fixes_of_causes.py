"""What the advice says of memory that is not the step's, as TensorFlow, Keras and IPython do it."""

import textwrap
from typing import Any

import pytest
from children import ARENA, run_after_import
from IPython import version_info

from oommagic.explain.advice.engine import findings_of
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import DATA_ON_THE_DEVICE, MODELS_GROW
from oommagic.explain.advice.rules.batch_size_fallback import BatchSizeFallback
from oommagic.explain.advice.rules.data_on_host import DataOnHost
from oommagic.explain.advice.rules.one_model import OneModel
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.slow_once]

RETRY = """
try:
    model.fit(x, y, batch_size=size, epochs=1, verbose=0, shuffle=False)
except tf.errors.ResourceExhaustedError:
    size //= 2
    model.fit(x, y, batch_size=size, epochs=1, verbose=0, shuffle=False)
"""
IN_A_LOOP = """
for fold in range(5):
    model = wide()
    model.fit(rows, rows, verbose=0)
"""
SLICES = "ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(100)\n"


def fixed(cell: str, rule: Any, here: Situation) -> str:
    """Give a cell with what a rule suggests for it."""
    fix = findings_of(TypedCell(cell), here, [rule])[0].fix
    assert fix is not None
    return fix.source


PROGRAM = f"""
import gc
import keras, numpy as np, tensorflow as tf
from keras import layers

def now(what="current"):
    return tf.config.experimental.get_memory_info("CPU:0")[what]

def images():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([
        keras.Input((32, 32, 3)), layers.Conv2D(32, 3, activation="relu"),
        layers.BatchNormalization(), layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(), layers.Dense(10),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

def wide():
    model = keras.Sequential([keras.Input((500,)), layers.Dense(2000), layers.Dense(500)])
    model.compile("adam", "mse")
    return model

x = np.random.default_rng(0).random((512, 32, 32, 3), dtype="float32")
y = np.random.default_rng(1).integers(0, 10, 512)
model, size = images(), 512
before = now()
{fixed(RETRY, BatchSizeFallback(), STEP_OF_96)}
told["size"] = size
told["steps"] = int(model.optimizer.iterations)
told["kept"] = now() - before
again = images()
again.fit(x, y, batch_size=size, epochs=1, verbose=0, shuffle=False)
pairs = zip(model.get_weights(), again.get_weights())
told["difference"] = max(float(np.abs(one - other).max()) for one, other in pairs)
told["steps of another"] = int(again.optimizer.iterations)

{fixed(SLICES, DataOnHost(), DATA_ON_THE_DEVICE)}
told["length"] = len(ds)
rows_by_hand = [(x[at:at + 100], y[at:at + 100]) for at in range(0, len(x), 100)]
told["same rows"] = all(
    np.array_equal(one, mine) and np.array_equal(label, my_label)
    for (one, label), (mine, my_label) in zip(ds.as_numpy_iterator(), rows_by_hand)
)

rows = np.zeros((32, 500), "float32")
start = now()
for fold in range(3):
    model = wide()
    model.fit(rows, rows, verbose=0)
    weights = sum(weight.numpy().nbytes for weight in model.weights)
    del model
    gc.collect()
    keras.utils.clear_session()
told["weights"], told["left by three"] = weights, now() - start
start = now()
{fixed(IN_A_LOOP, OneModel(), MODELS_GROW)}
told["left by one"] = now() - start

layer = layers.Dense(10)

@tf.function
def returns_its_activations(inputs):
    return layer(inputs)

figures = []
for number in range(100):
    returns_its_activations(tf.zeros((1000, 100)))
    figures.append(now())
told["returned"] = [min(figures[2:]), max(figures[2:])]
"""


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    return run_after_import(PROGRAM, ARENA | {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "300"})


def test_a_retry_put_right_ends_as_if_training_had_begun_with_that_batch(
    program: dict[str, Any],
) -> None:
    assert program["size"] == 256
    assert program["difference"] < 1e-6, "one step of Adam moves a weight by 1e-3"
    assert program["steps"] == program["steps of another"] == 2


def test_a_retry_put_right_keeps_nothing_of_the_failed_step(program: dict[str, Any]) -> None:
    assert program["kept"] < 16 * 2**20


def test_rows_from_arrays_are_those_of_the_slices(program: dict[str, Any]) -> None:
    assert program["same rows"]
    assert program["length"] == 6


def test_a_trained_model_stays_though_it_is_deleted_and_the_session_cleared(
    program: dict[str, Any],
) -> None:
    assert program["left by three"] > 3 * 3 * program["weights"] * 0.9


def test_one_model_for_all_turns_leaves_one(program: dict[str, Any]) -> None:
    assert program["left by one"] < 1.5 * 3 * program["weights"]


def test_a_tensor_that_a_step_returns_is_no_leak(program: dict[str, Any]) -> None:
    least, most = program["returned"]
    assert most - least < 1.5 * 2**20


def test_what_ipython_says_of_out_holds_in_a_real_shell() -> None:
    shell = """
        import gc
        from oommagic.magics import open_shell
        shell = open_shell()
        def run(line):
            shell.run_cell(line, store_history=True)
        run("import weakref")
        run("class Large: pass")
        run("one = Large(); told = weakref.ref(one)")
        run("one;")
        run("del one")
        gc.collect()
        told["behind a semicolon"] = shell.user_ns["told"]() is not None
        run("three = Large(); told = weakref.ref(three)")
        run("three")
        run("number = max(Out)")
        run("del three")
        for small in range(3):
            run("0")
        run(f"%xdel _{shell.user_ns['number']}")
        gc.collect()
        told["deleted by number"] = shell.user_ns["told"]() is not None
        run("one = Large(); told = weakref.ref(one)")
        run("one")
        run("del one")
        run("Out.clear()")
        gc.collect()
        told["cleared"] = shell.user_ns["told"]() is not None
        run("two = Large(); told = weakref.ref(two)")
        run("two")
        run("del two")
        for small in range(3):
            run("0")
        gc.collect()
        told["kept"] = shell.user_ns["told"]() is not None
        run("%reset -f out")
        gc.collect()
        told["reset"] = shell.user_ns["told"]() is not None
    """
    assert run_after_import(textwrap.dedent(shell)) == {
        "behind a semicolon": False,
        "cleared": True,
        "kept": True,
        "reset": version_info[0] < 8,  # IPython 7 leaves `_4` where it is
        "deleted by number": False,
    }
