"""Suggestions as plain text."""

import textwrap
from collections.abc import Iterator, Sequence

from oommagic.show.advice_view import AdviceView, DiffLine, Suggestion
from oommagic.show.characters import cut, width
from oommagic.show.trial_view import HEADS, Figure, TrialView

_INDENT = "   "
_DEEPER = _INDENT + "  "
_GAP = "  "
_MOST_DIFF = 24


def advice_lines(advice: AdviceView, room: int) -> Iterator[str]:
    """Say the suggestions in front with what they change, of the others their titles."""
    yield f"{advice.title}:"
    for one in advice.front:
        yield ""
        yield from _suggestion_lines(one, room)
    if advice.more:
        yield ""
        yield f"{advice.more}:"
        for one in advice.behind:
            yield from _wrapped(f"{_title(one)}: {one.terms[0]}", room)
    for trial in advice.together:
        yield ""
        yield from trial_lines(trial, room)
    if advice.how_to:
        yield ""
        yield from textwrap.wrap(advice.how_to, room)


def _suggestion_lines(one: Suggestion, room: int) -> Iterator[str]:
    yield from _wrapped(_title(one), room)
    yield from _indented(" · ".join(one.terms), room)
    yield from _indented(one.message, room)
    yield from _indented(one.changes, room)
    yield from _indented(one.instead, room)
    yield from _diff_lines(one.diff, room)
    if one.trial:
        yield ""
        yield from _measured_lines(one.trial, room)


def _title(one: Suggestion) -> str:
    return f"{one.number}. {one.title}{f' [{one.mark}]' if one.mark else ''}"


def _wrapped(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, room, subsequent_indent=_INDENT)


def _indented(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, room, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _diff_lines(lines: Sequence[DiffLine], room: int) -> Iterator[str]:
    for line in lines[:_MOST_DIFF]:
        yield cut(f"{_DEEPER}{line.sign} {line.text}", room).rstrip()
    if len(lines) > _MOST_DIFF:
        yield f"{_DEEPER}… {len(lines) - _MOST_DIFF} more lines"


def trial_lines(trial: TrialView, room: int) -> Iterator[str]:
    """Say what a trial showed."""
    yield from _wrapped(trial.headline, room)
    yield from _measured_lines(trial, room)


def _measured_lines(trial: TrialView, room: int) -> Iterator[str]:
    rows = (Figure("", *HEADS), *trial.figures)
    names = max(width(row.name) for row in rows)
    befores = max(width(row.before) for row in rows)
    for row in rows:
        name = row.name + " " * (names - width(row.name))
        before = row.before + " " * (befores - width(row.before))
        yield cut(f"{_DEEPER}{name}{_GAP}{before}{_GAP}{row.after}", room).rstrip()
    for note in trial.notes:
        yield from textwrap.wrap(
            note, room, initial_indent=f"{_DEEPER}• ", subsequent_indent=f"{_DEEPER}  "
        )
