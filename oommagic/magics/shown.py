"""What IPython is given to show: words for terminals, HTML for notebooks."""

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.display import publish_display_data

from oommagic.report import Report

# A profiler that is loaded but not used should cost nothing: whatever draws is imported where it
# is first needed.
if TYPE_CHECKING:
    from oommagic.devices import Overview
    from oommagic.explain.plan import Plan
    from oommagic.report import Trial
    from oommagic.session import Explanation

# By its name, so that a kernel that plans nothing imports nothing for it.
_PLAN = ("oommagic.explain.plan", "Plan")


def teach(formatter: Any) -> None:
    """Have a shell show our values by themselves, as a cell's last value."""
    for kind, render in _RENDERERS.items():
        formatter.formatters[kind].for_type(Report, render)
    formatter.mimebundle_formatter.for_type_by_name(*_PLAN, _plan_bundle)


def forget(formatter: Any) -> None:
    """Take that away again."""
    for kind in _RENDERERS:
        formatter.formatters[kind].pop(Report, None)
    plans = formatter.mimebundle_formatter
    plans.deferred_printers.pop(_PLAN, None)
    for kind in [kind for kind in plans.type_printers if kind.__module__ == _PLAN[0]]:
        plans.type_printers.pop(kind)


def report(told: Report, *, has_widgets: bool) -> None:
    """Show a report, and below it a panel of its suggestions where that can be displayed."""
    from oommagic.show import html

    has_panel = has_widgets and bool(told.findings)
    page = html.render(told, beside_panel=has_panel)
    publish_display_data({"text/plain": _render_text(told), "text/html": page})
    if has_panel:
        publish_display_data(_panel(told))


def _panel(told: Report) -> dict[str, object]:
    from oommagic import session
    from oommagic.show.advice_panel import panel

    def measure(number: int, progress: Callable[[str], None]) -> "Trial":
        (trial,) = session.try_fixes(told, [number], progress=progress)
        return trial

    listen = partial(session.tell_of_trials, told)
    return panel(told.findings, told.trials, measure, listen)


def devices(overview: "Overview") -> None:
    """Show what there is to train on."""
    from oommagic.show import devices as shown

    text, html = shown.render_text(overview), shown.render_html(overview)
    publish_display_data({"text/plain": text, "text/html": html})


def why(explanation: "Explanation") -> None:
    """Show why memory ran out."""
    from oommagic.show.why_html import why_html
    from oommagic.show.why_text import why_text

    told = explanation.verdict, explanation.compositions
    advice: Any = {"findings": explanation.findings, "trials": explanation.trials}
    text, html = why_text(*told, **advice), why_html(*told, **advice)
    publish_display_data({"text/plain": text, "text/html": html})


def say(sentence: str) -> None:
    """Say something beside what the cell itself shows."""
    # One write: a kernel sends what is written when it likes, and would send the end apart.
    sys.stderr.write(f"{sentence}\n")


def _as_text(told: Report, printer: Any, _cycle: object) -> None:
    printer.text(_render_text(told))


def _render_text(told: Report) -> str:
    from oommagic.show import text

    return text.render(told)


def _render_html(told: Report) -> str:
    from oommagic.show import html

    return html.render(told)


def _plan_bundle(plan: "Plan", **_asked: object) -> dict[str, object]:
    from oommagic.show import planner

    return planner.bundle(plan.forecast)


_RENDERERS: dict[str, Callable[..., Any]] = {"text/plain": _as_text, "text/html": _render_html}
