"""Real steps on a training device: what they record, and that a model is left as it was."""

from collections.abc import Iterator
from typing import Any

import pytest
from children import ARENA, Conversation, talk_to_python

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.both_ends]

_SETTING = """
import copy, gc, glob, os, random, signal, tempfile, threading, time, traceback, _thread
import numpy as np, tensorflow as tf, keras
from keras import layers as L
from keras.src.backend.common import global_state
from tensorflow.python.eager import context
from oommagic.errors import PlanError
from oommagic.tf import profiler, steps
from oommagic.tf.left_as_it_was import left_as_it_was
from oommagic.tf.sampling import sample_of

tf.random.set_seed(1)
tf.random.get_global_generator()

def silent(words):
    pass

def record(subject, data, task="training", budget_s=0.2, **more):
    return steps.record(subject, sample_of(subject, data, task), task, silent, budget_s, **more)

def adds_up(tape):
    now = tape.before_bytes
    for size, in_use in zip(tape.bytes, tape.in_use_bytes):
        now += size
        if now != in_use:
            return False
    return True

def facts_of(tapes):
    return {
        "title": tapes.title, "task": tapes.task, "device": tapes.device,
        "limit": tapes.limit_bytes, "is_arena": tapes.is_arena,
        "sizes": [step.batch for step in tapes.steps],
        "events": [len(step.tape.bytes) for step in tapes.steps],
        "adds_up": all(adds_up(step.tape) for step in tapes.steps),
        "row_bytes": sum(tapes.row_bytes),
        "largest": [[s.batch, max(s.tape.requested_bytes)] for s in tapes.steps],
        "compiled": [[size.batch, size.temporary_bytes] for size in tapes.compiled],
        "held": [[size.batch, sum(one.bytes for one in size.held)] for size in tapes.compiled],
        "notes": tapes.notes,
    }

def sentence_of(call):
    try:
        call()
    except PlanError as error:
        return str(error)
    return ""

def value(variable):
    return variable.numpy().tobytes()

def every_object(thing, seen):
    # All that Keras keeps of a model, by identity: attributes, and what is in their containers.
    if id(thing) in seen:
        return
    if isinstance(thing, dict):
        seen[id(thing)] = [(repr(key), id(each)) for key, each in thing.items()]
        inner = list(thing.values())
    elif isinstance(thing, (list, tuple, set)):
        inner = list(thing)
        order = sorted if isinstance(thing, set) else list
        seen[id(thing)] = order(id(each) for each in inner)
    elif type(thing).__module__.startswith(("keras.", "__main__")) and hasattr(thing, "__dict__"):
        inner = list(vars(thing).values())
        seen[id(thing)] = [(name, id(each)) for name, each in vars(thing).items()]
    else:
        return
    for each in inner:
        every_object(each, seen)

def state(*models):
    objects, variables = {}, []
    for model in models:
        every_object(model, objects)
        variables += [*model.variables, *model.metrics_variables]
        if model.optimizer is not None:
            variables += model.optimizer.variables
    names = global_state.get_global_attribute("object_name_uids") or {}
    drawn = global_state.get_global_attribute("global_seed_generator")
    return {
        "values": [value(variable.value) for variable in variables],
        "objects": objects,
        "random": repr((random.getstate(), np.random.get_state())),
        "tensorflow": value(tf.random.get_global_generator().state),
        "operations": repr(context.context()._rng.getstate()),
        "keras": None if drawn is None else value(drawn.state),
        "names": dict(names),
        "handler": repr(signal.getsignal(signal.SIGINT)),
    }

def changed(before, after):
    return [name for name in before if before[name] != after[name]]

def cnn(**how):
    model = keras.Sequential([
        keras.Input((12, 12, 3)), L.RandomFlip(), L.Conv2D(6, 3, activation="relu"),
        L.BatchNormalization(), L.Flatten(), L.Dropout(0.3), L.Dense(10),
    ], name="eyes")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(how.pop("optimizer", "adam"), loss, metrics=["accuracy"], **how)
    return model, (np.random.rand(16, 12, 12, 3), np.random.randint(0, 10, 16))

class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = {"wide": L.Dense(8)}
        self.rest = [L.Dense(4), L.Dense(2)]
        self.calls, self.seen, self.count = tf.Variable(1.0), [], 0

    @tf.function
    def count_call(self, x):
        self.count += 1
        self.seen.append(self.count)
        self.calls.assign_add(1.0)
        return x

    def call(self, x):
        x = self.first["wide"](self.count_call(x))
        for layer in self.rest:
            x = layer(x)
        return x

def subclassed():
    model = Subclassed()
    model.compile("sgd", "mse")
    return model, (np.random.rand(16, 6), np.random.rand(16, 2))

class Gan(keras.Model):
    def __init__(self):
        super().__init__()
        self.maker = keras.Sequential([L.Dense(8)])
        self.judge = keras.Sequential([L.Dense(1)])
        self.mean = keras.metrics.Mean(name="mean")
        self.draws = keras.random.SeedGenerator(3)

    def compile(self, first, second):
        super().compile()
        self.pairs = [(self.maker, first), (self.judge, second)]

    def train_step(self, data):
        images = data[0] if isinstance(data, tuple) else data
        noise = keras.random.normal((tf.shape(images)[0], 8), seed=self.draws)
        for net, optimizer in self.pairs:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.judge(self.maker(noise)) - self.judge(images)) ** 2)
            weights = net.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.mean.update_state(loss)
        return {"mean": self.mean.result()}

def gan():
    model = Gan()
    model.compile(keras.optimizers.Adam(), keras.optimizers.SGD())
    return model, (np.random.rand(16, 8),)

def two_of_each():
    inputs = {"a": keras.Input((4,), name="a"), "b": keras.Input((6,), dtype="int32", name="b")}
    both = L.Concatenate()([L.Dense(3)(inputs["a"]), L.Flatten()(L.Embedding(9, 2)(inputs["b"]))])
    model = keras.Model(inputs, {"class": L.Dense(5)(both), "size": L.Dense(1)(both)})
    losses = {"class": keras.losses.SparseCategoricalCrossentropy(True), "size": "mse"}
    model.compile("adam", losses)
    x = {"a": np.random.rand(16, 4), "b": np.random.randint(0, 9, (16, 6))}
    return model, (x, {"class": np.random.randint(0, 5, 16), "size": np.random.rand(16, 1)})

def mixed():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        return cnn()
    finally:
        keras.config.set_dtype_policy("float32")

def accumulating():
    return cnn(optimizer=keras.optimizers.Adam(gradient_accumulation_steps=2))

def answer(source):
    told = {"failed": ""}
    try:
        exec(source, {**globals(), "told": told})
    except Exception:
        told["failed"] = traceback.format_exc()
    return told
"""


@pytest.fixture(scope="module")
def child() -> Iterator[Conversation]:
    with talk_to_python(_SETTING, {**ARENA, "TF_CPU_BFC_MEM_LIMIT_IN_MB": "1024"}) as talk:
        yield talk


def _told(child: Conversation, source: str) -> dict[str, Any]:
    told: dict[str, Any] = child.ask(source)
    assert told.pop("failed") == ""
    return told


_KINDS = {
    "cnn()": 12 * 12 * 3 * 4 + 8,
    "subclassed()": 6 * 4 + 2 * 4,
    "gan()": 8 * 4,
    "two_of_each()": 4 * 4 + 6 * 8 + 8 + 4,
    "mixed()": 12 * 12 * 3 * 4 + 8,
    "accumulating()": 12 * 12 * 3 * 4 + 8,
    "cnn(run_eagerly=True)": 12 * 12 * 3 * 4 + 8,
    "cnn(steps_per_execution=3)": 12 * 12 * 3 * 4 + 8,
}


@pytest.mark.parametrize("kind", _KINDS)
def test_steps_at_several_sizes_are_recorded_and_the_model_is_left_to_the_bit(
    child: Conversation, kind: str
) -> None:
    told = _told(
        child,
        f"""
model, data = {kind}
before = state(model)
with left_as_it_was(model):
    tapes = record(model, data)
    told["during"] = changed(before, state(model))
told["after"] = changed(before, state(model))
told.update(facts_of(tapes))
""",
    )
    assert "values" in told["during"] or "objects" in told["during"]
    assert told["after"] == []
    assert told["adds_up"]
    assert (told["device"], told["is_arena"], told["limit"]) == ("CPU:0", True, 1 << 30)
    assert told["sizes"] == sorted(told["sizes"])
    assert len(told["sizes"]) >= 3
    assert told["row_bytes"] == _KINDS[kind]
    assert min(told["events"]) > 0


def test_steps_come_with_the_graph_of_what_ran_and_nothing_is_collected_afterwards(
    child: Conversation,
) -> None:
    told = _told(
        child,
        """
model, data = cnn()
tapes = record(model, data)
tape = tapes.steps[1].tape
named = {tape.ops[number] for number, size in zip(tape.op_numbers, tape.bytes) if size > 0}
told["unknown"] = sorted(op for op in named - tapes.needs.keys() if "/" in op)
(gradient,) = [op for op in named if op.endswith("Conv2DBackpropFilter")]
told["before the gradient"] = sorted(tapes.needs[gradient])
tf.function(lambda number: number + 1)(tf.constant(1))
told["collected"] = len(context.context().export_run_metadata().function_graphs)
""",
    )
    assert told["unknown"] == []
    assert told["before the gradient"]
    assert told["collected"] == 0


@pytest.mark.parametrize("kind", ["cnn()", "subclassed()", "gan()"])
def test_a_model_in_training_goes_on_as_if_nothing_had_been(child: Conversation, kind: str) -> None:
    told = _told(
        child,
        f"""
def train(look):
    keras.utils.set_random_seed(7)
    model, data = {kind}
    model.fit(*data, batch_size=4, verbose=0, shuffle=False)
    before, functions = state(model), [model.train_function, model.predict_function]
    if look:
        with left_as_it_was(model):
            record(model, data)
            if model.name == "eyes":
                record(model, data, "prediction")
    told["changed"] = changed(before, state(model))
    told["functions"] = [model.train_function, model.predict_function] == functions
    model.fit(*data, batch_size=4, verbose=0, shuffle=False)
    return [value(each.value) for each in model.variables]

told["same"] = train(False) == train(True)
""",
    )
    assert told == {"changed": [], "functions": True, "same": True}


def test_the_tape_peaks_where_the_allocator_does(child: Conversation) -> None:
    told = _told(
        child,
        """
from oommagic.tf.real_steps import steps_of
model, data = cnn()
step = steps_of(model, sample_of(model, data, "training"), "training").at(64)
step()
tf.config.experimental.reset_memory_stats("CPU:0")
with steps.Making() as one:
    step()
told["peak"] = tf.config.experimental.get_memory_info("CPU:0")["peak"]
told["taped"], told["adds_up"] = max(one.tape.in_use_bytes), adds_up(one.tape)
""",
    )
    assert told["taped"] == told["peak"]
    assert told["adds_up"]


def test_what_is_made_before_the_steps_has_its_own_tape(child: Conversation) -> None:
    told = _told(
        child,
        """
with steps.Making() as making:
    model, data = cnn()
told["made"] = sum(size for size in making.tape.bytes if size > 0)
told["weights"] = 4 * model.count_params()
""",
    )
    assert told["made"] >= told["weights"]


@pytest.mark.parametrize("task", ["training", "prediction"])
def test_without_a_batch_one_is_made_up_that_the_model_takes(
    child: Conversation, task: str
) -> None:
    told = _told(
        child,
        f"""
for number, make in enumerate((cnn, two_of_each)):
    model, data = make()
    told[str(number)] = facts_of(record(model, None, {task!r}))["row_bytes"]
    made = record(model, data, {task!r})
    told["own " + str(number)] = facts_of(made)["sizes"]
""",
    )
    labels = task == "training"
    images, inputs = 12 * 12 * 3 * 4 + 4 * labels, 4 * 4 + 6 * 4 + 8 * labels
    assert told["0"] == images
    assert told["1"] == inputs


def test_real_steps_give_the_peak_of_the_allocator(child: Conversation) -> None:
    told = _told(
        child,
        """
model, data = cnn()
sample = sample_of(model, data, "training")
told["peaks"] = []
for batch in (8, 4096):
    peak, elapsed_s = steps.run_steps(model, sample, "training", batch, 3)
    told["peaks"].append([peak, tf.config.experimental.get_memory_info("CPU:0")["peak"]])
told["elapsed_s"], told["iterations"] = elapsed_s, int(model.optimizer.iterations)
""",
    )
    (small, also_small), (large, also_large) = told["peaks"]
    assert (small, large) == (also_small, also_large)
    assert large > small + 4088 * 12 * 12 * 3 * 4
    assert told["elapsed_s"] > 0
    assert told["iterations"] == 6


_OWN_STEP = """
weights = tf.Variable(tf.random.uniform((6, 3)))
losses, counts = [], {"steps": 0}

@tf.function
def step(x, y):
    counts["traced"] = counts.get("traced", 0) + 1
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss

def loop_step(x, y):
    counts["steps"] += 1
    random.random(), np.random.rand(), tf.random.get_global_generator().normal(())
    losses.append(step(x, y))

def make_batch(n):
    return tf.constant(np.random.rand(n, 6), tf.float32), tf.zeros((n, 3))

def all_of_it():
    return [value(weights), list(losses), dict(counts), step.experimental_get_tracing_count(),
            repr((random.getstate(), np.random.get_state())),
            value(tf.random.get_global_generator().state)]
"""


def test_a_step_of_the_users_own_is_recorded_and_all_that_it_uses_is_left(
    child: Conversation,
) -> None:
    told = _told(
        child,
        f"""
place = {{**globals()}}
exec({_OWN_STEP!r}, place)
loop_step, make_batch, all_of_it = (place[n] for n in ("loop_step", "make_batch", "all_of_it"))
for trained in (False, True):
    if trained:
        loop_step(*make_batch(4))
    before = all_of_it()
    with left_as_it_was(loop_step):
        tapes = record(loop_step, make_batch, "step")
        told["during"] = before[0] != all_of_it()[0]
    told["after " + str(trained)] = [a == b for a, b in zip(before, all_of_it())]
told.update(facts_of(tapes))
""",
    )
    assert told["during"] is True
    assert told["after False"] == told["after True"] == [True] * 6
    assert (told["title"], told["task"]) == ("loop_step", "step")
    assert told["row_bytes"] == (6 + 3) * 4


def test_a_step_of_which_xla_compiles_a_part_alone_runs_at_several_sizes(
    child: Conversation,
) -> None:
    told = _told(
        child,
        """
@tf.function(jit_compile=True)
def squared(x):
    return x * x

class Squares(L.Layer):
    def __init__(self):
        super().__init__()
        self.many = [self.add_weight(shape=(), trainable=False) for _ in range(151)]

    def call(self, x):
        return squared(x)

model = keras.Sequential([keras.Input((64,)), L.Dense(256), L.Dense(256), Squares(), L.Dense(1)])
model.compile("sgd", "mse")
data = np.random.rand(16, 64), np.random.rand(16, 1)
told.update(facts_of(record(model, data, budget_s=4)))
""",
    )
    assert told["compiled"] == []
    assert len(set(told["sizes"])) > 1


def test_a_compiled_step_that_has_to_know_its_size_tells_of_several_all_the_same(
    child: Conversation,
) -> None:
    told = _told(
        child,
        """
class Knowing(keras.Model):
    def __init__(self):
        super().__init__()
        self.wide, self.last = L.Dense(512, "relu"), L.Dense(1)

    def call(self, x):
        return self.last(self.wide(x))

    def train_step(self, data):
        if data[0].shape[0] is None:
            raise ValueError("of which size?")
        return super().train_step(data)

model = Knowing()
model.compile("sgd", "mse", jit_compile=True)
data = np.random.rand(16, 64), np.random.rand(16, 1)
told.update(facts_of(record(model, data, budget_s=20)))
""",
    )
    sizes = dict(told["compiled"])
    assert {told["sizes"][0], 256, 64} <= set(sizes)
    assert sizes[64] < sizes[256]


def test_a_step_of_ones_own_of_which_xla_compiles_little_runs_at_several_sizes(
    child: Conversation,
) -> None:
    told = _told(
        child,
        """
@tf.function(jit_compile=True)
def halved(x):
    return x * 0.5

weights = tf.Variable(tf.random.uniform((256, 256)))

@tf.function
def own_step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.relu(tf.nn.relu(x @ weights) @ weights)) + halved(x[0, 0])
    weights.assign_sub(tape.gradient(loss, weights))

data = (np.random.rand(16, 256).astype("float32"),)
told.update(facts_of(record(own_step, data, "step", budget_s=4)))
""",
    )
    assert told["compiled"] == []
    assert len(set(told["sizes"])) > 1


def test_a_step_is_traced_once_for_each_size(child: Conversation) -> None:
    told = _told(
        child,
        """
traced = []
class Noted(L.Layer):
    def call(self, x):
        traced.append(x.shape[0])
        return x
model = keras.Sequential([keras.Input((4,)), Noted(), L.Dense(3)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
traced.clear()
with left_as_it_was(model):
    tapes = record(model, (np.random.rand(16, 4), np.random.randint(0, 3, 16)))
told.update(facts_of(tapes), traced=traced)
""",
    )
    assert sorted(told["traced"]) == sorted(set(told["sizes"]))


def test_a_model_with_layers_called_as_a_graphs_outputs_are_is_recorded(
    child: Conversation,
) -> None:
    told = _told(
        child,
        """
class Named(keras.Model):
    def __init__(self):
        super().__init__()
        self.outputs = [L.Dense(1)]
    def call(self, x):
        return self.outputs[0](x)
model = Named()
model.compile("adam", "mse", metrics=["accuracy"])
data = np.random.rand(16, 4), np.random.rand(16, 1)
model.train_on_batch(*data)
with left_as_it_was(model):
    told.update(facts_of(record(model, data)))
""",
    )
    assert told["sizes"]
    assert told["adds_up"]


def test_a_compiled_step_tells_the_bytes_that_the_tape_shows(child: Conversation) -> None:
    told = _told(
        child,
        """
from oommagic.tf import compiled_sizes
compiled_sizes._TELLING_S = 60.0  # however busy this machine is
model, data = cnn(jit_compile=True)
before = state(model)
wanted = lambda tapes: 100 if all(size.batch != 100 for size in tapes.compiled) else None
with left_as_it_was(model):
    tapes = record(model, data, budget_s=60, wanted=wanted)
told.update(facts_of(tapes))
told["after"] = changed(before, state(model))
""",
    )
    assert told["after"] == []
    compiled = dict(told["compiled"])
    assert {told["sizes"][0], 256, 100} <= set(compiled)
    taped = {batch: largest for batch, largest in told["largest"] if batch in compiled}
    # What is traced for one size asks for some words more or less than what is for any.
    assert taped == pytest.approx({batch: compiled[batch] for batch in taped}, rel=0.001)
    assert compiled[256] > compiled[told["sizes"][0]]
    read = {batch: size for batch, size in told["held"] if size}
    assert read
    assert read.items() <= compiled.items()


@pytest.mark.parametrize("moments", [4, pytest.param(24, marks=pytest.mark.long)])
def test_an_interrupt_at_any_moment_changes_nothing_and_leaves_nothing(
    child: Conversation, moments: int
) -> None:
    told = _told(
        child,
        """
def left():
    gc.collect()
    return [threading.active_count(), profiler.users_is_running(),
            glob.glob(f"{tempfile.gettempdir()}/oommagic-{os.getpid()}-*"),
            len(os.listdir("/proc/self/fd"))]

model, data = cnn()
with left_as_it_was(model):
    record(model, data)  # whatever TensorFlow opens once, it has opened now
sample, before, there = sample_of(model, data, "training"), state(model), left()
signal.signal(signal.SIGINT, signal.default_int_handler)
before["handler"] = repr(signal.getsignal(signal.SIGINT))
began_s = time.monotonic()
with left_as_it_was(model):
    steps.record(model, sample, "training", silent, 0.1)
whole_s = time.monotonic() - began_s
told["interrupted"], told["changed"], told["left"] = 0, [], []
for number in range(MOMENTS):
    timer = threading.Timer(whole_s * number / MOMENTS, _thread.interrupt_main)
    try:
        timer.start()
        with left_as_it_was(model):
            steps.record(model, sample, "training", silent, 0.1)
        timer.join()
        time.sleep(0)
    except KeyboardInterrupt:
        told["interrupted"] += 1
    timer.join()
    told["changed"] += changed(before, state(model))
    told["left"] += [] if left() == there else [left()]
with steps.Making() as still:  # the profiler is free
    tf.zeros((100,)) + 1
told["tape"] = still.tape is not None
""".replace("MOMENTS", str(moments)),
    )
    assert told["interrupted"] >= moments / 2
    assert told["changed"] == []
    assert told["left"] == []
    assert told["tape"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("sample_of(keras.Sequential([L.Dense(2)]), None, 'training')", "is not compiled"),
        ("sample_of(compiled(L.Dense(2)), None, 'training')", "is not built"),
        (
            "sample_of(compiled(keras.Input((3,)), L.Dense(2), loss=None), None, 'training')",
            "no loss",
        ),
        (
            "sample_of(reader(), None, 'training')",
            "`tokens` has a length that is not fixed: pass a batch, e.g. oommagic.plan(model",
        ),
        (
            "sample_of(compiled(keras.Input(batch_shape=(4, 3)), L.Dense(1)), None, 'training')",
            "batches of 4 alone",
        ),
        ("sample_of(cnn()[0], np.zeros((8, 12, 12, 3)), 'training')", "no labels"),
        ("sample_of(cnn()[0], np.zeros((12, 12, 3)), 'prediction')", "single sample"),
        ("sample_of(cnn()[0], (each for each in ()), 'training')", "generator"),
        ("sample_of(cnn()[0], data_set(np.zeros((0, 3))), 'training')", "dataset is empty"),
        ("sample_of(cnn()[0], tf.data.Dataset.range(3), 'training')", "ds.batch(8)"),
        ("sample_of(cnn()[0], tf.data.Dataset.from_tensors(ragged), 'training')", "Ragged"),
        ("sample_of(cnn()[0], single, 'training')", "a tf.data.Dataset one of batches"),
        ("sample_of(cnn()[0], (ragged, np.zeros(2)), 'training')", "no array (RaggedTensor)"),
        ("sample_of(cnn()[0], (np.zeros((2, 12, 12, 3)), [1, 2]), 'training')", "no array (int)"),
        ("sample_of(pair, (np.zeros((2, 3)), np.zeros((2, 3))), 'prediction')", "takes 2 inputs"),
        ("sample_of(abs, None, 'step')", "What the step is called with"),
        ("sample_of(3, None, 'step')", "int cannot be planned"),
        ("sample_of(abs, (np.zeros(3),), 'training')", "no model of Keras 3"),
        ("sample_of(abs, (np.zeros(3),), 'prediction')", "planned without `predict`"),
    ],
)
def test_what_cannot_be_planned_is_a_clear_sentence(
    child: Conversation, call: str, sentence: str
) -> None:
    told = _told(
        child,
        f"""
def compiled(*layers, loss="mse"):
    model = keras.Sequential(list(layers))
    model.compile("sgd", loss)
    return model

def reader():
    return compiled(keras.Input((None,), name="tokens"), L.Embedding(9, 2))

data_set = lambda rows: tf.data.Dataset.from_tensor_slices(rows).batch(4)
ragged = tf.ragged.constant([[1], [2, 3]])
single = tf.data.Dataset.from_tensors((np.ones(2), np.ones(1)))
a, b = keras.Input((3,)), keras.Input((3,))
pair = keras.Model([a, b], L.Add()([a, b]))
own = {{"pair": pair, "single": single}}
own |= {{"compiled": compiled, "reader": reader, "data_set": data_set, "ragged": ragged}}
scope = {{**globals(), **own}}
told["sentence"] = sentence_of(lambda: eval({call!r}, scope))
""",
    )
    assert sentence in told["sentence"]
    assert told["sentence"].endswith(".")


def test_a_step_that_fails_raises_its_own_error(child: Conversation) -> None:
    told = _told(
        child,
        """
class Broken(keras.Model):
    def train_step(self, data):
        raise ZeroDivisionError("mine")

model = Broken()
model.compile("sgd", "mse")
before = state(model)
try:
    with left_as_it_was(model):
        record(model, (np.zeros((8, 2)), np.zeros((8, 1))))
except ZeroDivisionError as error:
    told["error"] = str(error)
told["changed"] = changed(before, state(model))
""",
    )
    assert "mine" in told["error"]
    assert told["changed"] == []


def test_a_dataset_gives_its_first_batches_and_the_largest_length_is_planned(
    child: Conversation,
) -> None:
    told = _told(
        child,
        """
model = keras.Sequential([keras.Input((None,), dtype="int32"), L.Embedding(50, 4), L.LSTM(3)])
model.compile("adam", "mse")
pairs = tf.data.Dataset.range(1_000_000).map(
    lambda n: (tf.ones((4, 3 + n % 5), tf.int32), tf.zeros((4, 3)))
).repeat()
before = state()
sample = sample_of(model, pairs, "training")
told["shapes"] = [list(array.shape) for array in sample.batch(9)]
told["notes"], told["changed"] = sample.notes, changed(before, state())
told["sizes"] = facts_of(record(model, pairs))["sizes"]
""",
    )
    assert told["shapes"] == [[9, 7], [9, 3]]
    assert "the largest that was seen" in told["notes"][0]
    assert told["changed"] == []
    assert len(told["sizes"]) >= 3


def test_batches_of_many_lengths_are_looked_at_in_a_pydataset_too(child: Conversation) -> None:
    told = _told(
        child,
        """
class Texts(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return np.ones((4, 3 + index), "int32"), np.zeros((4, 3))

model = keras.Sequential([keras.Input((None,), dtype="int32"), L.Embedding(50, 4), L.LSTM(3)])
model.compile("adam", "mse")
sample = sample_of(model, Texts(), "training")
told["shape"], told["notes"] = list(sample.batch(9)[0].shape), sample.notes
""",
    )
    assert told["shape"] == [9, 7]
    assert "the largest that was seen" in told["notes"][0]


def test_data_that_is_drawn_at_random_is_drawn_again_by_fit(child: Conversation) -> None:
    told = _told(
        child,
        """
class Drawn(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.random.rand(4, 12, 12, 3), np.random.randint(0, 10, 4)

model, _ = cnn()
before = state()
told["shape"] = list(sample_of(model, Drawn(), "training").batch(9)[0].shape)
told["changed"] = changed(before, state())
""",
    )
    assert told["shape"] == [9, 12, 12, 3]
    assert told["changed"] == []


def test_floats_are_as_narrow_as_fit_makes_them_but_a_datasets_own(child: Conversation) -> None:
    told = _told(
        child,
        """
model, (x, y) = cnn()
kinds = lambda batch: [str(a.dtype) for a in sample_of(model, batch, "training").batch(3)]
told["arrays"] = kinds((x.astype("float64"), y))
told["dataset"] = kinds(tf.data.Dataset.from_tensor_slices((x.astype("float64"), y)).batch(4))
told["tensors"] = kinds((tf.constant(x), tf.constant(y)))
""",
    )
    assert told["arrays"] == told["tensors"] == ["float32", "int64"]
    assert told["dataset"] == ["float64", "int64"]
