"""Gathering the evidence never stands in the way of the cell or of its report."""

import pytest
from children import ARENA, run_python

pytestmark = pytest.mark.of_tensorflow

_STEP = """
import os, tempfile
import tensorflow as tf
import oommagic
x = tf.ones((64, 64))
step = tf.function(lambda x: tf.reduce_sum(x @ x))
step(x)
"""


def test_without_a_folder_to_write_to_there_is_a_report_that_says_what_is_missing() -> None:
    told = run_python(
        _STEP
        + """
tempfile.tempdir = os.path.join(os.getcwd(), "this folder does not exist")
with oommagic.profile() as run:
    step(x)
told["kind"], told["notes"] = run.report.outcome.kind, run.report.notes
told["variable"] = os.system("test -z \\"$TF_BFC_MEMORY_DUMP\\"")
""",
        ARENA,
    )
    assert told["kind"] == "finished"
    assert "What TensorFlow's profiler recorded could not be written." in told["notes"]
    assert told["variable"] == 0


def test_names_of_classes_of_any_making_do_not_cost_the_report() -> None:
    told = run_python(
        _STEP
        + """
from tensorflow import Variable
from keras.layers import Layer

class Maker(type):
    def __eq__(cls, other):  # and so without a hash
        raise AssertionError

class Made(metaclass=Maker):
    pass

made = Made()
with oommagic.profile() as run:
    step(x)
told["owners"] = [one.owner for one in run.report.compositions[0].holdings]
""",
        ARENA,
    )
    assert "x" in told["owners"]
