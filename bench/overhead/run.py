"""Measures oommagic's overhead beside four other memory profilers'.

Run from the root of the checkout: `python -m bench.overhead.run`. `BENCH_QUICK=1` runs a
fraction of it, to see that everything runs; its figures mean little and go to a scratch folder.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from bench.environments import prepare
from bench.overhead.measuring import Comparison, Effort, compare, run_round
from bench.overhead.table import markdown
from bench.overhead.workloads import load_all

PYTHONS = ("3.11", "3.12")
FULL = Effort(rounds=2, pairs=5, scale=0.4)
QUICK = Effort(rounds=1, pairs=2, scale=0.02)


def main() -> int:
    """Measure, say each figure as it comes, write both files; fail if ours did not run."""
    quick = os.environ.get("BENCH_QUICK") == "1"
    effort = QUICK if quick else FULL
    folder = Path(tempfile.mkdtemp(prefix="overhead-")) if quick else Path(__file__).parent
    results: dict[str, list[Comparison]] = {}
    versions = {}
    workloads = load_all()
    for python in PYTHONS:
        here = prepare(python)
        versions[python] = here.versions
        rounds = [run_round(here, workloads, effort) for _ in range(effort.rounds)]
        results[python] = list(compare(here, workloads, rounds))
        for comparison in results[python]:
            print(f"{python} {_line(comparison)}", flush=True)
    table = markdown(results, versions, workloads, effort)
    (folder / "results.md").write_text(table, encoding="utf-8")
    (folder / "results.json").write_text(_as_json(results, versions, effort), encoding="utf-8")
    print(f"Written: {folder}/results.md and results.json")
    ours = (found for row in results.values() for found in row if found.profiler == "oomprofile")
    return 1 if any(found.failures for found in ours) else 0


def _line(found: Comparison) -> str:
    figure = f"{found.ratio:.3f}×" if found.ratios else ""
    words = " ".join(part for part in (figure, found.engine, *found.failures) if part)
    return f"{found.workload:16} {found.profiler:16} {words}"


def _as_json(
    results: dict[str, list[Comparison]], versions: Mapping[str, object], effort: Effort
) -> str:
    document = {
        "effort": asdict(effort),
        "versions": versions,
        "results": {python: [asdict(one) for one in row] for python, row in results.items()},
    }
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    sys.exit(main())
