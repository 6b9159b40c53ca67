"""Suggestions as a panel to display, below a report that says the same without a kernel."""

from collections.abc import Sequence

from oommagic.report import Finding, Trial
from oommagic.show.measuring import Listen, Measure


def panel(
    findings: Sequence[Finding],
    trials: Sequence[Trial] = (),
    measure: Measure | None = None,
    listen: Listen | None = None,
) -> dict[str, object]:
    """Give the panel; it is shown apart from the report, as a slider is from its plan."""
    from oommagic.show.widgets import advice, displayed

    what = "A panel of the suggestions, which the report has, too"
    return displayed(advice(findings, trials, measure, listen), what)
