"""Device memory per line, against the allocator's own figures, in real TensorFlow processes."""

from collections.abc import Iterator
from typing import Any

import pytest
from blocks import ENGINES
from children import ARENA, Conversation, talk_to_python
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_START = """
import os, sys
sys.path.insert(0, os.path.join(os.environ["PYTHONPATH"], "tests"))
import tensorflow as tf
NAMES = {"tf": tf, **dict.fromkeys("abcd")}
# Operations on these alone: TensorFlow caches the numbers and shapes that it makes into tensors.
NAMES["sizes"] = [tf.random.uniform([size]) for size in (1, 100, 5000, 70_000, 300_000)]
for size in NAMES["sizes"]:
    tf.square(tf.exp(size) + size)
"""

# Resets and reads the allocator itself around each line.
_TRUTH = (
    _START
    + """
def answer(program):
    lines = []
    for source in program:
        before = tf.config.experimental.get_memory_info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
        exec(source, NAMES)
        after = tf.config.experimental.get_memory_info("CPU:0")
        lines.append([after["current"] - before, after["peak"] - before])
    NAMES.update(dict.fromkeys("abcd"))
    return lines
"""
)

_PROFILED = (
    _START
    + """
from shell import profile
from oommagic.magics import open_shell
SHELL = open_shell()
SHELL.push(NAMES)
def answer(question):
    if isinstance(question, str):
        return function_notes(question)
    program, engine = question
    report = profile(SHELL, "\\n".join(program), f"--engine {engine}")
    SHELL.push(dict.fromkeys("abcd"))
    (device,) = report.devices
    now, lines = device.before_bytes, []
    for line in report.profile.lines:
        used = line.devices[device.name]
        lines.append([used.delta_bytes, used.peak_bytes - now])
        now += used.delta_bytes
    assert now == device.after_bytes, (now, device)
    return lines

MODEL = '''
import keras
class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(4)
    def call(self, inputs):
        return self.dense(inputs)
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}
model = Model()
model.compile(optimizer="sgd")
'''

def function_notes(engine):
    SHELL.run_cell(MODEL).raise_error()
    report = profile(
        SHELL,
        '''
x = tf.ones((64, 8))
history = model.fit(x, x[:, :4], batch_size=8, epochs=2, verbose=0)
@tf.function
def double(value):
    more = value * 2
    return more
for _ in range(5):
    y = double(x)
''',
        f"--engine {engine} -f Model.train_step -f double",
    )
    shown = {
        each.name: [each.note, [line.hits for line in each.lines if line.hits]]
        for each in report.profile.functions
    }
    return {"shown": shown, "notes": report.notes}
"""
)


@pytest.fixture(scope="module")
def truth() -> Iterator[Conversation]:
    with talk_to_python(_TRUTH, ARENA) as child:
        yield child


@pytest.fixture(scope="module")
def profiled() -> Iterator[Conversation]:
    with talk_to_python(_PROFILED, ARENA) as child:
        yield child


_names = st.sampled_from("abcd")
_sizes = st.integers(0, 4)
_lines = st.one_of(
    st.builds("{} = tf.square(sizes[{}])".format, _names, _sizes),
    st.builds("{} = None".format, _names),
    st.builds("{} = tf.square(tf.exp(sizes[{}]))".format, _names, _sizes),
    st.builds("{0} = sizes[{1}] + tf.exp(tf.exp(sizes[{1}]) + sizes[{1}])".format, _names, _sizes),
    st.builds("{} = tf.exp(sizes[{}]).shape".format, _names, _sizes),
)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=st.lists(_lines, min_size=1, max_size=15))
@pytest.mark.parametrize("engine", ENGINES)
def test_each_line_s_peak_and_change_are_the_allocator_s_to_the_byte(
    truth: Conversation, profiled: Conversation, engine: str, program: list[str]
) -> None:
    assert profiled.ask([program, engine]) == truth.ask(program)


@pytest.mark.parametrize("engine", ENGINES)
def test_functions_that_are_traced_into_a_graph_say_that_their_lines_ran_once(
    profiled: Conversation, engine: str
) -> None:
    told: Any = profiled.ask(engine)
    note, hits = told["shown"]["Model.train_step"]
    assert "once per trace, not once per step" in note
    assert max(hits) < 16  # the steps that it ran
    note, hits = told["shown"]["double"]
    assert "tf.function" in note
    assert "(once)" in note
