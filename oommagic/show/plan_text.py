"""Which batch fits, as plain text."""

import textwrap
from collections.abc import Iterator, Sequence

from oommagic.report import Forecast
from oommagic.show.characters import cut, width
from oommagic.show.facts import fact_lines
from oommagic.show.plan_view import BRIEF_TITLE, PlanView, SizeRow, plan_view
from oommagic.show.terminal import room_of
from oommagic.show.why_text import kind_lines

_GAP = "  "
_LONGEST_BAR = 40
_SURE, _IN_RANGE, _LIMIT = "█", "▒", "│"


def plan_text(forecast: Forecast, columns: int | None = None) -> str:
    """Say a forecast in at most so many columns; without a number, as the terminal has."""
    return "\n".join(_lines(plan_view(forecast), room_of(columns)))


def brief_lines(view: PlanView, room: int) -> Iterator[str]:
    """Say a forecast as a part of something longer."""
    yield from textwrap.wrap(f"{BRIEF_TITLE} {view.headline}", room)
    yield ""
    yield from _table_lines(view, room)
    yield ""
    yield from _note_lines(view.notes, room)


def _lines(view: PlanView, room: int) -> Iterator[str]:
    yield from textwrap.wrap(view.headline, room)
    yield ""
    if view.rows:
        yield from textwrap.wrap(view.title, room)
        yield from _table_lines(view, room)
        yield ""
    if view.parts:
        yield from textwrap.wrap(view.parts_title, room)
        yield from kind_lines(view.parts)
        yield ""
    yield from _note_lines(view.notes, room)
    yield from fact_lines(view.facts, room)


def _note_lines(notes: Sequence[str], room: int) -> Iterator[str]:
    for note in notes:
        yield from textwrap.wrap(f"• {note}", room, subsequent_indent="  ")


def _table_lines(view: PlanView, room: int) -> Iterator[str]:
    lefts = _lefts(view.rows)
    said = max(width(row.said) for row in view.rows)
    bar = max(0, min(_LONGEST_BAR, room - len(lefts[0]) - said - 2 * len(_GAP) - 1))
    limit = None if view.limit is None else round(view.limit * bar)
    yield f"{lefts[0]}{_GAP}{_limit_head(view.limit_text, limit, bar)}".rstrip()
    yield "─" * min(room, len(lefts[0]) + 2 * len(_GAP) + bar + 1 + said)
    for row, left in zip(view.rows, lefts[1:], strict=True):
        yield cut(f"{left}{_GAP}{_bar(row, limit, bar)}{_GAP}{row.said}".rstrip(), room)


def _lefts(rows: Sequence[SizeRow]) -> list[str]:
    """Lay out the columns of figures, the heads first."""
    texts = [("batch", "peak", "range")]
    for row in rows:
        arrow = "→ " if row.is_answer else ""
        texts.append((f"{arrow}{row.batch}", row.peak_text, row.range_text))
    widths = [max(map(width, column)) for column in zip(*texts, strict=True)]
    return [
        _GAP.join(f"{text:>{room}}" for text, room in zip(line, widths, strict=True))
        for line in texts
    ]


def _limit_head(text: str, limit: int | None, bar: int) -> str:
    """Write what the limit is so that it ends above its mark, or begins there if need be."""
    if limit is None:
        return ""
    shown = cut(text, bar + 1)
    return " " * max(0, limit + 1 - width(shown)) + shown


def _bar(row: SizeRow, limit: int | None, bar: int) -> str:
    """Draw a bar up to the low figure, its range lighter, the limit across both."""
    low, high = round(row.low * bar), round(row.high * bar)
    signs = list((_SURE * low + _IN_RANGE * (high - low)).ljust(bar + 1))
    if limit is not None:
        signs.insert(limit, _LIMIT)
    return "".join(signs[: bar + 1])
