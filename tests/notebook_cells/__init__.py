"""Cells as people write them in notebooks, each file a family of them."""

from pathlib import Path

_MARK = "#### "


def cells() -> dict[str, str]:
    """Give every cell by what its file says it is."""
    return {
        name: text
        for path in sorted(Path(__file__).parent.glob("*.txt"))
        for name, text in _cells_in(path.read_text(encoding="utf-8"))
    }


def _cells_in(family: str) -> list[tuple[str, str]]:
    pieces = family.removeprefix(_MARK).split(f"\n{_MARK}")
    pairs = (piece.partition("\n") for piece in pieces)
    return [(name, text.removesuffix("\n")) for name, _, text in pairs]
