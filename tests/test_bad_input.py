"""What is asked for wrongly is answered in one clear sentence, and the cell runs if it can."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels import MAGIC, Kernel, Ran, running_kernels

import oommagic
from oommagic.errors import UsageError


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with running_kernels() as (kernel,):
        kernel.prepare("%load_ext oommagic")
        yield kernel


def sentences(ran: Ran) -> list[str]:
    """Say what oommagic said outside of a report."""
    said = (str(output.content["text"]) for output in ran.outputs if output.is_remark)
    return [line for text in said for line in text.splitlines()]


def about(ran: Ran, name: str) -> list[str]:
    """Find the sentences about a name, in remarks and in the report's notes."""
    return [line for line in ran.text.splitlines() if name in line and "│" not in line]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ("--nonsense", "--nonsense"),
        ("-x", "-x"),
        ("train_step", "train_step"),
        ("--engine warp", "warp"),
        ("--engine", "--engine"),
        ("-f", "-f"),
        ("-o", "-o"),
        ("-o 'unbalanced", "quot"),
    ],
)
def test_a_wrong_option_is_named_and_the_cell_runs(
    kernel: Kernel, options: str, wrong: str
) -> None:
    ran = kernel.run(f"{MAGIC} {options}\nprint('it ran')\n41 + 1")
    assert ran.reply["status"] == "ok"
    assert "it ran" in ran.text
    assert [output.kind for output in ran.own_outputs] == ["stream", "execute_result"]
    assert ran.reports == ()
    assert wrong in " ".join(sentences(ran))
    assert_clear(ran)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python has sys.monitoring")
def test_an_engine_that_this_python_lacks_is_named_and_the_cell_runs(kernel: Kernel) -> None:
    ran = kernel.run(f"{MAGIC} --engine monitoring\nprint('it ran')")
    assert "it ran" in ran.text
    assert "3.12" in ran.text
    assert_clear(ran)


@pytest.mark.parametrize(
    "name", ["no_such_function", "json.no_such_function", "no_such_module.function", "a b", "len"]
)
def test_an_unknown_function_is_named_and_the_cell_is_profiled(kernel: Kernel, name: str) -> None:
    ran = kernel.run(f"{MAGIC} -f '{name}'\nimport json\nprint('it ran')")
    assert ran.reply["status"] == "ok"
    assert "it ran" in ran.text
    assert len(ran.reports) == 1
    assert about(ran, name)
    assert_clear(ran)


@pytest.mark.parametrize("cell", ["", "\n", "   \n\n", "# nothing", "\n# a\n\n# b"])
def test_a_cell_without_code_is_answered_in_one_sentence(kernel: Kernel, cell: str) -> None:
    ran = kernel.run(f"{MAGIC}\n{cell}")
    assert ran.reply["status"] == "ok"
    assert ran.own_outputs == ()
    assert len(sentences(ran)) == 1
    assert_clear(ran)


@pytest.mark.parametrize("cell", ["x = = 1", "if True:\nprint(1)", "'''open", "print((1,"])
def test_wrong_syntax_is_shown_by_python_and_one_sentence_follows(
    kernel: Kernel, cell: str
) -> None:
    ran = kernel.run(f"{MAGIC}\n{cell}")
    assert ran.reply["ename"] in ("SyntaxError", "IndentationError", "_IncompleteInputError")
    assert [output.kind for output in ran.own_outputs] == ["error"]
    assert len(sentences(ran)) == 1
    assert_clear(ran)


def test_a_plan_that_is_refused_leaves_a_sentence_and_no_empty_box(kernel: Kernel) -> None:
    ran = kernel.run("%oombatch 3")
    assert "so there is nothing to plan." in ran.text
    assert {output.kind for output in ran.outputs} <= {"stream", "error"}


def unwritable(directory: Path) -> list[str]:
    """Name files that nobody can write, not even root."""
    (directory / "a_file").write_text("kept")
    (directory / "a_directory").mkdir(exist_ok=True)
    return [
        str(directory / "missing" / "report.json"),
        str(directory / "a_file" / "report.json"),
        str(directory / "a_directory"),
        "/proc/no_such_place/report.json",
        "/dev/full",
    ]


@pytest.mark.parametrize("which", range(5))
def test_a_file_that_cannot_be_written_is_named_and_the_report_is_shown(
    kernel: Kernel, tmp_path: Path, which: int
) -> None:
    path = unwritable(tmp_path)[which]
    ran = kernel.run(f"{MAGIC} -o {path}\nprint('it ran')\n41 + 1")
    assert ran.reply["status"] == "ok"
    assert "it ran" in ran.text
    assert len(ran.reports) == 1
    assert path in " ".join(sentences(ran)).replace("<directory>", str(kernel.directory))
    assert_clear(ran)
    assert (tmp_path / "a_file").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a_directory", "a_file"]


def test_a_file_is_not_overwritten_by_halves(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    kernel.run(f"{MAGIC} -q -o {path}\nx = 1")
    first = path.read_text()
    too_small = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, -1))"
    ran = kernel.run(f"{MAGIC} -q -o {path}\n{too_small}")
    kernel.run("resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))")
    assert str(path) in " ".join(sentences(ran))
    assert path.read_text() == first
    assert [found.name for found in tmp_path.iterdir()] == ["report.json"]


def test_the_magic_on_another_line_says_where_it_belongs(kernel: Kernel) -> None:
    ran = kernel.run(f"x = 1\n{MAGIC}\nx")
    assert ran.reply["status"] == "error"
    assert ran.reports == ()
    assert about(ran, "must be the cell's first line: this cell was not profiled.")


def assert_clear(ran: Ran) -> None:
    """No traceback of ours, and every sentence ends."""
    assert "oommagic/" not in ran.text
    assert "Error in callback" not in ran.text
    for sentence in sentences(ran):
        assert re.search(r"[.:]$", sentence), sentence


@pytest.mark.parametrize("what", ["an error's text", ValueError])
def test_what_is_no_error_is_not_explained(what: object) -> None:
    with pytest.raises(UsageError, match=r"explains an error, as in .* this is a (?:str|type)"):
        oommagic.why(what)  # type: ignore[arg-type]  # that is the point
