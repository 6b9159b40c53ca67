"""Widgets of a report; the one place that knows ipywidgets and anywidget.

A widget holds all that it shows in its own state, so a saved notebook shows it without a kernel.
"""

from importlib.resources import files

import anywidget
import traitlets

from oommagic.report import Report
from oommagic.show.characters import cut
from oommagic.show.lanes import DrawnLane, DrawnTimeline, draw

_MOST_MOMENTS = 480
_MOST_WORDS = 200

_HERE = files("oommagic.show")


class TimelineView(anywidget.AnyWidget):
    """The lanes of a run, with a cursor that says what stood where and which line ran."""

    _esm = _HERE.joinpath("timeline.js").read_text(encoding="utf-8")
    _css = _HERE.joinpath("style.css").read_text(encoding="utf-8")

    drawing = traitlets.Dict().tag(sync=True)


def timeline(report: Report) -> TimelineView:
    """Make the widget of a report's lanes."""
    drawn = draw(report, _MOST_MOMENTS)
    return TimelineView(drawing={} if drawn is None else _drawing(drawn))


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
