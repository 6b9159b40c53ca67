"""What a trial is asked for: which changes of which cell, for how many steps, on which device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import Protocol

from oommagic.cell import without_ipython
from oommagic.errors import UsageError
from oommagic.explain.advice.engine import overlap, with_all
from oommagic.explain.advice.numbered import fix_numbered
from oommagic.report import DeviceMemory, Finding, HostMemory
from oommagic.tf.step_counts import Budget

_FOR_FITS = 0.1
"""Of the time that a run has: what a loop of `fit` may take before the last one begins."""
_A_FEW = Budget(at_least=4, most=50, seconds=3.0)


class Advised(Protocol):
    """A cell with suggestions, and what it had to run in: a report is one."""

    @property
    def source(self) -> str:
        """The cell, or a block."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Its suggestions."""

    @property
    def devices(self) -> tuple[DeviceMemory, ...]:
        """Its devices, with their limits."""

    @property
    def host(self) -> HostMemory | None:
        """The host's memory, if that was measured."""


@dataclass(frozen=True, slots=True)
class Change:
    """The cell with one or more suggestions."""

    numbers: tuple[int, ...]
    findings: tuple[Finding, ...]
    source: str

    @property
    def title(self) -> str:
        """What to call it while it runs."""
        word = "suggestion" if len(self.numbers) == 1 else "suggestions"
        return f"the cell with {word} {', '.join(map(str, self.numbers))}"


def changes_asked(report: Advised, numbers: Sequence[int] | None) -> tuple[Change, ...]:
    """Give the changes to try, each a cell."""
    if numbers is None:
        found = [n for n, one in enumerate(report.findings, start=1) if one.fix is not None]
        if not found:
            raise UsageError("None of the suggestions changes the cell: there is nothing to try.")
        return tuple(_change(report, (number,)) for number in found)
    if not numbers:
        raise UsageError("Say which suggestions to try, by their numbers.")
    return (_change(report, tuple(dict.fromkeys(numbers))),)


def _change(report: Advised, numbers: tuple[int, ...]) -> Change:
    fixes = {number: fix_numbered(report.findings, number) for number in numbers}
    for number, fix in fixes.items():
        for other in range(1, number):
            if other in fixes and overlap(text_of(report), fixes[other], fix):
                first, second = sorted((number, other))
                raise UsageError(
                    f"Suggestions {first} and {second} change the same lines: try one of them."
                )
    findings = tuple(report.findings[number - 1] for number in numbers)
    return Change(numbers, findings, with_all(text_of(report), fixes.values()))


def text_of(report: Advised) -> str:
    """Give what the suggestions change: a cell, or a block without its indentation."""
    return dedent(report.source)


def budget_of(steps: int | None, timeout_s: float) -> Budget:
    """Say how many steps each run has, and how long a loop of `fit` may go on."""
    if steps is not None and steps < 1:
        raise UsageError("A trial takes one step or more.")
    budget = _A_FEW if steps is None else Budget(steps, steps, 0.0)
    return replace(budget, fits_s=timeout_s * _FOR_FITS)


def python_of(typed: str) -> tuple[str, tuple[str, ...]]:
    """Give a cell as Python alone, and the lines of IPython's own that it had."""
    source, magics = without_ipython(typed)
    if not source:
        raise UsageError("The cell is not Python from its first line to its last: no trial of it.")
    return source, magics


def device_of(report: Advised) -> DeviceMemory | None:
    """Give the device that trains: a GPU rather than the CPU."""
    limited = [one for one in report.devices if one.limit_bytes is not None]
    return min(limited, key=lambda one: (not one.name.startswith("GPU"), one.name), default=None)
