"""`-f`: the lines of functions asked for by name, of the notebook and of modules."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from blocks import ENGINES, block
from IPython.core.interactiveshell import InteractiveShell
from shell import profile

import oommagic
from oommagic.magics import open_shell
from oommagic.report import FunctionProfile, Report
from oommagic.show.text import render
from oommagic.units import MIB

_MODULE = '''"""A module of the user's."""


def load(size):
    """Take some memory."""
    taken = block(size)
    return taken


class Loader:
    def fetch(self, size):
        return load(size)
'''


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = open_shell()
    shell.push({"block": block})
    profile(shell, "warm = block(1)\ndel warm")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return f"--engine {request.param}"


@pytest.fixture
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "mypkg"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "data.py").write_text(f"from blocks import block\n{_MODULE}")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("mypkg", "mypkg.data"):
        sys.modules.pop(name, None)


def function(report: Report, name: str) -> FunctionProfile:
    """Find the one function of that name."""
    (found,) = [each for each in report.profile.functions if each.name == name]
    return found


def took(shown: FunctionProfile, source: str) -> tuple[int, int]:
    """Tell the hits and the whole MiB of a function's one line whose source starts so."""
    (usage,) = [each for each in shown.lines if each.source.strip().startswith(source)]
    return usage.hits, round(usage.host_delta_bytes / MIB)


def notes(report: Report) -> str:
    return "\n".join(report.notes)


def test_a_function_of_an_earlier_cell(shell: InteractiveShell, engine: str) -> None:
    shell.run_cell("def early(size):\n    kept = block(size)\n    return kept")
    report = profile(shell, "kept = early(6)\ndel kept", f"{engine} -f early")
    shown = function(report, "early")
    assert took(shown, "kept = block") == (1, 6)
    assert took(shown, "return kept") == (1, 0)
    assert [each.line_number for each in shown.lines] == [1, 2, 3]
    assert "early, from another cell" in render(report).splitlines()


def test_a_function_of_the_same_cell_and_one_inside_another(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        def outer(size):
            def inner():
                return block(size)
            return inner()
        kept = outer(3)
        del kept
        """,
        f"{engine} -f outer -f inner",
    )
    assert took(function(report, "outer"), "return block") == (1, 3)
    assert took(function(report, "inner"), "return block") == (1, 3)
    assert {"outer", "inner"} <= set(render(report).splitlines())
    assert "There is no" not in notes(report)


def test_a_function_that_the_cell_defines_anew_is_the_new_one(
    shell: InteractiveShell, engine: str
) -> None:
    shell.run_cell("def early(size):\n    return None")
    report = profile(
        shell,
        "def early(size):\n    return block(size)\nkept = early(2)\ndel kept",
        f"{engine} -f early",
    )
    assert took(function(report, "early"), "return block") == (1, 2)


def test_methods_and_decorated_functions_are_looked_through(
    shell: InteractiveShell, engine: str
) -> None:
    shell.run_cell(
        """
import functools
def twice(function):
    @functools.wraps(function)
    def call(*sizes):
        function(*sizes)
        return function(*sizes)
    return call
@twice
def decorated(size):
    return block(size)
class Maker:
    @staticmethod
    def still():
        return block(1)
    @classmethod
    def of_class(cls):
        return block(2)
    def plain(self):
        return block(3)
"""
    )
    report = profile(
        shell,
        """
        for make in (Maker.still, Maker.of_class, Maker().plain, lambda: decorated(1)):
            make()
        """,
        f"{engine} -f decorated -f Maker.still -f Maker.of_class -f Maker.plain",
    )
    assert took(function(report, "decorated"), "return block")[0] == 2
    for name in ("Maker.still", "Maker.of_class", "Maker.plain"):
        assert took(function(report, name), "return block")[0] == 1


@pytest.mark.usefixtures("_package")
def test_a_function_of_an_imported_module(shell: InteractiveShell, engine: str) -> None:
    shell.run_cell("import mypkg.data")
    report = profile(
        shell,
        "kept = mypkg.data.Loader().fetch(4)\ndel kept",
        f"{engine} -f mypkg.data.load -f mypkg.data.Loader.fetch",
    )
    shown = function(report, "mypkg.data.load")
    assert took(shown, "taken = block") == (1, 4)
    assert shown.filename.endswith("data.py")
    assert took(function(report, "mypkg.data.Loader.fetch"), "return load") == (1, 0)


@pytest.mark.usefixtures("_package")
def test_a_function_of_a_module_that_the_cell_itself_imports(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        "import mypkg.data\nfrom mypkg.data import load\nkept = load(4)\ndel kept",
        f"{engine} -f mypkg.data.load -f load",
    )
    assert took(function(report, "mypkg.data.load"), "taken = block") == (1, 4)
    assert took(function(report, "load"), "taken = block") == (1, 4)


def test_a_name_that_is_no_python_function_is_said_and_the_cell_runs(
    shell: InteractiveShell, engine: str
) -> None:
    shell.push({"number": 1})
    report = profile(shell, "ran = 1", f"{engine} -f nope -f os.nope -f len -f number -f Exception")
    assert report.profile.functions == ()
    for name in ("nope", "os.nope", "len", "number", "Exception"):
        assert f"{name}: there is no Python function of that name" in notes(report)
    assert oommagic.last_report().profile.lines[0].hits == 1


def test_a_function_without_source_is_said(shell: InteractiveShell, engine: str) -> None:
    made = compile("def unseen():\n    return 1", "<made up>", "exec")
    exec(made, shell.user_ns)  # noqa: S102 (so it has no file)
    report = profile(shell, "unseen()", f"{engine} -f unseen")
    assert "unseen: Python cannot find this function's source" in notes(report)


def test_a_function_that_did_not_run_says_so(shell: InteractiveShell, engine: str) -> None:
    shell.run_cell("def idle():\n    return 1")
    report = profile(shell, "other = 1", f"{engine} -f idle")
    assert function(report, "idle").note == "This function did not run."
