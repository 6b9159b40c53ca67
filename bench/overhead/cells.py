"""Child process: runs the workloads as cells of a real IPython shell, plain and profiled in turn.

Reads `{"pairs": …, "work": {name: {"preparation": …, "body": …}}}` on standard input and ends
with one line of JSON.
"""

import contextlib
import io
import json
import sys

from IPython.core.interactiveshell import InteractiveShell

import oommagic


def main() -> None:
    """Run each workload's pairs of cells."""
    asked = json.load(sys.stdin)
    shell = InteractiveShell.instance()
    _run(shell, "%load_ext oommagic")
    found = {name: _pairs(shell, work, asked["pairs"]) for name, work in asked["work"].items()}
    print(json.dumps({"pairs": found, "engine": oommagic.last_report().engine.name}))


def _pairs(shell: InteractiveShell, work: dict[str, str], count: int) -> list[list[float]]:
    """Time the cell plain and profiled, the plain one first in every other pair."""
    _run(shell, work["preparation"])
    plain, profiled = work["body"], f"%%oomprofile\n{work['body']}"
    pairs = []
    for number in range(count):
        first, second = (plain, profiled) if number % 2 == 0 else (profiled, plain)
        times = {cell: _timed(shell, cell) for cell in (first, second)}
        pairs.append([times[plain], times[profiled]])
    return pairs


def _timed(shell: InteractiveShell, cell: str) -> float:
    """Run a cell and read the time that it took by its own clock."""
    shell.user_ns.pop("elapsed_s", None)
    _run(shell, cell)
    return float(shell.user_ns["elapsed_s"])


def _run(shell: InteractiveShell, cell: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        shell.run_cell(cell).raise_error()


if __name__ == "__main__":
    main()
