"""What one trial showed, by itself: under `%oomtry`, or as the value of `oommagic.try_fixes`."""

from collections.abc import Sequence

from oommagic.report import Finding, Trial
from oommagic.show.advice_html import trial_parts
from oommagic.show.advice_text import trial_lines
from oommagic.show.page import page
from oommagic.show.terminal import room_of
from oommagic.show.trial_view import trial_view


def trial_text(trial: Trial, findings: Sequence[Finding] = (), columns: int | None = None) -> str:
    """Say it for a terminal."""
    return "\n".join(trial_lines(trial_view(trial, findings), room_of(columns)))


def trial_html(trial: Trial, findings: Sequence[Finding] = ()) -> str:
    """Say it for a notebook."""
    return page(trial_parts(trial_view(trial, findings)))
