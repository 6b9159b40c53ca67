"""Asks every rule about a cell, and puts what they say in order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from oommagic.cell import breaks, diff, edited
from oommagic.explain.advice.fitting import is_guess, step_at
from oommagic.explain.advice.rule import Found, Rule
from oommagic.explain.advice.rules import RULES
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit, Finding, Fix

_NO_EFFORT_BYTES = 1
"""What a suggestion without a known saving counts for: it comes behind those with one."""

_BY_HAND = "A comment stands amid what would change, so that is left to you."


def findings_of(
    cell: TypedCell, here: Situation, rules: Sequence[Rule] = RULES
) -> tuple[Finding, ...]:
    """Give the suggestions that help this cell, the best first."""
    said = [
        _said(rule, cell, found)
        for rule in rules
        if _helps(rule, here)
        for found in rule.look(cell, here)
        if _is_worth_saying(rule, found, here)
    ]
    ranked = sorted((one for one in said if not one.is_broken), key=lambda one: one.rank(here))
    findings = [one.finding(here) for one in ranked]
    return tuple(_with_alternatives(cell.text, findings))


@dataclass(frozen=True, slots=True)
class _Said:
    """What one rule said of one place in the cell."""

    rule: Rule
    found: Found
    fix: Fix | None

    @property
    def is_broken(self) -> bool:
        """Whether there should be a fix, and Python could not run the cell with it."""
        return bool(self.found.edits) and self.fix is None

    def runs_then(self, here: Situation) -> bool:
        """Say whether memory ran out, and would suffice with this."""
        found = self.found
        if found.runs_then is not None or not here.ran_out:
            return bool(found.runs_then and here.ran_out)
        limit = here.limit(found.place)
        if found.saving is None or limit is None or found.place != here.place:
            return False
        return _most_needed(here, found.place) - found.saving.low_bytes <= limit

    def rank(self, here: Situation) -> tuple[bool, bool, float, str]:
        """Order: what makes the cell run, then edits before hints, then by saving for the cost."""
        saving = self.found.saving
        worth = (saving.bytes if saving is not None else _NO_EFFORT_BYTES) / self.rule.effort
        return (not self.runs_then(here), self.fix is None, -worth, self.rule.name)

    def finding(self, here: Situation) -> Finding:
        """Put it as a value."""
        rule, found = self.rule, self.found
        return Finding(
            rule=rule.name,
            title=found.title,
            message=found.message,
            safety=rule.safety if self.fix is not None else "hint",
            place=found.place,
            cost=rule.cost,
            changes=found.changes or (rule.fix_safety if rule.safety == "changes results" else ""),
            saving=found.saving,
            runs_then=self.runs_then(here),
            is_guess=self.runs_then(here) and is_guess(here),
            fix=self.fix,
            line_number=found.line_number,
        )


def _said(rule: Rule, cell: TypedCell, found: Found) -> _Said:
    """Make the fix; where that would lose a comment of the user's, leave it at the hint."""
    if _loses_comment(cell, found.edits):
        found = replace(found, edits=(), message=f"{found.message} {_BY_HAND}")
    return _Said(rule, found, _fix(cell, found))


def _loses_comment(cell: TypedCell, edits: Sequence[Edit]) -> bool:
    """Say whether a comment goes; one may move to where another edit writes."""
    written = "".join(edit.text for edit in edits)
    gone = (one for edit in edits for one in cell.comments_in(edit.start, edit.end))
    return any(one not in written for one in gone)


def _most_needed(here: Situation, place: str) -> int:
    """Say what a place would have had to have; of a first step that ran out more was to come."""
    step = step_at(here, here.batch) if place == here.device and here.batch else None
    return max(here.peak(place), step.high_bytes if step is not None else 0)


def _helps(rule: Rule, here: Situation) -> bool:
    """Say whether a rule is about what happened here."""
    return rule.is_a_defect or not here.ran_out or here.cause in rule.causes


def _is_worth_saying(rule: Rule, found: Found, here: Situation) -> bool:
    """Leave out what saves next to nothing, or saves where memory is not short."""
    if found.saving is not None and not here.is_worth(found.saving.bytes, found.place):
        return False
    return rule.is_a_defect or here.is_short(found.place)


def _fix(cell: TypedCell, found: Found) -> Fix | None:
    """Make the edits; None if there are none, or Python can't run what comes out."""
    if not found.edits:
        return None
    source = edited(cell.text, found.edits)
    if source == cell.text or breaks(cell.text, source):
        return None
    return Fix(tuple(found.edits), source, diff(cell.text, source))


def _with_alternatives(text: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Where two fixes touch the same lines, the first is offered, and the other in its place.

    Hints come last: they change nothing by themselves.
    """
    offered: dict[int, Fix] = {}
    hints: list[Finding] = []
    number = 1
    for finding in findings:
        if finding.fix is None:
            hints.append(finding)
            continue
        in_the_way = (n for n, fix in offered.items() if overlap(text, fix, finding.fix))
        instead_of = next(in_the_way, None)
        if instead_of is None:
            offered[number] = finding.fix
        yield replace(finding, instead_of=instead_of)
        number += 1
    yield from hints


def overlap(text: str, one: Fix, other: Fix) -> bool:
    """Say whether two fixes change the same lines, so that only one of them can be made."""
    return any(_touch(text, a, b) for a in one.edits for b in other.edits)


def with_all(text: str, fixes: Iterable[Fix]) -> str:
    """Make several fixes that do not overlap; an import that two of them want comes once."""
    return edited(text, dict.fromkeys(edit for fix in fixes for edit in fix.edits))


def _touch(text: str, one: Edit, other: Edit) -> bool:
    if one == other and one.start == one.end:
        return False
    if _is_new_lines(text, one) or _is_new_lines(text, other):
        return one.start < other.end and other.start < one.end
    (first, last), (others_first, others_last) = _lines(text, one), _lines(text, other)
    return first <= others_last and others_first <= last


def _is_new_lines(text: str, edit: Edit) -> bool:
    """Say whether an edit only puts lines between others."""
    at_start = edit.start == 0 or text[edit.start - 1] == "\n"
    return edit.start == edit.end and at_start and edit.text.endswith("\n")


def _lines(text: str, edit: Edit) -> tuple[int, int]:
    return text.count("\n", 0, edit.start), text.count("\n", 0, max(edit.start, edit.end - 1))
