"""`%oomwhy`, typed into a real shell after a cell without the magic has failed."""

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell

from oommagic.magics import open_shell


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    yield open_shell()
    InteractiveShell.clear_instance()


def told(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], *cells: str) -> str:
    """Run cells, the last of which fails, and give what the magic says then."""
    for cell in cells:
        shell.run_cell(cell)
    capsys.readouterr()
    shell.run_cell("%oomwhy")
    return " ".join(capsys.readouterr().out.split())


def test_the_line_is_the_cells_whatever_ipython_calls_its_file(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    words = told(shell, capsys, "size = 1 << 60\nhuge = bytearray(size)")
    assert "line 2 of the cell: huge = bytearray(size)" in words
    assert "<ipython" not in words


def test_more_than_the_machine_has_is_certain_and_what_it_has_is_said(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    words = told(shell, capsys, "import numpy as np\nhuge = np.ones((10**7, 10**6))")
    assert "(float64 10000000×1000000), and the limit is" in words
    assert "This is certain" in words


def test_a_line_of_a_function_of_another_cell_is_said_to_be_there(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    function = "def filled(size):\n    return bytearray(size)"
    words = told(shell, capsys, function, "huge = filled(1 << 60)")
    assert "line 2 of another cell: return bytearray(size)" in words
    assert "<ipython" not in words
