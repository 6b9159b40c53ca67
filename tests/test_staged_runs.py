"""Each cause staged for real: a kernel runs out of memory, and is told why."""

from dataclasses import replace

import pytest
from staging import PROFILE, SMALL_HOST, Ended, run_cells

from oommagic.explain.facts import Facts
from oommagic.explain.verdict import verdict_of
from oommagic.report import DeviceMemory, Failure, Gpu, Profile
from oommagic.tf.failures import failure_from_text
from oommagic.units import GIB, MIB

pytestmark = pytest.mark.long

CNN = """
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(0)
def cnn():
    model = keras.Sequential([
        keras.Input((64, 64, 3)),
        keras.layers.Conv2D(32, 3, activation="relu", padding="same", name="first"),
        keras.layers.Conv2D(64, 3, activation="relu", padding="same", name="second"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(10, name="last"),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
x, y = np.zeros((512, 64, 64, 3), "float32"), np.zeros(512, "int32")
model = cnn()
"""


def ruled_out(ended: Ended, cause: str) -> str:
    """Give the reason for which a cause was ruled out."""
    return next((reason for name, reason in ended.ruled_out if name == cause), "")


# ---- The step is too big ------------------------------------------------------------------------


def test_a_batch_that_is_too_big_is_named_with_its_layer() -> None:
    fit = "model.fit(x, y, batch_size=256, verbose=0)"
    _, late, recorded = run_cells(CNN, fit, PROFILE + fit)
    assert not late.was_loaded
    for ended in (late, recorded):
        assert ended.cause == "step too big"
        assert ended.line_source == fit
        assert ended.layer in {"first", "second"}
        assert "at batch size 256" in ended.sentence
        assert ended.sentence in " ".join(ended.why.split())


# ---- Something grows ----------------------------------------------------------------------------

LOSSES = """
import tensorflow as tf
x = tf.random.normal((2048, 128))
w = tf.Variable(tf.random.normal((128, 64)))
@tf.function
def step(x):
    return (x @ w) ** 2
"""
KEEPING_LOSSES = """
losses = []
for number in range(2000):
    loss = step(x)
    losses.append(loss)
"""


def test_a_list_that_keeps_the_losses_of_hundreds_of_steps_is_growth() -> None:
    _, late, recorded = run_cells(LOSSES, KEEPING_LOSSES, PROFILE + KEEPING_LOSSES, device_mb=128)
    assert not late.was_loaded
    for ended in (late, recorded):
        assert (ended.cause, ended.owner) == ("growth", "losses")
        assert ended.line_source == "losses.append(loss)"
        assert "It grows by 512 KB with each step" in ended.sentence
    assert recorded.confidence == "certain"


def test_what_a_callback_keeps_of_each_of_hundreds_of_steps_is_growth() -> None:
    keep = """
    model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(500), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    states = []
    class Keep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            states.append(model.layers[0].kernel * 1.0)
    inputs, targets = np.zeros((32000, 100), "float32"), np.zeros((32000, 1), "float32")
    model.fit(inputs, targets, verbose=0, callbacks=[Keep()])
    """
    _, recorded = run_cells(CNN, keep, device_mb=64, profiled=True)
    assert (recorded.cause, recorded.owner) == ("growth", "states")
    assert recorded.line_source == "states.append(model.layers[0].kernel * 1.0)"


MODELS = """
import keras, numpy as np
def build(units):
    return keras.Sequential(
        [keras.Input((1000,)), keras.layers.Dense(units), keras.layers.Dense(1)]
    )
data, target = np.zeros((64, 1000), "float32"), np.zeros((64, 1), "float32")
"""
A_MODEL_EACH_TIME = """
results = []
for units in range(1000, 2000, 20):
    model = build(units)
    model.compile("adam", "mse")
    results.append(model.fit(data, target, verbose=0))
"""


def test_a_model_built_in_each_iteration_and_kept_by_its_history_is_growth() -> None:
    _, late = run_cells(MODELS, A_MODEL_EACH_TIME, device_mb=160)
    _, recorded = run_cells(MODELS, A_MODEL_EACH_TIME, device_mb=160, profiled=True)
    assert not late.was_loaded
    for ended in (late, recorded):
        assert (ended.cause, ended.owner) == ("growth", "results")
        assert ended.line_source.startswith("results.append(")
        assert "`results` keeps models of each" in ended.sentence


RETRACED = """
import numpy as np, tensorflow as tf
table = np.random.rand(512, 1024).astype("float32")
@tf.function
def step(x, scale):
    return tf.reduce_sum(x @ tf.constant(table)) * scale
"""


def test_a_function_called_with_python_numbers_is_growth() -> None:
    loop = """
    total = 0.0
    for number in range(500):
        batch = tf.random.normal((1000, 512))
        total += float(step(batch, number * 0.5))
    """
    _, recorded = run_cells(RETRACED, loop, device_mb=64, profiled=True)
    assert recorded.cause == "growth"
    assert "step was traced" in recorded.sentence
    assert "for each new Python value" in recorded.sentence


def test_a_cell_that_leaves_more_with_each_run_is_growth() -> None:
    cell = PROFILE + "features = tf.random.normal((2000, 1000))\nkept.append(features @ weights)\n"
    begin = "import tensorflow as tf\nweights, kept = tf.random.normal((1000, 1000)), []"
    runs = run_cells(begin, *[cell] * 11, device_mb=100, until_failure=True)
    assert [ended.cause for ended in runs[1:-1]] == ["none"] * (len(runs) - 2)
    assert (runs[-1].cause, runs[-1].owner) == ("growth", "kept")
    assert runs[-1].line_source == "kept.append(features @ weights)"


def test_a_tensor_that_a_step_returns_is_no_growth() -> None:
    begin = """
    import tensorflow as tf
    x = tf.random.normal((2048, 1000))
    w = tf.Variable(tf.random.normal((1000, 500)))
    @tf.function
    def leaky_train_step(x):
        with tf.GradientTape() as tape:
            activations = x @ w
            loss = tf.reduce_mean(activations ** 2)
        w.assign_sub(0.01 * tape.gradient(loss, w))
        return activations
    """
    _, calm = run_cells(
        begin,
        "for number in range(500):\n    leaky_train_step(x)",
        device_mb=40,
        profiled=True,
    )
    assert calm.cause == "none"
    assert not any("grows" in line for line in calm.evidence)
    assert calm.sentence.startswith("Nothing ran out; the peak of CPU:0 was")


# ---- What was there before ----------------------------------------------------------------------


def test_an_old_model_and_its_tensors_are_named_as_left_behind() -> None:
    begin = (
        CNN
        + """
old_model = keras.Sequential(
    [keras.Input((2000,)), keras.layers.Dense(3000), keras.layers.Dense(1)]
)
old_model.compile("adam", "mse")
old_model.fit(np.zeros((8, 2000), "float32"), np.zeros((8, 1)), verbose=0)
embeddings = tf.random.normal((2000, 1000))
"""
    )
    fit = "model.fit(x, y, batch_size=32, verbose=0)"
    _, late, recorded = run_cells(begin, fit, PROFILE + fit, device_mb=200)
    assert not late.was_loaded
    for ended in (late, recorded):
        assert (ended.cause, ended.owner) == ("left behind", "old_model")
        assert ended.line_source == fit
        assert "`embeddings`" in ended.sentence


def test_a_data_set_that_lies_on_the_device_is_named() -> None:
    begin = CNN + "photos, labels = np.zeros((100, 64, 64, 3), 'float32'), np.zeros(1000, 'int32')"
    fit = """
    images = tf.concat([tf.constant(photos)] * 10, axis=0)
    model.fit(images, labels, batch_size=32, verbose=0)
    """
    _, late = run_cells(begin, fit, device_mb=150)
    _, recorded = run_cells(begin, fit, device_mb=150, profiled=True)
    assert not late.was_loaded
    for ended in (late, recorded):
        assert (ended.cause, ended.owner) == ("data on the device", "images")
        assert ended.line_source == "model.fit(images, labels, batch_size=32, verbose=0)"


PHOTOS = """
photos = tf.data.Dataset.range(20_000).map(
    lambda number: tf.fill((256, 256, 3), tf.cast(number, tf.float32))
)
"""


def test_a_buffer_of_the_data_set_that_fills_the_device_is_named() -> None:
    loop = "for batch in photos.shuffle(10000).batch(8):\n    pass\n"
    _, recorded = run_cells(f"import tensorflow as tf\n{PHOTOS}", loop, profiled=True)
    assert (recorded.cause, recorded.owner) == ("data on the device", "photos")
    assert "`photos.shuffle(10000)` has taken" in recorded.sentence
    assert recorded.line_source.startswith("for batch in photos.shuffle(10000)")


def test_memory_in_pieces_is_fragmentation() -> None:
    begin = """
    import tensorflow as tf
    pieces = [tf.ones((1024, 1024)) for _ in range(55)]
    kept = pieces[::2]
    del pieces
    """
    ask = "big = tf.zeros((16, 1024, 1024))"
    _, late, recorded = run_cells(begin, ask, PROFILE + ask)
    assert not late.was_loaded
    assert (recorded.cause, recorded.confidence) == ("fragmentation", "certain")
    assert (late.cause, late.confidence) == ("fragmentation", "likely")
    assert late.line_source == recorded.line_source == ask


# ---- Validation and prediction ------------------------------------------------------------------


def test_validation_and_prediction_in_larger_batches_are_told_from_training() -> None:
    validate = """
    model.fit(x[:64], y[:64], batch_size=8, verbose=0,
              validation_data=(x, y), validation_batch_size=256)
    """
    predict = """
    model.fit(x[:64], y[:64], batch_size=8, verbose=0)
    outputs = model.predict(x, batch_size=512, verbose=0)
    """
    _, late, recorded = run_cells(CNN, validate, PROFILE + predict)
    assert not late.was_loaded
    assert (late.cause, recorded.cause) == ("evaluation", "evaluation")
    assert late.sentence.startswith("Validation is too big for CPU:0, where an epoch")
    assert "at batch size 256" in late.sentence
    assert recorded.sentence.startswith("Prediction is bigger than training, whose peak was")
    assert recorded.line_source.startswith("outputs = model.predict(")
    assert {late.layer, recorded.layer} <= {"first", "second"}


# ---- Host memory --------------------------------------------------------------------------------


def test_arrays_that_no_host_has_room_for_are_named_by_the_call_that_makes_them() -> None:
    begin = """
    import keras, numpy as np, tensorflow as tf
    labels = np.zeros(10_000_000, "int32")
    photos = np.broadcast_to(np.float32(0), (10_000_000, 224, 224, 3))
    photo = np.zeros((1024, 1024, 3), "float32")
    files = [photo] * 1_000_000
    """
    cells = (
        "targets = keras.utils.to_categorical(labels, 1_000_000)",
        "scaled = photos.astype('float64')",
        "images = np.array(files)",
        "data = tf.data.Dataset.from_tensor_slices(photos)",
    )
    words = ("a one-hot array", "an array of float64", "an array that copies", "copies the whole")
    _, *late = run_cells(begin, *cells, device_mb=None)
    _, *recorded = run_cells(begin, *cells, device_mb=None, profiled=True)
    assert not late[0].was_loaded
    for ended, cell, said in zip([*late, *recorded], cells * 2, words * 2, strict=True):
        assert ended.cause == "host memory"
        assert ended.line_source == cell
        assert said in ended.sentence


@pytest.mark.parametrize("call", ["cache()", "shuffle(10000)"])
def test_a_buffer_that_fills_a_small_host_is_named(call: str) -> None:
    warm_up = "for batch in photos.take(64).shuffle(8).cache().batch(8):\n    pass\n"
    begin = f"import tensorflow as tf\n{SMALL_HOST}{PHOTOS}{warm_up}"
    cell = f"""
    with small_host(600):
        for batch in photos.{call}.batch(8):
            pass
    """
    _, recorded = run_cells(begin, cell, device_mb=None, profiled=True)
    assert recorded.cause in {"host memory", "growth"}
    assert f"`photos.{call}`" in recorded.sentence
    assert recorded.cause == "growth" or "data segment (ulimit) is " in recorded.sentence


def test_a_limit_that_was_set_on_the_process_is_told_from_the_machines_memory() -> None:
    begin = f"import numpy as np\n{SMALL_HOST}\nlimit = small_host(300)\nlimit.__enter__()"
    ask = "images = np.ones((1000, 256, 256, 3), 'float32')"
    _, late, recorded = run_cells(begin, ask, PROFILE + ask, device_mb=None)
    for ended in (late, recorded):
        assert ended.cause == "a limit"
        assert "limit on its data segment (ulimit)" in ended.sentence
        assert ended.line_source == ask


# ---- What cannot be staged without a GPU --------------------------------------------------------


def test_another_process_on_the_card_is_told_from_values_alone() -> None:
    failure = Failure(
        "allocation", "device", "OOM", device="GPU:0", asked_bytes=GIB, in_use_bytes=GIB,
        limit_bytes=3 * GIB // 2, layer="conv", line_number=1, line_source="fit()",
    )  # fmt: skip
    verdict = verdict_of(
        Facts(
            failure=failure,
            source="fit()",
            profile=Profile(()),
            devices=(DeviceMemory("GPU:0", 0, GIB, GIB, 3 * GIB // 2),),
            gpus=(Gpu(0, "T4", total_bytes=15 * GIB, used_by_others_bytes=13 * GIB),),
        )
    )
    assert verdict.cause == "another process"
    assert "other processes hold 13.0 GB of its 15.0 GB" in verdict.sentence


# A step that runs out while XLA compiles it ends the process on the training device: no staged run
# could be asked about it. These are the errors that a GPU raises.


def test_scratch_memory_that_a_library_could_not_get_is_told_from_values_alone() -> None:
    failure = Failure(
        "scratch", "device", "cuDNN", device="GPU:0", asked_bytes=900 * MIB, layer="conv"
    )
    verdict = verdict_of(Facts(failure=failure, source="model.fit(x)"))
    assert (verdict.cause, verdict.layer) == ("compiling", "conv")


def test_a_compiler_that_finds_no_room_is_told_from_its_text_alone() -> None:
    text = "Failed to allocate request for 2.40GiB (2576980378B) on device ordinal 0"
    failure = failure_from_text("InternalError", text)
    assert failure is not None
    device = DeviceMemory("GPU:0", 0, 13 * GIB, 13 * GIB, 14 * GIB)
    trying = replace(failure, in_use_bytes=13 * GIB, limit_bytes=14 * GIB)
    stack = ("fit", "compile_or_get", "autotune")
    verdict = verdict_of(Facts(failure=trying, source="fit()", devices=(device,), stack=stack))
    assert verdict.cause == "compiling"
    assert "while it tried which kernel is fastest" in verdict.sentence


# ---- Nothing ran out ----------------------------------------------------------------------------


def test_a_cell_that_fits_is_told_its_peak_and_its_line() -> None:
    fit = "model.fit(x, y, batch_size=8, verbose=0)"
    _, calm, other = run_cells(CNN, PROFILE + fit, "1 / 0")
    assert calm.cause == "none"
    assert calm.sentence.startswith("Nothing ran out; the peak of CPU:0 was")
    assert calm.line_source == fit
    assert other.cause == "none"
    assert "ZeroDivisionError is not about memory" in other.sentence
