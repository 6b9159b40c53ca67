"""A report as plain text: a table for a terminal of 80 to 120 columns."""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from oommagic.report import Report
from oommagic.show.advice_text import advice_lines
from oommagic.show.characters import cut, width
from oommagic.show.facts import fact_lines
from oommagic.show.plan_text import brief_lines
from oommagic.show.table import Detail, Row, Table
from oommagic.show.terminal import room_of
from oommagic.show.view import View, view
from oommagic.show.why_text import composition_lines, verdict_lines

_LEAST_SOURCE = 24
_GROUP_GAP = " │ "
_CROSSING = "─┼─"
_COLUMN_GAP = "  "

_DETAILS = (
    Detail(most_devices=3),
    Detail(most_devices=2),
    Detail(most_devices=2, has_worst=False),
    Detail(most_devices=1),
    Detail(most_devices=1, has_worst=False),
    Detail(most_devices=1, has_worst=False, has_files=False),
)


def render(report: Report, columns: int | None = None) -> str:
    """Say a report in at most so many columns; without a number, as the terminal has."""
    room = room_of(columns)
    fitting = (view(report, detail) for detail in _DETAILS)
    page = next((page for page in fitting if _fits(page, room)), None)
    return "\n".join(_lines(page or view(report, _DETAILS[-1]), room))


def _fits(page: View, room: int) -> bool:
    return all(_Grid(table).left_width + _LEAST_SOURCE <= room for table in page.tables)


def _lines(page: View, room: int) -> Iterator[str]:
    yield from textwrap.wrap(page.headline, room)
    if page.error:
        yield from textwrap.wrap(page.error, room)
    if page.verdict:
        yield ""
        yield from verdict_lines(page.verdict, room)
    if page.advice:
        yield ""
        yield from advice_lines(page.advice, room)
    for table in page.tables:
        if table.rows:
            yield ""
            yield from _table_lines(table, room)
    for composition in page.compositions:
        yield ""
        yield from composition_lines(composition, room)
    if page.plan:
        yield ""
        yield from brief_lines(page.plan, room)
    yield ""
    for note in page.notes:
        yield from textwrap.wrap(f"• {note}", room, subsequent_indent="  ")
    yield from fact_lines((*page.marks, *page.facts), room)


class _Grid:
    """A table's figures as texts, column by column, each as wide as its widest text."""

    def __init__(self, table: Table) -> None:
        self.table = table
        heads = ["line", *(column.title for column in table.columns)]
        rows = [self._texts(row) for row in table.rows]
        self.widths = [max(map(width, texts)) for texts in zip(heads, *rows, strict=True)]
        names = ["", *(column.group for column in table.columns)]
        runs = groupby(range(len(names)), names.__getitem__)
        self.groups = [(name, list(places)) for name, places in runs]
        for name, places in self.groups:
            lacking = width(name) - self._group_width(places)
            self.widths[places[0]] += max(0, lacking)

    @property
    def left_width(self) -> int:
        """The columns that everything before the source takes."""
        return sum(self._group_width(places) + len(_GROUP_GAP) for _, places in self.groups)

    def head(self) -> Iterator[str]:
        if len(self.groups) > 1:
            names = [_centred(name, self._group_width(places)) for name, places in self.groups]
            yield _GROUP_GAP.join([*names, ""]).rstrip()
        yield self._line(["line", *(column.title for column in self.table.columns)], "source")

    def rule(self, room: int) -> str:
        dashes = ["─" * self._group_width(places) for _, places in self.groups]
        return _CROSSING.join([*dashes, "─" * (room - self.left_width)])

    def row(self, row: Row, room: int) -> str:
        return self._line(self._texts(row), cut(row.source, room - self.left_width))

    def _texts(self, row: Row) -> list[str]:
        number = f"→ {row.line_number}" if row.is_stop else str(row.line_number)
        figures = [("▲" if cell.is_peak else "") + cell.text for cell in row.cells]
        return [number, *(figures or [""] * len(self.table.columns))]

    def _line(self, texts: Sequence[str], source: str) -> str:
        padded = [
            " " * (room - width(text)) + text for room, text in zip(self.widths, texts, strict=True)
        ]
        groups = [_COLUMN_GAP.join(padded[place] for place in places) for _, places in self.groups]
        return _GROUP_GAP.join([*groups, source]).rstrip()

    def _group_width(self, places: Sequence[int]) -> int:
        gaps = len(_COLUMN_GAP) * (len(places) - 1)
        return sum(self.widths[place] for place in places) + gaps


def _table_lines(table: Table, room: int) -> Iterator[str]:
    grid = _Grid(table)
    for words in (table.title, table.note):
        yield from textwrap.wrap(words, room)
    yield from grid.head()
    yield grid.rule(room)
    for row in table.rows:
        yield grid.row(row, room)


def _centred(text: str, room: int) -> str:
    left = (room - width(text)) // 2
    return " " * left + text + " " * (room - width(text) - left)
