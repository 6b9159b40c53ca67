"""Suggestions, typed for in a real shell: after a profiled cell, after an error, in a new cell."""

import re
from typing import Any

import pytest
from children import run_after_import

pytestmark = pytest.mark.slow_once

NOTEBOOK = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from IPython.core.error import UsageError
import oommagic
from oommagic.magics import open_shell

def refused(magic, line):
    try:
        shell.run_line_magic(magic, line)
    except UsageError as error:
        return str(error)

shell = open_shell()
told["too soon"] = refused("oomfix", "1")
shell.run_cell("%oomdevice 300MB")
shell.run_cell('''
import keras, numpy as np
from keras import layers
BATCH = 192  # set in another cell
model = keras.Sequential([
    keras.Input((64, 64, 3)),
    layers.Conv2D(32, 3, padding="same", activation="relu"),
    layers.Conv2D(32, 3, padding="same", activation="relu"),
    layers.MaxPooling2D(), layers.Flatten(), layers.Dense(10),
])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = np.zeros((256, 64, 64, 3), "float32"), np.zeros(256, "int32")
''')
"""
PROFILED = """
CELL = "# größer ist besser\\n%pwd\\nmodel.fit(x, y, batch_size=192)  # so\\n"
shell.run_cell("%%oomprofile -q\\n" + CELL)
report = oommagic.last_report()
told["rules"] = [one.rule for one in report.findings]
told["first"] = [report.findings[0].runs_then, report.findings[0].line_number]
told["guess"] = report.findings[0].is_guess, report.findings[0].message
told["same after saving"] = report.findings == oommagic.report.report_json.from_text(
    report.to_json(), oommagic.Report, oommagic.report.FORMAT
).findings
shell.rl_next_input = None
shell.run_cell("%oomfix 1")
told["next"] = shell.rl_next_input
told["ran"] = oommagic.last_report() is not report
told["none of that number"] = refused("oomfix", "99")
told["no number"] = refused("oomfix", "two")

shell.run_cell("%%oomprofile -q\\nmodel.predict(x[:8], verbose=0)")
told["clean"] = [one.rule for one in oommagic.last_report().findings]
told["nothing there"] = refused("oomfix", "1")
"""


WITHOUT_THE_MAGIC = """
shell.run_cell("%%oomprofile -q\\nanother = 1")
CELL = "def train(size=BATCH):\\n    model.fit(x, y, batch_size=size, verbose=0)\\ntrain()"
shell.run_cell("\\n\\nseen = 1\\n" + CELL)
shell.run_cell("%oomwhy")
oommagic.why(MemoryError())  # which shows no suggestions
shell.run_cell("%oomfix 1")
told["next"] = shell.rl_next_input
"""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return run_after_import(NOTEBOOK + PROFILED)


def test_a_step_that_is_too_big_gets_a_smaller_batch_first(told: dict[str, Any]) -> None:
    assert told["rules"][0] == "smaller-batch"
    assert told["first"] == [True, 3]
    is_guess, message = told["guess"]
    assert is_guess == ("on its way forward" in message)
    assert ("may fit" if is_guess else "is expected to take") in message


def test_the_changed_cell_stands_below_as_it_was_typed_and_has_not_run(
    told: dict[str, Any],
) -> None:
    head, comment, magic, fit = told["next"].splitlines()
    assert (head, comment, magic) == ("%%oomprofile -q", "# größer ist besser", "%pwd")
    assert fit.startswith("model.fit(x, y, batch_size=")
    assert fit.endswith(")  # so")
    assert 1 <= int(fit.removeprefix("model.fit(x, y, batch_size=").split(")")[0]) < 192
    assert not told["ran"]


def test_suggestions_are_saved_with_their_report(told: dict[str, Any]) -> None:
    assert told["same after saving"]


def test_a_cell_without_the_magic_gets_them_from_oomwhy() -> None:
    next_cell = run_after_import(NOTEBOOK + WITHOUT_THE_MAGIC)["next"]
    *above, first, train, fit, call = next_cell.splitlines()
    assert (above, first, call) == (["", ""], "seen = 1", "train()")
    assert re.fullmatch(r"def train\(size=\d+\):", train)
    assert fit == "    model.fit(x, y, batch_size=size, verbose=0)"


def test_a_cell_that_is_well_gets_none(told: dict[str, Any]) -> None:
    assert told["clean"] == []


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("too soon", "There are no suggestions yet"),
        ("none of that number", "There is no suggestion 99"),
        ("no number", "by its number, as in %oomfix 2"),
        ("nothing there", "There is no suggestion 1: there is none."),
    ],
)
def test_what_cannot_be_put_into_a_cell_is_refused_in_words(
    told: dict[str, Any], asked: str, words: str
) -> None:
    assert words in told[asked]
