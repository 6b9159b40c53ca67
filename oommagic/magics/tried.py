"""A trial of suggestions: how far it is, and then what it showed in the same place."""

from typing import TYPE_CHECKING

from IPython.display import publish_display_data

from oommagic.magics.place import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oommagic.report import Finding, Trial


def in_terminal(numbers: "Sequence[int]") -> None:
    """Try suggestions, and say on one line how far it is."""
    from oommagic import session

    publish_display_data(_bundle(*session.try_shown(numbers)))


def in_notebook(numbers: "Sequence[int]") -> None:
    """Try suggestions, and show what that showed where it was said how far it is."""
    from oommagic import session

    with Place("Trying") as place:
        tried = session.try_shown(numbers, place.say)
    place.show(_bundle(*tried))


def _bundle(trial: "Trial", findings: "Sequence[Finding]") -> dict[str, object]:
    from oommagic.show.trial_shown import trial_html, trial_text

    return {"text/plain": trial_text(trial, findings), "text/html": trial_html(trial, findings)}
