"""Which batch fits, as things to display: what stays readable anywhere, and a slider."""

from collections.abc import Sequence

from oommagic.devices import Card
from oommagic.report import Forecast
from oommagic.show.plan_html import plan_html
from oommagic.show.plan_text import plan_text


def bundle(forecast: Forecast, *, beside_slider: bool = False) -> dict[str, object]:
    """Give the forms that a saved notebook keeps, with or without a kernel."""
    html = plan_html(forecast, beside_slider=beside_slider)
    return {"text/plain": plan_text(forecast), "text/html": html}


def slider(forecast: Forecast, cards: Sequence[Card] = ()) -> dict[str, object]:
    """Give the slider; cards are other limits to choose.

    It is shown apart: in one bundle with the others JupyterLab would choose it even in a reopened
    notebook that has not kept it, and show nothing.
    """
    from oommagic.show.widgets import displayed, planner

    return displayed(planner(forecast, cards), "A slider over batch sizes")
