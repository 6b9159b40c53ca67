"""Results ─► a Markdown table."""

from collections.abc import Mapping, Sequence

from bench.overhead.measuring import Comparison, Effort
from bench.overhead.workloads import Workload

_PROFILERS = ("oomprofile", "memory_profiler", "memray", "scalene", "fil")


def markdown(
    results: Mapping[str, Sequence[Comparison]],
    versions: Mapping[str, Mapping[str, str]],
    workloads: Sequence[Workload],
    effort: Effort,
) -> str:
    """Write one table for each Python, and how it was measured."""
    tables = [
        _table(python, comparisons, versions[python], workloads)
        for python, comparisons in results.items()
    ]
    return "\n".join(["# Overhead\n", _method(effort), *tables])


def _method(effort: Effort) -> str:
    return (
        "How many times longer the same work takes under each profiler than plain, by the clock "
        "inside the work, so that start-up and report are left out. Each ratio is the median, in "
        "brackets the lowest and highest. The work runs in the form that the profiler asks for "
        "and is compared with the plain run of that form: cells of an IPython shell (oomprofile), "
        "a script (memray, scalene, fil), a function of a script (memory_profiler). "
        f"Rounds: {effort.rounds}; in each all ways take turns, and one shell runs "
        f"{effort.pairs} pairs of cells of each work. A process runs the five works one after "
        "the other; one that it did not come to the end of is run again by itself. "
        "memory_profiler gets a thousandth of the tight loop, compared per iteration.\n"
    )


def _table(
    python: str,
    comparisons: Sequence[Comparison],
    versions: Mapping[str, str],
    workloads: Sequence[Workload],
) -> str:
    cells = {(found.workload, found.profiler): found for found in comparisons}
    rows = [
        f"| {work.title} | "
        + " | ".join(_figure(cells[work.name, name]) for name in _PROFILERS)
        + " |"
        for work in workloads
    ]
    listed = ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
    heads = ["| work | " + " | ".join(_PROFILERS) + " |", "|---" * 6 + "|"]
    return "\n".join([f"## Python {python}\n", f"{listed}.\n", *heads, *rows, ""])


def _figure(found: Comparison) -> str:
    if not found.ratios:
        return found.failures[0].replace("|", "\\|")
    digits = 2 if found.ratio < 10 else 0  # a ratio of two thousand has no hundredths
    low, high = min(found.ratios), max(found.ratios)
    figure = f"{found.ratio:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"
    failures = len(found.failures)
    return f"{figure}; {failures} run{'s' * (failures > 1)} failed" if failures else figure
