"""The composition of steps that XLA compiled, on the arena, against the tape and the model."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from children import ARENA, run_after_import, run_python

from oommagic.tf.xla_functions import compiling_quickly

pytestmark = [pytest.mark.of_tensorflow, pytest.mark.both_ends]

_DEVICE = {**ARENA, "TF_CPU_BFC_MEM_LIMIT_IN_MB": "1024"}

_SETTING = """
import gc, glob, random, tempfile, time
import numpy as np, tensorflow as tf, keras
from keras import layers as L
from tensorflow.python.eager import context
from tensorflow.tsl.profiler.protobuf import xplane_pb2
from oommagic.tf import xla

keras.utils.set_random_seed(1)
tf.random.get_global_generator()
traced = []

def tape(run):
    folder = tempfile.mkdtemp()
    options = tf.profiler.experimental.ProfilerOptions(2, 0, 0)
    tf.profiler.experimental.start(folder, options=options)
    run()
    tf.profiler.experimental.stop()
    space = xplane_pb2.XSpace()
    file, = glob.glob(folder + "/**/*.xplane.pb", recursive=True)
    space.ParseFromString(open(file, "rb").read())
    sizes, shapes = [], set()
    for plane in space.planes:
        names = {key: stat.name for key, stat in plane.stat_metadata.items()}
        for event in (event for line in plane.lines for event in line.events):
            if plane.event_metadata[event.metadata_id].name != "MemoryAllocation":
                continue
            facts = {}
            for stat in event.stats:
                value = getattr(stat, stat.WhichOneof("value"))
                is_text = stat.WhichOneof("value") == "ref_value"
                facts[names[stat.metadata_id]] = names[value] if is_text else value
            op = facts.get("tf_op", "(null)")
            if op == "(null)" or op.rpartition("/")[2].startswith("__inference_"):
                sizes.append(facts["requested_bytes"])
            elif facts.get("shape", "").startswith("["):
                sides = [int(side) for side in facts["shape"][1:-1].split(",") if side]
                shapes.add((tuple(sides), tf.dtypes.as_dtype(facts["data_type"]).name))
    return sizes, shapes

def functions(thing, seen):
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if hasattr(thing, "experimental_get_tracing_count"):
        yield thing
        thing = thing.python_function
    for cell in getattr(thing, "__closure__", None) or ():
        yield from functions(cell.cell_contents, seen)

def state(variables, function):
    shared = context.context()
    return {
        "variables": [(v.dtype, v.numpy().tobytes()) for v in variables],
        "traces": [f.experimental_get_tracing_count() for f in functions(function, set())],
        "traced": list(traced),
        "functions": sorted(shared.list_function_names()),
        "generator": tf.random.get_global_generator().state.numpy().tobytes(),
        "operation seeds": shared._rng.getstate(),
        "random": (random.getstate(), repr(np.random.get_state())),
        "in use": tf.config.experimental.get_memory_info("CPU:0")["current"],
    }

def variables_of(model):
    own = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [variable.value for variable in own]

def told_of(step, taped, before, after):
    if isinstance(step, xla.NotCompiled):
        return {"reason": step.reason}
    named = sum(h.bytes for h in step.temporary if h.layer)
    kinds = {}
    for holding in step.arguments:
        kinds[holding.kind] = kinds.get(holding.kind, 0) + holding.bytes
    return {
        "taped": taped, "asked": step.temporary_bytes,
        "sum": sum(h.bytes for h in step.temporary), "named": named,
        "layers": sorted({h.layer for h in step.temporary if h.layer}),
        "kinds": sorted({h.kind for h in step.temporary}), "arguments": kinds,
        "changed": [name for name in before if before[name] != after[name]],
        "compile_s": step.compile_s,
    }

def look(taped, shapes, variables, function, **more):
    gc.collect()  # what `fit` left in circles would be freed at any later moment
    before = state(variables, function)
    step = xla.compiled_step(taped, shapes, **more)
    return told_of(step, taped, before, state(variables, function))

def fit_and_look(model, x, y, batch):
    fit = lambda: model.fit(x[:batch], y[:batch], batch_size=batch, verbose=0)
    fit()
    sizes, shapes = tape(fit)
    return look(max(sizes), shapes, variables_of(model), model.train_function)
"""

_MODELS = {
    "cnn": """
model = keras.Sequential([
    keras.Input((24, 24, 3)), L.Conv2D(16, 3, activation="relu"), L.BatchNormalization(),
    L.Conv2D(32, 3, activation="relu"), L.MaxPooling2D(), L.Flatten(), L.Dropout(0.3),
    L.Dense(32, activation="relu"), L.Dense(10, activation="softmax"),
])
x, y = np.random.rand(64, 24, 24, 3).astype("f4"), np.random.randint(0, 10, 64)
""",
    "dense": """
model = keras.Sequential(
    [keras.Input((256,)), *[L.Dense(512, activation="relu") for _ in range(3)], L.Dense(10)]
)
x, y = np.random.rand(64, 256).astype("f4"), np.random.randint(0, 10, 64)
""",
    "transformer": """
tokens = keras.Input((32,), dtype="int32")
h = L.Embedding(500, 64)(tokens)
for _ in range(2):
    h = L.LayerNormalization()(h + L.MultiHeadAttention(4, 16)(h, h))
    h = L.LayerNormalization()(h + L.Dense(64)(L.Dense(128, activation="gelu")(h)))
model = keras.Model(tokens, L.Dense(10)(L.GlobalAveragePooling1D()(h)))
x, y = np.random.randint(0, 500, (64, 32)).astype("i4"), np.random.randint(0, 10, 64)
""",
}

_COMPILE = """
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"], jit_compile=True)
"""

_LAYERS = {"cnn": "conv2d_1", "dense": "dense_1", "transformer": "multi_head_attention_1"}


@cache
def _told(model: str, batch: str) -> dict[str, Any]:
    return _told_with(model, batch, {})


def _told_with(model: str, batch: str, environment: Mapping[str, str]) -> dict[str, Any]:
    source = _SETTING + _MODELS[model] + _COMPILE
    asked = f"told.update(fit_and_look(model, x, y, {batch}))"
    return run_after_import(source + asked, {**_DEVICE, **environment})


# Compiling takes seconds: one size will do on each TensorFlow.
_BATCHES = [pytest.param("16", marks=pytest.mark.long), "64"]


@pytest.mark.parametrize("batch", _BATCHES)
@pytest.mark.parametrize("model", _MODELS)
def test_what_a_compiled_step_holds_adds_up_to_what_it_took_from_the_device(
    model: str, batch: str
) -> None:
    told = _told(model, batch)
    assert told["asked"] == pytest.approx(told["taped"], rel=0.01)
    assert told["sum"] == told["asked"]


@pytest.mark.parametrize("batch", _BATCHES)
@pytest.mark.parametrize("model", _MODELS)
def test_nearly_all_of_it_has_a_layer(model: str, batch: str) -> None:
    told = _told(model, batch)
    assert told["named"] >= 0.95 * told["sum"]
    assert any(layer.startswith(_LAYERS[model]) for layer in told["layers"])


@pytest.mark.parametrize("batch", _BATCHES)
@pytest.mark.parametrize("model", _MODELS)
def test_looking_leaves_model_random_state_and_functions_to_the_bit(model: str, batch: str) -> None:
    assert _told(model, batch)["changed"] == []


def test_what_is_compiled_quickly_takes_the_same_memory() -> None:
    usual, quick = _told("cnn", "64"), _told_with("cnn", "64", compiling_quickly())
    for figure in ("taped", "asked", "sum"):
        assert quick[figure] == usual[figure]


@pytest.mark.parametrize(
    ("flags", "more"),
    [
        ("", ["--xla_backend_optimization_level=0"]),
        ("--xla_x=1", ["--xla_x=1", "--xla_backend_optimization_level=0"]),
    ],
)
def test_the_flags_of_the_user_s_stay(
    flags: str, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert compiling_quickly()["XLA_FLAGS"].split() == more


def test_a_file_of_flags_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "flags.txt")
    assert compiling_quickly() == {}


def test_weights_slots_and_batch_stand_apart_from_what_the_step_takes_for_itself() -> None:
    arguments = _told("dense", "64")["arguments"]
    weights = 4 * (256 * 512 + 2 * 512 * 512 + 512 * 10 + 3 * 512 + 10)
    assert arguments["weights"] == weights
    assert arguments["optimizer slots"] == pytest.approx(2 * weights, abs=16)
    assert arguments["data"] == 64 * 256 * 4 + 64 * 8


_OWN_STEP = """
w = tf.Variable(tf.random.normal((128, 256)))
v = tf.Variable(tf.random.normal((256, 1)))

@tf.function(jit_compile=True)
def step(x):
    traced.append(x.shape)
    with tf.GradientTape() as t:
        with tf.name_scope("first_1"):
            h = tf.nn.relu(x @ w)
        loss = tf.reduce_mean((h @ v) ** 2)
    for variable, gradient in zip((w, v), t.gradient(loss, (w, v))):
        variable.assign_sub(0.01 * gradient)
    return loss

x = tf.random.normal((512, 128))
step(x)
sizes, shapes = tape(lambda: step(x))
"""


def test_a_tf_function_of_the_user_s_is_read_without_being_traced_again() -> None:
    told = run_after_import(
        _SETTING + _OWN_STEP + "told.update(look(max(sizes), shapes, (w, v), step))", _DEVICE
    )
    assert told["asked"] == told["sum"] == told["taped"]
    assert told["changed"] == []


def test_a_batch_size_that_the_tape_does_not_show_is_found_from_the_bytes() -> None:
    source = _OWN_STEP.replace(
        "@tf.function(jit_compile=True)",
        "@tf.function(jit_compile=True, input_signature=[tf.TensorSpec((None, 128))])",
    )
    told = run_after_import(
        _SETTING + source + "told.update(look(max(sizes), (), (w, v), step))", _DEVICE
    )
    assert told["asked"] == told["sum"] == told["taped"]
    assert told["changed"] == []


def test_what_cannot_be_read_is_a_sentence() -> None:
    told = run_after_import(
        _SETTING
        + _OWN_STEP
        + """
told["late"] = look(max(sizes), shapes, (w, v), step, budget_s=0.0)["reason"]
told["other"] = look(12345, shapes, (w, v), step)["reason"]
del step
gc.collect()
told["gone"] = xla.compiled_step(max(sizes), shapes).reason
told["any"] = xla.has_compiled_steps()
""",
        _DEVICE,
    )
    assert "takes about" in told["late"]
    assert "`step`" in told["late"]
    assert "12.1 KB" in told["other"]
    assert "is gone" in told["gone"]
    assert told["any"] is False


def test_without_tensorflow_there_is_nothing_compiled_and_it_is_not_imported() -> None:
    told = run_python("""
import sys
from oommagic.tf import xla
told["any"] = xla.has_compiled_steps()
told["reason"] = xla.compiled_step(1000).reason
told["imported"] = "tensorflow" in sys.modules
""")
    assert told["any"] is False
    assert "is gone" in told["reason"]
    assert told["imported"] is False
