"""Which batch fits, as one thing to display: a slider, HTML and text in one bundle."""

from collections.abc import Sequence

from oommagic.devices import Card
from oommagic.report import Forecast
from oommagic.show.plan_html import plan_html
from oommagic.show.plan_text import plan_text

_WIDGET = "application/vnd.jupyter.widget-view+json"


def bundle(forecast: Forecast, cards: Sequence[Card] = ()) -> dict[str, object]:
    """Give every form that a front end can choose from; cards are other limits to choose."""
    from oommagic.show.widgets import planner

    widget = planner(forecast, cards)
    return {
        "text/plain": plan_text(forecast),
        "text/html": plan_html(forecast),
        _WIDGET: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id},
    }
