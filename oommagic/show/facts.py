"""Facts below each other, each with what it is about: as text and as HTML."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from oommagic.show.characters import width
from oommagic.show.page import prose


@dataclass(frozen=True, slots=True)
class Fact:
    """One line below the tables: what it is about, and what there is to say."""

    label: str
    text: str


def fact_lines(facts: Sequence[Fact], room: int) -> Iterator[str]:
    """Write what they say beside what they are about."""
    indent = max((width(fact.label) for fact in facts), default=0) + 2
    for fact in facts:
        label = fact.label + " " * (indent - width(fact.label))
        yield from textwrap.wrap(label + fact.text, room, subsequent_indent=" " * indent)


def facts_in_html(facts: Sequence[Fact]) -> str:
    """Write them as a list of terms."""
    items = "".join(f"<dt>{escape(fact.label)}</dt><dd>{prose(fact.text)}</dd>" for fact in facts)
    return f"<dl class='oom-facts'>{items}</dl>" if items else ""
