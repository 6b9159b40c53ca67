"""What all that we show as HTML shares: the frame with its own style, and lists of sentences."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files


def page(parts: Iterable[str]) -> str:
    """Frame parts so that they can stand in any page."""
    return "\n".join(("<div class='oommagic'>", f"<style>{_style()}</style>", *parts, "</div>"))


def items(texts: Sequence[str]) -> Iterator[str]:
    """List sentences, if there are any."""
    if texts:
        yield f"<ul class='oom-notes'>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


@cache
def _style() -> str:
    return files("oommagic.show").joinpath("style.css").read_text(encoding="utf-8")
