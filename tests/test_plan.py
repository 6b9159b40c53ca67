"""The peak of any batch size, asked for as a user would, in a process like a user's kernel."""

from itertools import pairwise
from typing import Any

import pytest
from children import ARENA, run_after_import, run_python

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.slow_once]

KERNEL = """
import glob, os, pickle, random, signal, sys, tempfile, time
import keras, numpy as np, psutil, tensorflow as tf
import oommagic
from keras import layers

MB = 2**20

def make_model(optimizer="adam", **how):
    model = keras.Sequential([
        keras.Input((32, 32, 3)),
        layers.Conv2D(16, 3, activation="relu", name="eyes"),
        layers.Conv2D(16, 3, activation="relu", name="more_eyes"),
        layers.BatchNormalization(),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(10, name="head"),
    ])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], **how)
    return model

def refusal(*asked, asking=oommagic.plan, **how):
    try:
        found = asking(*asked, progress=quiet, **how)
    except oommagic.errors.OommagicError as error:
        return str(error)
    return f"made {found}"

def quiet(text):
    said.append(text)

def run_out():
    where = "/job:localhost/replica:0/task:0/device:CPU:0 by allocator bfc_cpu_allocator_for_gpu"
    text = f"OOM when allocating tensor with shape[9] and type float on {where}"
    raise tf.errors.ResourceExhaustedError(None, None, text)

def left():
    here = psutil.Process()
    return {
        "children": [child.pid for child in here.children(recursive=True)],
        "files": sorted(glob.glob(f"{tempfile.gettempdir()}/oommagic-{os.getpid()}-*")),
        "descriptors": here.num_fds(),
    }

def state(model):
    return {
        "weights": [weight.tobytes() for weight in model.get_weights()],
        "slots": [np.array(one).tobytes() for one in model.optimizer.variables],
        "metrics": [np.array(one).tobytes() for one in model.metrics_variables],
        "random": [random.getstate(), np.random.get_state()[1].tobytes()],
        "functions": [id(model.train_function), id(model.predict_function)],
        "trainable": [layer.trainable for layer in model.layers],
        "attributes": sorted(vars(model)),
    }

said = []
"""

MADE = (
    KERNEL
    + """
model = make_model()
model.layers[0].trainable = False
model.fit(np.random.rand(16, 32, 32, 3), np.zeros(16), verbose=0)
before, fresh = state(model), left()
plan = oommagic.plan(model, limit="256MB", progress=quiet)
told["untouched"] = state(model) == before
told["left"] = left() == fresh
told["said"] = said
told["sizes"] = [1, 2, 5, 8, 21, 64, 100, 300]
told["peaks"] = [plan.peak_bytes(n) for n in told["sizes"]]
told["ranges"] = [plan.range_bytes(n) for n in told["sizes"]]
told["max"] = [plan.max_batch(), plan.max_batch(512 * MB), plan.max_batch(limit_bytes=MB)]
forecast = plan.forecast
told["at most"] = [plan.max_batch(64 * 2**40), forecast.rows[-1].batch]
told["forecast"] = [forecast.limit_bytes, forecast.max_batch, list(forecast.ran)]
told["kinds add up"] = all(sum(row.kinds.values()) == row.peak_bytes for row in forecast.rows)
composition = plan.composition(64)
told["holdings"] = sum(holding.bytes for holding in composition.holdings)
told["total"] = composition.total_bytes
told["layers"] = sorted({holding.layer for holding in composition.holdings})
told["weights"] = sum(h.bytes for h in composition.holdings if h.kind == "weights")
told["parameters"] = model.count_params() * 4
told["in a line"] = repr(plan)
told["too large"] = None
try:
    plan.peak_bytes(10**9)
except oommagic.errors.PlanError as error:
    told["too large"] = str(error)

asked = lambda text: os.kill(os.getpid(), signal.SIGINT) if text.startswith("running") else None
try:
    oommagic.plan(model, progress=asked)
except KeyboardInterrupt:
    told["interrupted"] = [state(model) == before, left() == fresh]
"""
)

OTHERWISE = (
    KERNEL
    + """
model = make_model()
told["predict"] = oommagic.plan(model, predict=True, limit="256MB", progress=quiet).max_batch()
told["proven"] = oommagic.max_batch(model, limit="256MB", progress=quiet)

def large_step(x):
    if len(x) > 5:
        run_out()
    return tf.reduce_sum(x * 2.0)

plan = oommagic.plan(large_step, (tf.zeros((8, 1000)),), progress=quiet)
told["large"] = [plan.forecast.ran, plan.peak_bytes(4)]
"""
)

REFUSED = (
    KERNEL
    + """
images, labels = np.zeros((8, 32, 32, 3), "float32"), np.zeros(8)
model = make_model()
plain = keras.Sequential([layers.Dense(1)])
unbuilt = keras.Sequential([layers.Dense(1)])
unbuilt.compile("sgd", "mse")
lossless = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
lossless.compile("sgd")
any_length = keras.Sequential([keras.Input((None,)), layers.Embedding(9, 4), layers.LSTM(4)])
any_length.compile("sgd", "mse")
empty = tf.data.Dataset.from_tensor_slices((images, labels)).take(0).batch(4)

class Older:
    def fit(self, x, y):
        return self(x)

    def __call__(self, x):
        return tf.reduce_mean(x)

told["not compiled"] = refusal(plain, (np.zeros((8, 4)), labels))
told["not built"] = refusal(unbuilt)
told["no loss"] = refusal(lossless)
told["unknown length"] = refusal(any_length)
told["lengths differ"] = refusal(model, (images, labels[:3]))
told["no rows"] = refusal(model, (images[:0], labels[:0]))
told["empty dataset"] = refusal(model, empty)
told["no model"] = refusal(3)
told["a step without arguments"] = refusal(lambda x: x)
told["two limits"] = refusal(model, limit="1GB", like="T4")
told["unknown card"] = refusal(model, like="Q9")
told["a card's number"] = refusal(model, like=5)
told["no size"] = refusal(model, limit="much")
told["a model of Keras 2"] = refusal(Older(), (images, labels))
told["no limit to prove under"] = refusal(model, asking=oommagic.max_batch)
told["another error"] = refusal(lambda x: [][1], batch=(tf.zeros((8, 4)),))
told["said nothing"] = said == ["starting a child process"] or said
"""
)

HERE = (
    KERNEL
    + """
model = make_model("sgd")
taken = tf.ones((25, MB))
plan = oommagic.plan(model, progress=quiet)
told["limit"] = plan.forecast.limit_bytes
told["notes"] = list(plan.forecast.notes)
batch = plan.max_batch()
info = tf.config.experimental.get_memory_info
for size in (64, batch):  # after a larger one a step is handed pieces that it left
    tf.config.experimental.reset_memory_stats("CPU:0")
    for _ in range(3):
        model.train_on_batch(np.zeros((size, 32, 32, 3)), np.zeros(size))
    told[f"measured {size}"] = info("CPU:0")["peak"]
told["batch"] = batch
told["predicted"] = plan.peak_bytes(64)
told["taken"] = 100 * MB
"""
)


OWN_STEP_HERE = (
    KERNEL
    + """
taken = tf.ones((25, MB))
weights = tf.Variable(tf.ones((16, MB)))

def step(x):
    weights.assign_add(tf.ones((16, MB)) * tf.reduce_sum(x))

plan = oommagic.plan(step, (tf.ones((8, 100)),), progress=quiet)
told["left out"] = 256 * MB - plan.forecast.limit_bytes
in_use = tf.config.experimental.get_memory_info("CPU:0")["current"]
told["others"] = in_use - 64 * MB

many = (n for n in range(9))

def too_large_step(x):
    next(many)
    run_out()

told["too large"] = refusal(too_large_step, (tf.zeros((8, 100)),))
"""
)


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return run_python(MADE)


@pytest.fixture(scope="module")
def otherwise() -> dict[str, Any]:
    return run_after_import(OTHERWISE)


@pytest.fixture(scope="module")
def refused() -> dict[str, Any]:
    return run_after_import(REFUSED)


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    return run_after_import(HERE, ARENA)


def test_the_model_is_as_it_was_to_the_bit_and_nothing_is_left(made: dict[str, Any]) -> None:
    assert made["untouched"]
    assert made["left"]


def test_a_much_larger_batch_takes_more(made: dict[str, Any]) -> None:
    assert all(smaller < larger for smaller, larger in pairwise(made["peaks"][3::2]))


def test_the_peak_lies_in_its_range_which_rises_from_small_sizes_to_large_ones(
    made: dict[str, Any],
) -> None:
    for peak, (low, high) in zip(made["peaks"], made["ranges"], strict=True):
        assert low <= peak <= high
    # Neighbours may take turns: at one size the pieces fit better into what is free.
    far_apart = [made["ranges"][made["sizes"].index(size)] for size in (2, 21, 100, 300)]
    for smaller, larger in pairwise(far_apart):
        assert smaller[0] < larger[0]
        assert smaller[1] < larger[1]


def test_the_largest_batch_grows_with_the_limit_and_is_none_below_the_weights(
    made: dict[str, Any],
) -> None:
    fits, fits_twice_as_much, fits_nothing = made["max"]
    assert fits_nothing == 0
    assert 1.7 * fits < fits_twice_as_much < 2.6 * fits
    assert made["forecast"][:2] == [256 * 2**20, fits]


def test_the_largest_batch_is_one_that_was_looked_at(made: dict[str, Any]) -> None:
    largest, last_row = made["at most"]
    assert largest == last_row


def test_the_batch_is_proven_by_real_steps(made: dict[str, Any], otherwise: dict[str, Any]) -> None:
    assert 0.8 * made["max"][0] <= otherwise["proven"] <= 1.25 * made["max"][0]


def test_predicting_takes_less_than_training(
    made: dict[str, Any], otherwise: dict[str, Any]
) -> None:
    assert otherwise["predict"] > made["max"][0]


def test_what_fills_the_device_is_told_by_layer_and_adds_up(made: dict[str, Any]) -> None:
    assert made["kinds add up"]
    assert made["holdings"] == made["total"]
    assert {"eyes", "more_eyes", "head"} <= set(made["layers"])
    assert made["weights"] == pytest.approx(made["parameters"], rel=0.01)


def test_progress_is_told_on_the_way(made: dict[str, Any]) -> None:
    assert made["said"][0] == "starting a child process"
    assert made["said"][-1] == "working out the peak of every batch size"
    assert any(text.startswith("running steps at batch") for text in made["said"])


def test_a_plan_says_itself_in_a_line(made: dict[str, Any]) -> None:
    assert made["in a line"].startswith("<Plan of sequential: ")
    assert "for each sample" in made["in a line"]
    assert "was not looked at" in made["too large"]


def test_an_interrupt_leaves_no_child_no_file_and_no_changed_state(made: dict[str, Any]) -> None:
    assert made["interrupted"] == [True, True]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("not compiled", "is not compiled: call model.compile(optimizer, loss) first"),
        ("not built", "is not built, so its shapes are not known: pass a batch"),
        ("no loss", "has no loss: give one"),
        ("unknown length", "pass a batch"),
        ("lengths differ", "different lengths (3 and 8)"),
        ("no rows", "The batch has no rows"),
        ("empty dataset", "The dataset is empty"),
        ("no model", "int is no model of Keras 3"),
        ("a step without arguments", "What the step is called with is not known"),
        ("a model of Keras 2", "Older is no model of Keras 3"),
        ("no limit to prove under", "There is no limit to prove a batch under"),
        ("two limits", "Ask for one thing"),
        ("unknown card", "There is no figure for a card called 'Q9'"),
        ("a card's number", "There is no figure for a card called 5"),
        ("no size", "much"),
        ("another error", "not for want of memory: IndexError: list index out of range"),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_sentence(
    refused: dict[str, Any], asked: str, said: str
) -> None:
    assert said in refused[asked]
    assert not refused[asked].startswith("made")


@pytest.fixture(scope="module")
def own_step_here() -> dict[str, Any]:
    return run_after_import(OWN_STEP_HERE, ARENA)


def test_what_a_step_of_ones_own_holds_there_is_not_counted_twice(
    own_step_here: dict[str, Any],
) -> None:
    assert own_step_here["left out"] == pytest.approx(own_step_here["others"], rel=0.1)


def test_a_step_of_which_only_few_samples_fit_is_planned_from_these(
    otherwise: dict[str, Any],
) -> None:
    ran, peak_bytes = otherwise["large"]
    assert ran[0] == 2
    assert max(ran) <= 5
    assert peak_bytes >= 4 * 1000 * 4


def test_a_step_that_does_not_fit_at_all_is_said_to(own_step_here: dict[str, Any]) -> None:
    assert "too_large_step does not fit into what there is here" in own_step_here["too large"]


def test_on_a_training_device_what_else_it_holds_is_left_out(here: dict[str, Any]) -> None:
    assert here["limit"] <= 256 * 2**20 - here["taken"]
    assert any("are left out" in note for note in here["notes"])
    assert here[f"measured {here['batch']}"] <= 256 * 2**20
    assert here["predicted"] + here["taken"] == pytest.approx(here["measured 64"], rel=0.2)
