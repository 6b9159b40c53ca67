"""What all that we show as HTML shares: the frame with its own style, sentences, lists of them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files

_CODE = re.compile(r"`([^`\n]+)`")


def page(parts: Iterable[str]) -> str:
    """Frame parts so that they can stand in any page."""
    return "\n".join(("<div class='oommagic'>", f"<style>{_style()}</style>", *parts, "</div>"))


def prose(text: str) -> str:
    """Write a sentence; what stands between backticks in plain text is code here."""
    return _CODE.sub(r"<code class='oom-code'>\1</code>", escape(text))


def items(texts: Sequence[str]) -> Iterator[str]:
    """List sentences, if there are any."""
    if texts:
        yield f"<ul class='oom-notes'>{''.join(f'<li>{prose(text)}</li>' for text in texts)}</ul>"


@cache
def _style() -> str:
    return files("oommagic.show").joinpath("style.css").read_text(encoding="utf-8")
