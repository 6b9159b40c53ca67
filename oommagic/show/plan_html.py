"""Which batch fits, as HTML: all that can be said of it without a slider."""

from collections.abc import Iterator
from html import escape

from oommagic.report import Forecast
from oommagic.show.facts import facts_in_html
from oommagic.show.page import items, page
from oommagic.show.plan_view import BRIEF_TITLE, PlanView, SizeRow, plan_view
from oommagic.show.why_html import kind_bar

# A notebook that JupyterLab does not trust loses the style sheet and keeps this.
_WORDS = " class='oom-words' style='text-align:left'"


def plan_html(forecast: Forecast, *, beside_slider: bool = False) -> str:
    """Say a forecast in HTML that can stand in any page.

    Its bar is folded where a slider shows it below: where that is missing, it is still there.
    """
    return page(_parts(plan_view(forecast), is_folded=beside_slider))


def brief_parts(view: PlanView) -> Iterator[str]:
    """Say a forecast as a part of something longer."""
    yield f"<p class='oom-title'>{BRIEF_TITLE} {escape(view.headline)}</p>"
    yield _table(view)
    yield from items(view.notes)


def _parts(view: PlanView, *, is_folded: bool) -> Iterator[str]:
    failure = " class='oom-failure'" if view.is_failure else ""
    yield f"<div{failure}><p class='oom-headline'>{escape(view.headline)}</p></div>"
    if view.rows:
        yield f"<p>{escape(view.title)}</p>"
        yield _table(view)
    if view.parts:
        yield _filling(view, is_folded=is_folded)
    yield from items(view.notes)
    yield facts_in_html(view.facts)


def _filling(view: PlanView, *, is_folded: bool) -> str:
    title, bar = escape(view.parts_title), "".join(kind_bar(view.parts))
    if is_folded:
        return f"<details><summary>{title}</summary>{bar}</details>"
    return f"<p class='oom-title'>{title}</p>{bar}"


def _table(view: PlanView) -> str:
    rows = "".join(_row(row, view) for row in view.rows)
    return (
        "<div class='oom-scroll'><table class='oom-lines oom-sizes'><thead><tr>"
        "<th scope='col'>batch</th><th scope='col'>peak</th><th scope='col'>range</th>"
        f"<th scope='col' class='oom-limit-head'>{_limit_head(view)}</th>"
        f"<th scope='col'{_WORDS}></th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _limit_head(view: PlanView) -> str:
    if view.limit is None:
        return ""
    # The words hang on the mark by the same share of their own width: they never leave the column.
    place = f"left:{view.limit:.2%};transform:translateX(-{view.limit:.2%})"
    return f"<div class='oom-above'><span style='{place}'>{escape(view.limit_text)}</span></div>"


def _row(row: SizeRow, view: PlanView) -> str:
    arrow = "→ " if row.is_answer else ""
    chosen = " class='oom-answer'" if row.is_answer else ""
    return (
        f"<tr{chosen}><th scope='row'>{arrow}{row.batch}</th>"
        f"<td>{_unbroken(row.peak_text)}</td><td>{_unbroken(row.range_text)}</td>"
        f"<td class='oom-reach'>{_bar(row, view.limit)}</td>"
        f"<td{_WORDS}>{_unbroken(row.said)}</td></tr>"
    )


def _bar(row: SizeRow, limit: float | None) -> str:
    """Draw a bar up to the low figure, its range lighter, the limit across both."""
    unsure = max(0.0, row.high - row.low)
    mark = "" if limit is None else f"<span class='oom-limit' style='left:{limit:.2%}'></span>"
    return (
        f"<div class='oom-gauge' aria-hidden='true'>"
        f"<span class='oom-sure' style='width:{row.low:.2%}'></span>"
        f"<span class='oom-unsure' style='width:{unsure:.2%}'></span>{mark}</div>"
    )


def _unbroken(text: str) -> str:
    """Keep figures and their units on one line, in whatever style."""
    return escape(text).replace(" ", "\u00a0")
