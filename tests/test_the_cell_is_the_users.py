"""The cell is the user's: with the magic everything is as it is without."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from cells import CASES, TENSORFLOW, Case, case
from comparison import Pair
from kernels import MAGIC, PATIENCE_S, Kernel, environment_of, running_kernels, running_pair
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ENGINES = ("settrace", "monitoring") if sys.version_info >= (3, 12) else ("settrace",)
OUR_FILES = re.compile(r"oommagic[\\/.]")


@pytest.fixture(scope="module", params=ENGINES)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with running_pair("oommagic") as (plain, profiled):
        yield Pair(plain, profiled, f"{MAGIC} --engine {request.param}")


@pytest.fixture(scope="module", params=ENGINES)
def tensorflow_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with running_pair("oommagic", TF_CPP_MIN_LOG_LEVEL="3") as (plain, profiled):
        for kernel in (plain, profiled):
            kernel.prepare("import tensorflow as tf\nassert tf.ones(()) == 1")
        yield Pair(plain, profiled, f"{MAGIC} --engine {request.param}")


@pytest.fixture(scope="module")
def kernel(pair: Pair) -> Kernel:
    return pair.profiled


def here(cases: tuple[Case, ...]) -> list[object]:
    return [
        pytest.param(one, id=one.title)
        for one in cases
        if one.python <= sys.version_info[:2] <= one.last_python
    ]


@pytest.mark.of_ipython
@pytest.mark.parametrize("one", here(CASES))
def test_a_cell_does_the_same_with_the_magic(pair: Pair, one: Case) -> None:
    assert pair.differences(one) == []


@pytest.mark.parametrize("one", here(TENSORFLOW))
def test_a_tensorflow_cell_does_the_same_with_the_magic(tensorflow_pair: Pair, one: Case) -> None:
    assert tensorflow_pair.differences(one) == []


def test_the_magics_line_is_in_the_history_and_nothing_else_is_new(pair: Pair) -> None:
    pair.profiled.run(f"{pair.magic_line}\nkept = 1")
    raw = pair.profiled.run("print(get_ipython().history_manager.input_hist_raw[-2].splitlines())")
    assert "'kept = 1'" in raw.text
    written = pair.profiled.run(
        "print([*_i.splitlines(), len('oomprofile')][0].startswith('print'))"
    )
    assert "True" in written.text


def test_q_shows_no_report(pair: Pair) -> None:
    ran = pair.profiled.run(f"{pair.magic_line} -q\nprint('a')\n1 + 1")
    assert ran.reports == ()
    assert [output.kind for output in ran.outputs] == ["stream", "execute_result"]


def test_asking_whether_a_cell_is_complete_profiles_nothing(pair: Pair) -> None:
    kernel = pair.profiled
    question = kernel.client.is_complete(f"{pair.magic_line}\nx = 1")
    answer = kernel.client.get_shell_msg(timeout=30)
    assert answer["parent_header"]["msg_id"] == question
    assert kernel.run("x = 2\nx").reports == ()


def test_a_cell_is_complete_and_completed_as_without_the_magic(pair: Pair) -> None:
    for source in ("x = 1", "x = 1\n\n", "if x:", "x = (1,", "x = '''a", "def f():\n    return"):
        # It ends with a blank line, like the cell of any other magic.
        assert _is_complete(pair.plain, f"%%time\n{source}") == _is_complete(
            pair.profiled, f"{pair.magic_line}\n{source}"
        ), source
    source = "import math\nmath.sq"
    assert _completed(pair.plain, source) == _completed(
        pair.profiled, f"{pair.magic_line}\n{source}"
    )


def test_the_magics_help_says_every_option(kernel: Kernel) -> None:
    ran = kernel.run(f"{MAGIC}?")
    page = str(ran.reply["payload"])
    assert ran.reply["status"] == "ok"
    for option in ("-f", "-o", "--engine", "--include-children", "-q"):
        assert option in page, option


def test_an_error_stops_the_cells_that_wait(pair: Pair) -> None:
    statuses = {
        kernel: _statuses(
            kernel,
            [f"{line}input()\n1 / 0", "print('not run')", f"{line}print('nor this')"],
        )
        for kernel, line in ((pair.plain, ""), (pair.profiled, f"{pair.magic_line}\n"))
    }
    assert list(statuses.values()) == [["error", "aborted", "aborted"]] * 2


def test_nbclient_stops_at_an_error(pair: Pair, tmp_path: Path) -> None:
    plain = _executed(["x = 1", "x / 0", "x = 2"], tmp_path)
    line = f"{pair.magic_line}\n"
    profiled = _executed(
        ["%load_ext oommagic", f"{line}x = 1", f"{line}x / 0", f"{line}x = 2"], tmp_path
    )
    assert _shown_kinds(plain) == [[], ["error"], []]
    assert _shown_kinds(profiled) == [[], ["display_data"], ["error", "display_data"], []]


def test_exit_asks_the_front_end_to_end_the_kernel(pair: Pair) -> None:
    with running_pair("oommagic") as (plain, profiled):
        expected = plain.run("print('bye')\nexit()")
        actual = profiled.run(f"{pair.magic_line}\nprint('bye')\nexit()")
        assert actual.own_outputs == expected.own_outputs
        assert actual.reply == expected.reply
        assert "ask_exit" in str(actual.reply["payload"])


BUSY_LOOP = """
def work(n):
    total = 0
    for i in range(n):
        total += i
    return total

print("ready")
while True:
    work(3)
    work(30)
    [work(1) for _ in range(3)]
"""


@pytest.mark.of_ipython
@pytest.mark.parametrize("attempt", range(8))
def test_an_interrupt_never_lands_in_our_code(pair: Pair, attempt: int) -> None:
    ran = pair.profiled.run(f"{pair.magic_line}\n{BUSY_LOOP}\n# {attempt}", interrupt_at="ready")
    assert ran.reply["ename"] == "KeyboardInterrupt"
    assert not OUR_FILES.search(str(ran.reply["traceback"]))
    assert len(ran.reports) == 1
    assert ran.outputs[-1].is_report


def test_the_first_profiled_cell_leaves_nothing_behind(pair: Pair) -> None:
    with running_pair("oommagic") as (plain, profiled):
        fresh = Pair(plain, profiled, pair.magic_line)
        assert fresh.differences(case("the first cell", "x = bytearray(10**7)\ndel x")) == []


def test_an_extension_that_is_unloaded_takes_everything_with_it() -> None:
    with running_kernels() as (kernel,):
        before = kernel.state()
        kernel.run("%load_ext oommagic")
        kernel.run(f"{MAGIC}\nx = 1\ndel x")
        kernel.run("%unload_ext oommagic")
        after = kernel.state()
        parts = ("IPython: callbacks", "IPython: compile", "IPython: input_transformers_cleanup")
        assert {part: before[part] for part in parts} == {part: after[part] for part in parts}


WRONGS = {
    "": "",
    "prints": "outputs",
    "prints after the report": "after the report",
    "shows two reports": "2 reports and 0",
    "shows no report": "0 reports and 0",
    "leaves the magic's line": "outputs",
    "indents the cell": "outputs",
    "runs the cell inside another": "reply",
    "swallows errors": "reply",
    "counts the cell twice": "reply",
    "leaves a thread": "changes",
    "leaves a file open": "changes",
    "leaves a variable": "changes",
    "leaves a name": "changes",
    "leaves a built-in": "changes",
}
TELLING = """
text = '''a
  b'''
print(text)
1 / 0
"""


@pytest.fixture(scope="module")
def misbehaving_pair() -> Iterator[Pair]:
    with running_pair("misbehaving_magic") as (plain, profiled):
        yield Pair(plain, profiled, MAGIC)


@pytest.mark.of_ipython
@pytest.mark.parametrize(("wrong", "seen_in"), WRONGS.items())
def test_the_comparison_sees_a_magic_that_misbehaves(
    misbehaving_pair: Pair, wrong: str, seen_in: str
) -> None:
    found = misbehaving_pair.differences(case(wrong, TELLING, before=f"WRONG = {wrong!r}"))
    if wrong:
        assert any(seen_in in difference for difference in found), found
    else:
        assert found == []


def _is_complete(kernel: Kernel, source: str) -> object:
    kernel.client.is_complete(source)
    return kernel.client.get_shell_msg(timeout=30)["content"]


def _completed(kernel: Kernel, source: str) -> object:
    kernel.client.complete(source)
    return kernel.client.get_shell_msg(timeout=30)["content"]["matches"]


def _statuses(kernel: Kernel, sources: list[str]) -> list[str]:
    """Run cells that are all sent at once; the first asks a question before it goes on."""
    asked = [kernel.client.execute(source) for source in sources]
    # An error stops the cells that have arrived by then: the answer is sent after them.
    kernel.client.get_stdin_msg(timeout=PATIENCE_S)
    kernel.client.input("")
    replies = [kernel.client.get_shell_msg(timeout=30) for _ in asked]
    assert [reply["parent_header"]["msg_id"] for reply in replies] == asked
    return [reply["content"]["status"] for reply in replies]


def _executed(sources: list[str], directory: Path) -> list[dict[str, Any]]:
    """Run a notebook as nbclient does, up to its error, and return its cells."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": directory}}
    )
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        client.execute(env=environment_of(directory, {}))
    return cells


def _shown_kinds(cells: list[dict[str, Any]]) -> list[list[str]]:
    return [[output["output_type"] for output in cell["outputs"]] for cell in cells]
