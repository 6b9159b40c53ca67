"""Suggestions in words: what to change, and what it saves.

Text, HTML and the panel say the same because all say what stands here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oommagic.report import HOST, Finding, Fix, Saving, Trial
from oommagic.show.characters import label, visible
from oommagic.show.trial_view import TrialView, about, headline, trial_view, view_of

MOST_IN_FRONT = 5
"""A long list helps nobody; the rest stands behind it."""

_TITLE = "Suggestions, the best first"
_ONE = "A suggestion"
_HOW_TO = "%oomfix {0} puts change {0} into a new cell, which you run; %oomtry {0} measures it."

_UNKNOWN = "no saving predicted"

# What comes before the lines of a place that changes: `@@ -12,3 +12,4 @@`.
_PLACE = re.compile(r"@@ -\d{1,9}(?:,\d{1,9})? \+(?P<line>\d{1,9})(?:,\d{1,9})? @@")


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a change; `sign` is `-`, `+`, a space, or `@` where a place begins."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a page says of one suggestion, in the order in which it says it."""

    number: int
    title: str
    mark: str
    """That it makes the cell run, where it does."""
    terms: tuple[str, ...]
    """What it saves, whether results stay the same, what it costs, where it stands."""
    message: str
    changes: str
    instead: str
    change: str
    """What the diff is folded behind, with how results change; empty for a hint."""
    diff: tuple[DiffLine, ...]
    source: str
    """The cell with the change, to be copied; empty for a hint."""
    trial: TrialView | None


@dataclass(frozen=True, slots=True)
class AdviceView:
    """What a page says of all suggestions."""

    title: str
    front: tuple[Suggestion, ...]
    more: str
    """What the others stand behind; empty if there are none."""
    behind: tuple[Suggestion, ...]
    together: tuple[TrialView, ...]
    """Trials of several suggestions at once."""
    how_to: str


def advice_view(findings: Sequence[Finding], trials: Sequence[Trial] = ()) -> AdviceView | None:
    """Put suggestions into words, if there are any."""
    if not findings:
        return None
    alone = {trial.numbers[0]: trial for trial in trials if len(trial.numbers) == 1}
    said = [
        _suggestion(number, finding, alone.get(number))
        for number, finding in enumerate(findings, start=1)
    ]
    changes = [one.number for one in said if one.source]
    return AdviceView(
        title=_TITLE if len(said) > 1 else _ONE,
        front=tuple(said[:MOST_IN_FRONT]),
        more=_more(len(said) - MOST_IN_FRONT),
        behind=tuple(said[MOST_IN_FRONT:]),
        together=tuple(trial_view(trial, findings) for trial in trials if len(trial.numbers) > 1),
        how_to=_HOW_TO.format(changes[0]) if changes else "",
    )


def _more(count: int) -> str:
    if count < 1:
        return ""
    return "1 more suggestion" if count == 1 else f"{count} more suggestions"


def _suggestion(number: int, finding: Finding, trial: Trial | None) -> Suggestion:
    return Suggestion(
        number=number,
        title=visible(finding.title),
        mark=_mark(finding, trial),
        terms=tuple(map(visible, _terms(finding, trial))),
        message=visible(finding.message),
        changes=visible(f"Results change: {finding.changes}") if finding.changes else "",
        instead=_instead(finding.instead_of),
        change=_change(finding),
        diff=_diff(finding.fix),
        # What is copied is code: it stays as it is, but for what no text can hold.
        source="" if finding.fix is None else _encodable(finding.fix.source),
        trial=None if trial is None else view_of(trial, finding.place, finding.saving),
    )


def _mark(finding: Finding, trial: Trial | None) -> str:
    if trial is not None and trial.after.outcome != "finished":
        return ""
    if trial is not None and trial.before.outcome == "ran out":
        return "makes this cell run"
    if not finding.runs_then:
        return ""
    return f"{'may' if finding.is_guess else 'should'} make this cell run"


def _terms(finding: Finding, trial: Trial | None) -> Iterator[str]:
    if trial is not None:
        yield headline(trial, finding.place)
    elif finding.saving is not None or finding.fix is not None:
        yield _predicted(finding.saving)
    yield "a hint" if finding.safety == "hint" else finding.safety
    if finding.cost:
        yield f"cost: {finding.cost}"
    if finding.line_number is not None:
        yield f"line {finding.line_number}"


def _instead(number: int | None) -> str:
    if number is None:
        return ""
    return f"Instead of suggestion {number}: both change the same lines."


def _predicted(saving: Saving | None) -> str:
    if saving is None:
        return _UNKNOWN
    return f"saves about {about(saving)} of {_place(saving.place)}, predicted"


def _place(name: str) -> str:
    return "host memory" if name == HOST else label(name)


def _change(finding: Finding) -> str:
    if finding.fix is None:
        return ""
    return "The change, and how results change" if finding.changes else "The change"


def _diff(fix: Fix | None) -> tuple[DiffLine, ...]:
    return () if fix is None else tuple(map(_diff_line, fix.diff))


def _diff_line(line: str) -> DiffLine:
    if line.startswith("@"):
        place = _PLACE.match(line)
        return DiffLine("@", f"line {place['line']}" if place else visible(line))
    return DiffLine(visible(line[:1]) or " ", visible(line[1:]))


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
