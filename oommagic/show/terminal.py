"""How much room there is for plain text."""

import shutil

_NARROWEST, _WIDEST, _USUAL = 80, 120, 100


def room_of(columns: int | None) -> int:
    """Choose how many columns to fill; without a number, as many as the terminal has."""
    room = columns or shutil.get_terminal_size((_USUAL, 0)).columns
    return min(_WIDEST, max(_NARROWEST, room))
