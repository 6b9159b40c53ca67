"""Standing in on the shell during a cell takes nothing away that others have put there."""

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from shell import profile, run_profiled

import oommagic
from oommagic.errors import UsageError
from oommagic.magics import open_shell


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    yield open_shell()
    InteractiveShell.clear_instance()


def test_anothers_traceback_is_there_after_the_cell(shell: InteractiveShell) -> None:
    shown: list[object] = []

    def show(*arguments: object, **_: object) -> None:
        shown.append(arguments)

    vars(shell)["showtraceback"] = show
    run_profiled(shell, "1 / 0")
    assert vars(shell)["showtraceback"] is show
    assert len(shown) == 1


def test_what_the_cell_puts_on_the_shell_stays(shell: InteractiveShell) -> None:
    profile(shell, "shell = get_ipython()\nshell.showtraceback = print")
    assert vars(shell)["showtraceback"] is print


def test_nothing_stays_on_the_shell_after_a_cell(shell: InteractiveShell) -> None:
    before = dict(vars(shell)), dict(vars(shell.compile))
    profile(shell, "%%time\nkept = 1")
    names = "run_code", "showtraceback", "compile"
    assert [name in vars(shell) for name in names] == [name in before[0] for name in names]
    assert "cache" not in vars(shell.compile)
    assert type(shell.compile) is type(before[0]["compile"])


def test_a_cell_that_unloads_the_extension_ends_its_own_run(shell: InteractiveShell) -> None:
    run_profiled(shell, "get_ipython().run_line_magic('unload_ext', 'oommagic')")
    shell.run_line_magic("load_ext", "oommagic")
    assert profile(shell, "kept = 1").outcome.kind == "finished"


def test_an_engine_that_there_is_not_is_named() -> None:
    block = oommagic.profile(engine="monitorng")
    with pytest.raises(UsageError, match="no engine 'monitorng'"):
        block.__enter__()
