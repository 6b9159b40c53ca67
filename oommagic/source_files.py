"""How the file in which a line stands is told: IPython's names for cells tell a reader nothing."""

import re

CELL = "<cell>"
"""Stands for the cell that it is all about, whatever IPython calls it."""

_OF_IPYTHON = re.compile(r"<ipython-input-.*>|.*[\\/]ipykernel_\d+[\\/][^\\/]+\.py|In ?\[\d+\]")


def is_cell(filename: str) -> bool:
    """Whether it is the name of no file that IPython gives a cell: in a terminal, in a kernel."""
    return _OF_IPYTHON.fullmatch(filename) is not None


def of_file(filename: str) -> str:
    """Say it behind a line's number: `of the cell`, `of another cell`, `of train.py`."""
    if filename == CELL:
        return "of the cell"
    return "of another cell" if is_cell(filename) else f"of {filename}"
