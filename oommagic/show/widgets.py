"""Widgets of a report and of a plan; the one place that knows ipywidgets and anywidget.

A widget holds all that it shows in its own state, so a saved notebook shows it without a kernel.
"""

from collections.abc import Sequence
from importlib.resources import files

import anywidget
import traitlets

from oommagic.devices import Card
from oommagic.report import Forecast, Report
from oommagic.show.characters import cut
from oommagic.show.lanes import DrawnLane, DrawnTimeline, draw
from oommagic.show.plan_state import planner_state

_MOST_MOMENTS = 480
_MOST_WORDS = 200

_HERE = files("oommagic.show")
_STYLE = _HERE.joinpath("style.css").read_text(encoding="utf-8")


class TimelineView(anywidget.AnyWidget):
    """The lanes of a run, with a cursor that says what stood where and which line ran."""

    _esm = _HERE.joinpath("timeline.js").read_text(encoding="utf-8")
    _css = _STYLE

    drawing = traitlets.Dict().tag(sync=True)


class PlannerView(anywidget.AnyWidget):
    """A slider over batch sizes, and what each takes of the device."""

    _esm = _HERE.joinpath("planner.js").read_text(encoding="utf-8")
    _css = _STYLE

    plan = traitlets.Dict().tag(sync=True)
    batch = traitlets.Int(0).tag(sync=True)
    """The size that the slider stands at."""


def timeline(report: Report) -> TimelineView:
    """Make the widget of a report's lanes."""
    drawn = draw(report, _MOST_MOMENTS)
    return TimelineView(drawing={} if drawn is None else _drawing(drawn))


def planner(forecast: Forecast, cards: Sequence[Card] = ()) -> PlannerView:
    """Make the slider of a forecast; cards are other limits to choose from."""
    state = planner_state(forecast, cards)
    return PlannerView(plan=state.plan, batch=state.batch)


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
