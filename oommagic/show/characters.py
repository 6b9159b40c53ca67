"""Foreign text made fit to show: nothing hidden in it, and its width on a screen known."""

import unicodedata
from itertools import accumulate

_TAB_WIDTH = 4
_MOST_LABEL = 24
_JOINERS = "\u200c\u200d"
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_COMBINING_CATEGORIES = frozenset({"Mn", "Me"})


def visible(text: str) -> str:
    """Spell out what would be invisible or turn the text around; expand tabs.

    Joiners stay: they hold emoji and some scripts together, and can turn nothing around.
    """
    expanded = text.rstrip("\r\n").expandtabs(_TAB_WIDTH)
    return "".join(map(_spelled, expanded))


def label(name: str) -> str:
    """Make a name of a device or a lane fit to stand at the head of a column."""
    return cut(visible(name), _MOST_LABEL)


def width(text: str) -> int:
    """Count the terminal columns that a visible text takes."""
    return sum(map(_columns, text))


def cut(text: str, room: int) -> str:
    """Shorten a visible text to so many terminal columns, the last one saying so."""
    if len(text) * 2 <= room or width(text) <= room:
        return text
    ends = accumulate(map(_columns, text[:room]))
    return text[: sum(end < room for end in ends)] + "…"


def cut_before(text: str, room: int) -> str:
    """Shorten a visible text from its beginning: what tells layers apart stands at the end."""
    return cut(text[::-1], room)[::-1]


def _spelled(character: str) -> str:
    category = unicodedata.category(character)
    if category not in _HIDDEN_CATEGORIES or character in _JOINERS:
        return character
    code = ord(character)
    if code < ord(" "):
        return chr(0x2400 + code)  # Unicode's pictures of control characters, as in ␛.
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def _columns(character: str) -> int:
    if character in _JOINERS or unicodedata.category(character) in _COMBINING_CATEGORIES:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
