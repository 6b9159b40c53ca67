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


def test_an_interrupt_while_the_tape_is_read_is_said_in_one_line_and_leaves_nothing() -> None:
    told = run_python(
        _STEP
        + """
import contextlib, glob, io, signal, time
from oommagic.magics import open_shell
shell = open_shell()
hoard = [[[] for _ in range(20_000)] for _ in range(9)]  # to look through it takes a while
shell.user_ns.update(step=step, x=x, signal=signal, hoard=hoard)
signal.signal(signal.SIGALRM, signal.default_int_handler)
cell = "%%oomprofile -q\\nstep(x)\\nsignal.setitimer(signal.ITIMER_REAL, 0.03)\\nNone"
shown = io.StringIO()
with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
    shell.run_cell(cell)
told["shown"] = shown.getvalue()
told["folders"] = glob.glob(f"{tempfile.gettempdir()}/oommagic-{os.getpid()}-*")
told["variable"] = os.system("test -z \\"$TF_BFC_MEMORY_DUMP\\"")
""",
        ARENA,
    )
    assert "interrupted before the report was shown" in told["shown"]
    assert "Traceback" not in told["shown"]
    assert told["folders"] == []
    assert told["variable"] == 0
