"""Widgets of a report, a plan and suggestions; the one place of ipywidgets and anywidget.

A widget holds all that it shows in its own state, so a saved notebook shows it without a kernel.
"""

from collections.abc import Sequence
from importlib.resources import files

import anywidget
import traitlets

from oommagic.devices import Card
from oommagic.report import Finding, Forecast, Report, Trial
from oommagic.show.characters import cut
from oommagic.show.lanes import DrawnLane, DrawnTimeline, draw
from oommagic.show.measuring import Listen, Measure, Measuring
from oommagic.show.plan_state import planner_state

_MOST_MOMENTS = 480
_MOST_WORDS = 200

_WHERE = "a notebook shows it once it is trusted, or the cell has run."
"""JupyterLab shows no widget of a notebook that came from elsewhere."""

_VIEW = "application/vnd.jupyter.widget-view+json"

_HERE = files("oommagic.show")
_STYLE = _HERE.joinpath("style.css").read_text(encoding="utf-8")


class TimelineView(anywidget.AnyWidget):
    """The lanes of a run, with a cursor that says what stood where and which line ran."""

    _esm = _HERE.joinpath("timeline.js").read_text(encoding="utf-8")
    _css = _STYLE

    drawing = traitlets.Dict().tag(sync=True)

    def __repr__(self) -> str:
        """Say what it is, where it is not drawn."""
        return f"The run over time: {_WHERE}"


class PlannerView(anywidget.AnyWidget):
    """A slider over batch sizes, and what each takes of the device."""

    _esm = _HERE.joinpath("planner.js").read_text(encoding="utf-8")
    _css = _STYLE

    plan = traitlets.Dict().tag(sync=True)
    batch = traitlets.Int(0).tag(sync=True)
    """The size that the slider stands at."""


class AdvicePanel(anywidget.AnyWidget):
    """Suggestions, to read, to copy and to measure."""

    _esm = _HERE.joinpath("advice.js").read_text(encoding="utf-8")
    _css = _STYLE

    advice = traitlets.Dict().tag(sync=True)
    activity = traitlets.Dict().tag(sync=True)
    """What is being measured, or what came of it if not a trial."""


def timeline(report: Report) -> TimelineView:
    """Make the widget of a report's lanes."""
    drawn = draw(report, _MOST_MOMENTS)
    return TimelineView(drawing={} if drawn is None else _drawing(drawn))


def planner(forecast: Forecast, cards: Sequence[Card] = ()) -> PlannerView:
    """Make the slider of a forecast; cards are other limits to choose from."""
    state = planner_state(forecast, cards)
    return PlannerView(plan=state.plan, batch=state.batch)


def advice(
    findings: Sequence[Finding],
    trials: Sequence[Trial] = (),
    measure: Measure | None = None,
    listen: Listen | None = None,
) -> AdvicePanel:
    """Make the panel of suggestions; `measure` tries one of them, and runs in a thread.

    `listen` has the panel told of other trials.
    """
    panel = AdvicePanel()
    measuring = Measuring(findings, trials, measure, panel.set_trait)
    if listen is not None:
        listen(measuring.hear)

    def answer(_panel: object, message: object, _buffers: object) -> None:
        # The panel asks so as to know whether there is still a kernel to measure anything.
        if message == {"kind": "hello"}:
            panel.send({"kind": "here"})
        elif isinstance(message, dict) and message.get("kind") == "measure":
            measuring.start(message.get("number"))

    panel.on_msg(answer)
    return panel


def displayed(widget: anywidget.AnyWidget, what: str) -> dict[str, object]:
    """Give the form in which a notebook displays a widget, and what it is where it can't."""
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {"text/plain": f"{what}: {_WHERE}", _VIEW: view}


def _drawing(drawn: DrawnTimeline) -> dict[str, object]:
    return {
        "duration": drawn.duration_text,
        "moments": drawn.moments,
        "times": drawn.moment_texts,
        "words": [cut(words, _MOST_WORDS) for words in drawn.moment_words],
        "lanes": [_lane(lane) for lane in drawn.lanes],
    }


def _lane(lane: DrawnLane) -> dict[str, object]:
    return {
        "name": lane.name,
        "kind": lane.kind,
        "lows": lane.lows,
        "highs": lane.highs,
        "texts": lane.texts,
        "floor": lane.floor_text,
        "ceiling": lane.ceiling_text,
    }
