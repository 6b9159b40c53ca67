"""A report's lanes as a matplotlib figure, to save; the one place that knows matplotlib.

Figures are made as objects, without pyplot: the user's backend and open figures stay untouched.
"""

from __future__ import annotations

import math
from io import BytesIO
from typing import TYPE_CHECKING

from oommagic.show.lanes import DrawnLane, draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from oommagic.report import Report

_INKS = {"host": "#3a82c8", "device": "#c87016", "other": "#7a8086"}
_WIDTH_INCHES = 8.0
_LANE_INCHES = 0.75
_FOOT_INCHES = 0.6
_MOST_MOMENTS = 600


def figure(report: Report) -> Figure:
    """Draw the lanes of a run, one below the other, to look at or for `figure.savefig`."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that a notebook shows without pyplot, which would choose a backend."""

        def _repr_png_(self) -> bytes:
            file = BytesIO()
            self.savefig(file, format="png", dpi="figure")
            return file.getvalue()

    drawn = draw(report, _MOST_MOMENTS)
    if drawn is None:
        picture = Picture(figsize=(_WIDTH_INCHES, _FOOT_INCHES))
        picture.text(0.02, 0.4, "The run was too short for readings over time.")
        return picture
    height = _LANE_INCHES * len(drawn.lanes) + _FOOT_INCHES
    picture = Picture(figsize=(_WIDTH_INCHES, height), layout="constrained")
    rows: list[Axes] = picture.subplots(len(drawn.lanes), 1, sharex=True, squeeze=False)[
        :, 0
    ].tolist()
    for axes, lane in zip(rows, drawn.lanes, strict=True):
        _draw_lane(axes, lane, drawn.moments)
    rows[-1].set_xlim(0, 1)
    rows[-1].set_xticks([0, 1], ["0 s", drawn.duration_text])
    return picture


def _draw_lane(axes: Axes, lane: DrawnLane, moments: Sequence[float]) -> None:
    # NaN is how matplotlib is told of a gap.
    lows = [math.nan if value is None else value for value in lane.lows]
    highs = [math.nan if value is None else value for value in lane.highs]
    ink = _INKS[lane.kind]
    axes.fill_between(moments, lows, highs, color=ink, alpha=0.4, linewidth=0)
    axes.plot(moments, highs, color=ink, linewidth=1.2)
    axes.set_ylim(0, 1.02)  # room for the line's own width
    axes.set_yticks([0, 1], [lane.floor_text, lane.ceiling_text], fontsize=8)
    axes.set_title(lane.name, loc="left", fontsize=9, pad=2, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
