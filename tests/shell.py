"""A real IPython shell in this process, and cells profiled in it."""

import textwrap
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

import oommagic
from oommagic.report import LineUsage, Report


def run_profiled(shell: InteractiveShell, cell: str, options: str = "") -> Any:
    """Run a cell under the magic, showing nothing, and return IPython's result."""
    return shell.run_cell(f"%%oomprofile -q {options}\n{textwrap.dedent(cell).strip()}\n")


def profile(shell: InteractiveShell, cell: str, options: str = "") -> Report:
    """Run a cell under the magic; it must not fail."""
    run_profiled(shell, cell, options).raise_error()
    return oommagic.last_report()


def line(report: Report, starts_with: str) -> LineUsage:
    """Find the one line of the cell whose source starts so."""
    found = [
        usage for usage in report.profile.lines if usage.source.strip().startswith(starts_with)
    ]
    assert len(found) == 1, f"{starts_with!r} is on {len(found)} lines"
    return found[0]
