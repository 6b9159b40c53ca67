"""A report as one piece of HTML: its own style, no script, nothing fetched."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain, groupby

from oommagic.report import Report
from oommagic.show.advice_html import advice_parts
from oommagic.show.characters import cut
from oommagic.show.facts import facts_in_html
from oommagic.show.lanes import DrawnLane, DrawnTimeline, Values, draw, runs_of_readings
from oommagic.show.page import items, page
from oommagic.show.plan_html import brief_parts
from oommagic.show.table import Column, Row, Table
from oommagic.show.view import View, view
from oommagic.show.why_html import composition_parts, verdict_parts

_MOST_SOURCE = 400
_MOST_WORDS = 120
_MOST_MOMENTS = 300

# JupyterLab takes the style sheet and the drawings away from a notebook that it does not trust:
# the source must stay readable without the one, and the drawings' words out of the way.
_SOURCE_STYLE = "text-align:left;white-space:pre;font-family:monospace"
# Of a style it leaves plain lengths: a notebook with widgets brings the sheet along with them.
_BAR_STYLE = "background-size:{:.1%} 17px"


def render(report: Report, *, beside_panel: bool = False) -> str:
    """Say a report in HTML that can stand in any page.

    Its suggestions are folded where a panel shows them below: where that is missing, in a notebook
    that was saved without its widgets, they are still there.
    """
    said = view(report)
    parts = (
        *_summary(said),
        *(advice_parts(said.advice, is_folded=beside_panel) if said.advice else ()),
        *(_table(table) for table in said.tables if table.rows),
        *chain.from_iterable(map(composition_parts, said.compositions)),
        *(brief_parts(said.plan) if said.plan else ()),
        *_timeline(draw(report, _MOST_MOMENTS)),
        *items(said.notes),
        facts_in_html(said.marks),
        "<details><summary>Where the figures come from</summary>",
        facts_in_html(said.facts),
        "</details>",
    )
    return page(parts)


def _summary(said: View) -> Iterator[str]:
    failure = " class='oom-failure'" if said.is_failure else ""
    yield f"<div{failure}><p class='oom-headline'>{escape(said.headline)}</p>"
    if said.error:
        yield f"<p class='oom-error'>{escape(said.error)}</p>"
    if said.verdict:
        yield from verdict_parts(said.verdict)
    yield "</div>"


def _table(table: Table) -> str:
    parts = (
        "<div class='oom-scroll'><table class='oom-lines'>",
        _caption(table),
        "<thead>",
        _groups(table.columns),
        _heads(table.columns),
        "</thead><tbody>",
        *(_row(row, table.columns) for row in table.rows),
        "</tbody></table></div>",
    )
    return "".join(parts)


def _caption(table: Table) -> str:
    if not table.title:
        return ""
    note = f"<span>{escape(table.note)}</span>" if table.note else ""
    return f"<caption>{escape(table.title)}{note}</caption>"


def _groups(columns: Sequence[Column]) -> str:
    cells = ["<td></td>"]
    for group, members in groupby(columns, lambda column: column.group):
        span = len(list(members))
        if group:
            cells.append(
                f"<th scope='colgroup' colspan='{span}' class='oom-first'>{escape(group)}</th>"
            )
        else:
            cells.append("<td></td>" * span)
    return f"<tr>{''.join(cells)}<td class='oom-first'></td></tr>"


def _heads(columns: Sequence[Column]) -> str:
    heads = "".join(
        f"<th scope='col'{_class(first)} title='{escape(column.help)}'>{escape(column.title)}</th>"
        for column, first in zip(columns, _first_of_group(columns), strict=True)
    )
    return (
        f"<tr><th scope='col'>line</th>{heads}"
        f"<th scope='col' class='oom-source oom-first' style='{_SOURCE_STYLE}'>source</th></tr>"
    )


def _row(row: Row, columns: Sequence[Column]) -> str:
    source = escape(cut(row.source, _MOST_SOURCE))
    title = f" title='{source}'" if source else ""
    stop = " class='oom-stop'" if row.is_stop else ""
    arrow = "→ " if row.is_stop else ""
    return (
        f"<tr{stop}><th scope='row'>{arrow}{row.line_number}</th>"
        f"{''.join(_cells(row, columns))}"
        f"<td class='oom-source oom-first' style='{_SOURCE_STYLE}'{title}>{source}</td></tr>"
    )


def _cells(row: Row, columns: Sequence[Column]) -> Iterator[str]:
    firsts = _first_of_group(columns)
    if not row.cells:
        yield from (f"<td{_class(first)}></td>" for first in firsts)
        return
    for cell, column, first in zip(row.cells, columns, firsts, strict=True):
        has_bar = column.title in ("time", "peak") and cell.fraction > 0
        classes = [first, "oom-peak" if cell.is_peak else ""]
        if has_bar:
            classes += ["oom-bar", f"oom-{column.kind}"]
        share = f" style='{_BAR_STYLE.format(cell.fraction)}'" if has_bar else ""
        mark = "▲" if cell.is_peak else ""
        # A figure and its unit stay on one line, in whatever style.
        text = escape(cell.text).replace(" ", "\u00a0")
        yield f"<td{_class(*classes)}{share}>{mark}{text}</td>"


def _first_of_group(columns: Sequence[Column]) -> list[str]:
    before = ["", *(column.group for column in columns)]
    return [
        "oom-first" if column.group != group else ""
        for group, column in zip(before, columns, strict=False)
    ]


def _class(*names: str) -> str:
    used = " ".join(name for name in names if name)
    return f" class='{used}'" if used else ""


def _timeline(timeline: DrawnTimeline | None) -> Iterator[str]:
    if timeline is None:
        return
    yield "<details><summary>Over time</summary><div class='oom-lanes'>"
    rows = len(timeline.lanes)
    # The moments lie over all lanes, so that pointing at one shows it in each.
    yield f"<div class='oom-moments' style='grid-row:1/span {rows}'>{_moments(timeline)}</div>"
    for row, lane in enumerate(timeline.lanes, start=1):
        yield _lane(lane, timeline.moments, row)
    yield _strip(timeline)
    yield f"<div class='oom-ends'><span>0 s</span><span>{timeline.duration_text}</span></div>"
    yield "</div>"
    if timeline.quiet:
        yield f"<p>Nothing to show over time for {escape(', '.join(timeline.quiet))}: always 0.</p>"
    yield "</details>"


def _moments(timeline: DrawnTimeline) -> str:
    rects = "".join(
        f"<rect x='{stretch.start:.4f}' width='{stretch.end - stretch.start:.4f}' y='0' "
        f"height='1'><title>{escape(cut(stretch.words, _MOST_WORDS))}</title></rect>"
        for stretch in timeline.stretches
    )
    return f"<svg viewBox='0 0 1 1' preserveAspectRatio='none' aria-hidden='true'>{rects}</svg>"


def _lane(lane: DrawnLane, moments: Sequence[float], row: int) -> str:
    words = f"{lane.name} over time, between {lane.floor_text} and {lane.ceiling_text}"
    place = f"style='grid-row:{row}'"
    # Filled up to the lowest value of each moment, a line at the highest: what lies between
    # shows how much it moved within the moment.
    area = "".join(_area(lane, moments))
    line = "".join(_line(lane.highs, moments))
    return (
        f"<div class='oom-lane' {place}>{escape(lane.name)}</div>"
        f"<div class='oom-axis' {place}><span>{lane.ceiling_text}</span>"
        f"<span>{lane.floor_text}</span></div>"
        f"<div class='oom-plot oom-{lane.kind}' {place}>"
        f"<svg viewBox='0 0 1 1' preserveAspectRatio='none' role='img' "
        f"aria-label='{escape(words)}'><path class='oom-area' d='{area}'/><path d='{line}'/></svg>"
        "</div>"
    )


def _line(heights: Values, moments: Sequence[float]) -> Iterator[str]:
    for run in runs_of_readings(heights):
        points = _points(heights, moments, run)
        yield "L".join([f"M{points[0]}", *points])  # The first one twice: a lone one is a dot.


def _area(lane: DrawnLane, moments: Sequence[float]) -> Iterator[str]:
    for run in runs_of_readings(lane.lows):
        top = _points(lane.lows, moments, run)
        bottom = [f"{moments[i]:.4f} 1" for i in (run[-1], run[0])]
        yield "M" + "L".join([*top, *bottom]) + "Z"


def _points(heights: Values, moments: Sequence[float], run: Iterable[int]) -> list[str]:
    return [f"{moments[i]:.4f} {1 - (heights[i] or 0.0):.4f}" for i in run]


def _strip(timeline: DrawnTimeline) -> str:
    spans = "".join(
        f"<span style='width:{stretch.end - stretch.start:.2%}' "
        f"title='{escape(cut(stretch.words, _MOST_WORDS))}'>{stretch.line_number or '·'}</span>"
        for stretch in timeline.stretches
    )
    return f"<div class='oom-lane'>line that ran</div><div class='oom-strip'>{spans}</div>"
