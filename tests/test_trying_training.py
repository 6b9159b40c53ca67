"""Trials of cells that train, from a real shell with a training device."""

import re

import pytest
from children import ROOT, run_after_import, run_python

pytestmark = pytest.mark.slow_once

KERNEL = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import dataclasses, os, tempfile
os.chdir(tempfile.mkdtemp())
from test_trying import finding
import oommagic
from oommagic.magics import open_shell
from oommagic.trying import try_fixes
oommagic.use_device("100MB")
shell = open_shell()
def run(cell):
    shell.run_cell(cell).raise_error()
def tried(cell, *changes, numbers=None, run_first=True, **how):
    shell.run_cell("%%oomprofile -q\\n" + (cell if run_first else "pass"))
    report = dataclasses.replace(oommagic.last_report(), source=cell)
    report = dataclasses.replace(report, findings=[finding(cell, *one) for one in changes])
    trials = try_fixes(report, shell.user_ns, numbers, progress=told.setdefault("lines", []).append,
                       **how)
    return [dataclasses.asdict(trial) for trial in trials]
run('''
import keras, numpy as np, tensorflow as tf
x, y = np.random.rand(640, 32).astype("float32"), np.random.randint(0, 10, 640)
def make():
    model = keras.Sequential([
        keras.Input((32,)), keras.layers.Dense(4096, "relu"), keras.layers.Dense(10)
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
''')
"""

AFTERWARDS = "An error ended the cell behind its training, which was not run in full:"
FIT = """
run("model = make()\\nweights = model.get_weights()\\nvalues = (x[:64], y[:64])")
told["trials"] = tried('''
history = model.fit(
    x, y, batch_size=256, epochs=9, validation_data=values, verbose=2,
    callbacks=[keras.callbacks.CSVLogger("log.csv"), keras.callbacks.ModelCheckpoint("best.keras")],
)
last = history.history["loss"][7]
''', ("256", "64"), ("epochs=9", "epochs=8"), ("256", "4096 if True else 64"), run_first=False,
    steps=5)
told["is_untouched"] = all((a == b).all() for a, b in zip(
    shell.user_ns["weights"], shell.user_ns["model"].get_weights()))
told["has_slots"] = bool(shell.user_ns["model"].optimizer.built)
told["files"] = os.listdir()
"""


def test_a_fit_is_compared_under_the_devices_limit_for_the_same_steps() -> None:
    told = run_python(KERNEL + FIT)
    smaller, same, _ = told["trials"]
    before = smaller["before"]
    assert before == same["before"]
    for run in (before, smaller["after"], same["after"]):
        assert (run["outcome"], run["steps"], run["device"]) == ("finished", 5, "CPU:0")
        assert run["step_s"] > 0
        assert run["loss"] > 0
        assert run["host_peak_bytes"] > 0
    assert same["after"]["loss"] == pytest.approx(before["loss"], rel=1e-3)
    saved = before["device_peak_bytes"] - smaller["after"]["device_peak_bytes"]
    # The relu's output, its gradient and the next layer's are 16 kB for each sample.
    assert saved > 192 * 16_000
    assert smaller["limit_bytes"] == 100 << 20
    assert smaller["notes"] == [
        "CSVLogger was left out: it writes files.",
        "ModelCheckpoint was left out: it writes files.",
        f"{AFTERWARDS} IndexError: list index out of range (in line 6)",
    ]
    assert told["is_untouched"]
    assert told["files"] == []
    assert "the cell as it is, step 5" in told["lines"]


RUNS_OUT = """
run('''
big = np.random.rand(4096, 32).astype("float32")
model = make()
''')
told["trials"] = tried('''
loss = model.train_on_batch(big, np.zeros(4096))
''', ("big, np.zeros(4096)", "big[:64], np.zeros(64)"), run_first=False)
told["broken"] = tried('''
history = model.fit(x, y, epochs=9, verbose=0)
first = history.history["loss"][0]
''', ("[0]", "[8]"), run_first=False, steps=2)
told["many"] = tried('''
for _ in range(1 << 30):
    model.fit(x, y, verbose=0)
''', ("model.fit(x, y", "model.fit(x, y, 64"), run_first=False, steps=2, timeout_s=30)
"""


def test_what_runs_out_does_so_in_the_child_and_the_fixed_cell_runs() -> None:
    told = run_after_import(KERNEL + RUNS_OUT)
    (trial,) = told["trials"]
    assert trial["before"]["outcome"] == "ran out"
    assert "OOM when allocating" in trial["before"]["message"]
    assert trial["after"]["outcome"] == "finished"
    assert trial["after"]["steps"] == 1
    assert trial["after"]["loss"] > 0
    assert 0 < trial["after"]["device_peak_bytes"] < 100 << 20
    (many,) = told["many"]
    assert (many["before"]["outcome"], many["after"]["outcome"]) == ("finished", "finished")
    (note,) = many["notes"]
    assert re.fullmatch(r"The cell was ended after \d+ calls of `fit`: there were more .*", note)
    (broken,) = told["broken"]
    assert (broken["before"]["outcome"], broken["after"]["outcome"]) == ("finished", "failed")
    assert broken["after"]["message"] == "IndexError: list index out of range (in line 3)"


LOOPS = """
run('''
FACTOR = 2.0
rows = tf.data.Dataset.from_tensor_slices({"a": np.arange(600, dtype="float32"), "b": np.ones(600)})
twice = rows.map(lambda row: (row["a"] * FACTOR, row["b"]), num_parallel_calls=tf.data.AUTOTUNE)
pairs = tf.data.Dataset.zip((twice.batch(4), tf.data.Dataset.range(150)))
pairs = pairs.shuffle(1).cache().repeat(2).filter(lambda t, i: i < 900)
pairs = pairs.skip(0).cache("cached").take(280).prefetch(2)
def generate():
    while True:
        yield np.ones((8, 32), "float32"), np.zeros(8, "int64")
endless = tf.data.Dataset.from_generator(generate, output_signature=(
    tf.TensorSpec((8, 32)), tf.TensorSpec((8,), tf.int64)))
model, optimizer = make(), keras.optimizers.SGD()
''')
told["trials"] = tried('''
LR = 0.5
model.fit(endless, steps_per_epoch=3, verbose=0)
@tf.function
def step(a):
    with tf.GradientTape() as tape:
        value = tf.reduce_mean(model(tf.ones((2, 32))) ** 2) + tf.reduce_mean(a)
    gradients = tape.gradient(value, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return value
seen = []
for (a, b), number in pairs:
    assert a.numpy().tolist() == [2.0 * (4 * int(number) + i) for i in range(4)], a
    loss = step(a)
    seen.append(loss)
raise AssertionError("the loop goes on")
''', ("0.5", "0.25"), run_first=False, steps=6)
run('''
with tf.io.TFRecordWriter("records") as file:
    for one in (b"a", b"b", b"c"):
        file.write(one)
records = tf.data.TFRecordDataset("records").batch(2)
ranges = tf.data.Dataset.range(1, 3).interleave(lambda n: tf.data.Dataset.range(n))
ones = tf.data.Dataset.range(1, 3).flat_map(lambda n: tf.data.Dataset.from_tensors(n).repeat(n))
ended = tf.data.Dataset.from_generator(lambda: iter([1.0]), output_signature=tf.TensorSpec(()))
writer = tf.summary.create_file_writer("logs")
checkpoint = tf.train.Checkpoint(model=model)
''')
told["predicted"] = tried('''
with writer.as_default():
    tf.summary.write("a", 1.0, step=1)
checkpoint.restore(checkpoint.save("saved")).assert_consumed()
assert [one.numpy().tolist() for one in records] == [[b"a", b"b"], [b"c"]]
assert [[int(one) for one in some] for some in (ranges, ones)] == [[0, 0, 1], [1, 2, 2]]
assert sum(len(one) for one in ended.batch(1000)) > 1
out = model.predict(x, batch_size=32, verbose=0)
for number in range(9):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x[:4]))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
assert len(out) == 640, len(out)
''', ("32,", "32 ,"), run_first=False, steps=4)
run("short = endless.batch(2).map(lambda a, b: a).padded_batch(2)")
try:
    tried("for one in short: pass\\n", ("pass", "print(one)"), run_first=False)
except oommagic.errors.CannotTravelError as error:
    told["refused"] = str(error)
"""


def test_loops_of_ones_own_end_after_their_steps_with_the_data_that_they_had() -> None:
    told = run_after_import(KERNEL + LOOPS)
    (trial,) = told["trials"]
    for run in (trial["before"], trial["after"]):
        assert (run["outcome"], run["message"], run["steps"]) == ("finished", "", 6)
        assert run["loss"] > 0
    (note,) = (one for one in trial["notes"] if "zeros of the same shapes" in one)
    assert note.startswith("In place of endless, whose making cannot be sent"), "pairs can"
    (predicted,) = told["predicted"]
    assert (predicted["after"]["outcome"], predicted["after"]["message"]) == ("finished", "")
    assert predicted["after"]["steps"] == 4
    assert "`short`, a tf.data.Dataset, cannot be sent" in told["refused"]
