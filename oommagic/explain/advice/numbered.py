"""Suggestions by the numbers with which they are shown."""

from collections.abc import Sequence

from oommagic.errors import UsageError
from oommagic.report import Finding, Fix


def fix_numbered(findings: Sequence[Finding], number: int) -> Fix:
    """Give the change that a suggestion makes of the cell; refuse in words if there is none."""
    if not 1 <= number <= len(findings):
        raise UsageError(f"There is no suggestion {number}: {_there_are(len(findings))}.")
    fix = findings[number - 1].fix
    if fix is None:
        raise UsageError(
            f"Suggestion {number} is a hint: there is no change of the cell to make or to try."
        )
    return fix


def _there_are(count: int) -> str:
    if count > 1:
        return f"they are 1 to {count}"
    return "there is 1" if count else "there is none"
