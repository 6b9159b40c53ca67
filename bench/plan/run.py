"""Holds plans against real steps, and against what else says how much memory a step takes.

Run from the root of the checkout: `python -m bench.plan.run`. Each figure is printed and kept as
it comes, in `progress.json`: broken off, the bench goes on where it was, and what real steps took
need not be measured again. `--again` begins anew; `--plans-again` keeps what was measured of real
steps, for a change in how plans are made. Named cases alone are measured, and nothing is written
but the progress: `python -m bench.plan.run "cnn, sgd"`. `--known` measures nothing, and writes
what is known. `BENCH_QUICK=1` plans two small models, to see that everything runs, and writes to a
scratch folder.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import packages_distributions, version
from pathlib import Path
from statistics import median
from typing import Any

from bench.plan import cases
from bench.plan.cases import Case
from bench.plan.findings import Failure, Figure, Finding, answer_from
from bench.plan.ledger import Ledger, NotMeasuredError
from bench.plan.peers import LINE, LINE_SIZES, LIVE, line
from bench.plan.processes import ask, peaks, train
from bench.plan.search import largest_that_fits
from bench.plan.table import markdown

_VERSIONED = ("tensorflow", "keras", "numpy")


def main() -> int:
    """Measure what is not known yet, and write both files; fail where there is no plan."""
    quick = os.environ.get("BENCH_QUICK") == "1"
    folder = Path(tempfile.mkdtemp(prefix="plan-")) if quick else Path(__file__).parent
    asked = _asked()
    ledger = _ledger(folder / "progress.json", asked)
    every = cases.QUICK if quick else cases.ALL
    for case in every:
        if case.name in asked.cases:
            _found(case, ledger)
    if asked.cases:
        return 0
    found, missing = [], []
    for case in every:
        try:
            found.append(_found(case, ledger))
        except NotMeasuredError as error:
            missing.append(str(error))
    findings = [one for one in found if isinstance(one, Finding)]
    failures = [one for one in found if isinstance(one, Failure)]
    here = _here()
    (folder / "results.json").write_text(_as_json(findings, failures, here), encoding="utf-8")
    (folder / "results.md").write_text(
        markdown(findings, failures, missing, here), encoding="utf-8"
    )
    print(f"Written: {folder}/results.md and results.json")
    return 1 if failures else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--plans-again", action="store_true")
    parser.add_argument("--known", action="store_true")
    return parser.parse_args()


def _ledger(path: Path, asked: argparse.Namespace) -> Ledger:
    """Go on with what is known, as far as it is wanted."""
    if asked.again:
        path.unlink(missing_ok=True)
    ledger = Ledger(path, is_closed=asked.known)
    if asked.plans_again:
        ledger.forget("plan")
    return ledger


def _found(case: Case, ledger: Ledger) -> Finding | Failure:
    plan = ledger.recall(
        case.name, "plan", "", lambda: ask("ours", case, case.limit_bytes, *case.sizes)
    )
    if "failure" in plan:
        return Failure(case, plan["failure"])
    answer_outcome = _trial(case, max(plan["max_batch"], 1), ledger)
    largest = largest_that_fits(max(plan["max_batch"], 1), lambda n: _fits(case, n, ledger))
    sizes = [size for size in case.sizes if size <= largest]
    truths = {size: _truth(case, size, ledger) for size in sizes}
    through = {size: int(median(_truth(case, size, ledger))) for size in LINE_SIZES}
    peers = _estimates(case, ledger) | {
        LIVE: _by_size(plan[LIVE]),
        LINE: {size: line(through, size) for size in sizes},
    }
    return Finding(
        case=case,
        figures=tuple(_figure(n, truths[n], plan["figures"][str(n)], peers) for n in sizes),
        seconds=plan["seconds"],
        lookup_ms=plan["lookup_ms"],
        answer=plan["max_batch"],
        answer_outcome=answer_outcome,
        largest=largest,
        peer_answers={
            name: answer_from(figures, case.limit_bytes)
            for name, figures in (peers | {LINE: through}).items()
        },
    )


def _figure(
    batch: int,
    truths: tuple[int, ...],
    plan: Sequence[int],
    peers: Mapping[str, Mapping[int, int | None]],
) -> Figure:
    low, peak, high = plan
    said = {name: figures[batch] for name, figures in peers.items()}
    return Figure(batch, truths, low, peak, high, said)


def _fits(case: Case, batch: int, ledger: Ledger) -> bool:
    """Tell by a trial; what lies below one that fits, or above one that does not, needs none."""
    known = ledger.known(case.name, "trial")
    if any(int(size) >= batch for size, outcome in known.items() if outcome == "fits"):
        return True
    if any(int(size) <= batch for size, outcome in known.items() if outcome == "ran out"):
        return False
    return _trial(case, batch, ledger) == "fits"


def _trial(case: Case, batch: int, ledger: Ledger) -> str:
    outcome: str = ledger.recall(
        case.name, "trial", batch, lambda: train(case, batch, case.limit_mb)["outcome"]
    )
    return outcome


def _truth(case: Case, batch: int, ledger: Ledger) -> tuple[int, ...]:
    """Give the highest peak of several steps, in each of several processes."""

    def measured() -> list[list[int]]:
        return [peaks(case, batch) for _ in range(case.truths)]

    return tuple(map(max, ledger.recall(case.name, "truth", batch, measured)))


def _estimates(case: Case, ledger: Ledger) -> dict[str, dict[int, int | None]]:
    said = ledger.recall(case.name, "estimates", "", lambda: ask("peers", case, *case.sizes))
    return {name: _by_size(figures) for name, figures in said.items()}


def _by_size(figures: Mapping[str, int | None]) -> dict[int, int | None]:
    return {int(size): figure for size, figure in figures.items()}


def _here() -> dict[str, str]:
    """Say on what this ran."""
    homes = packages_distributions()  # TensorFlow comes in several
    found = {name: version(homes[name][0]) for name in _VERSIONED}
    return {"python": sys.version.split()[0], **found, "processors": str(os.cpu_count())}


def _as_json(
    findings: Sequence[Finding], failures: Sequence[Failure], here: Mapping[str, str]
) -> str:
    document: dict[str, Any] = {
        "here": here,
        "findings": [asdict(one) for one in findings],
        "failures": [asdict(one) for one in failures],
    }
    return json.dumps(document, indent=1) + "\n"


if __name__ == "__main__":
    sys.exit(main())
