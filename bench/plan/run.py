"""Holds plans against real steps, and against what else says how much memory a step takes.

Run from the root of the checkout: `python -m bench.plan.run`. Each figure is printed and kept as
it comes: broken off, the bench goes on where it was. `--again` begins anew; `--plans-again` keeps
what was measured of real steps, for a change in how plans are made. `BENCH_QUICK=1` plans two
small models, to see that everything runs, and writes to a scratch folder.
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
from typing import Any

from bench.plan import cases
from bench.plan.cases import Case
from bench.plan.findings import Failure, Figure, Finding, answer_from
from bench.plan.ledger import Ledger
from bench.plan.peers import ESTIMATES, LINE, LINE_SIZES, line
from bench.plan.processes import ask, peaks, train
from bench.plan.search import largest_that_fits
from bench.plan.table import markdown

SIZES = (4, 16, 64, 128, 256)
_VERSIONED = ("tensorflow", "keras", "numpy")


def main() -> int:
    """Measure what is not known yet, and write both files; fail where there is no plan."""
    quick = os.environ.get("BENCH_QUICK") == "1"
    folder = Path(tempfile.mkdtemp(prefix="plan-")) if quick else Path(__file__).parent
    ledger = _ledger(folder / "progress.json")
    found = [_found(case, ledger) for case in (cases.QUICK if quick else cases.ALL)]
    findings = [one for one in found if isinstance(one, Finding)]
    failures = [one for one in found if isinstance(one, Failure)]
    here = _here()
    (folder / "results.json").write_text(_as_json(findings, failures, here), encoding="utf-8")
    (folder / "results.md").write_text(markdown(findings, failures, here), encoding="utf-8")
    print(f"Written: {folder}/results.md and results.json")
    return 1 if failures else 0


def _ledger(path: Path) -> Ledger:
    """Go on with what is known, as far as it is wanted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--plans-again", action="store_true")
    asked = parser.parse_args()
    if asked.again:
        path.unlink(missing_ok=True)
    ledger = Ledger(path)
    if asked.plans_again:
        ledger.forget("plan", "live requests")
    return ledger


def _found(case: Case, ledger: Ledger) -> Finding | Failure:
    plan = ledger.recall(case.name, "plan", "", lambda: ask("ours", case, case.limit_bytes, *SIZES))
    if "failure" in plan:
        return Failure(case, plan["failure"])
    largest = largest_that_fits(max(plan["max_batch"], 1), lambda n: _fits(case, n, ledger))
    sizes = _sizes(plan["max_batch"], largest)
    truths = {size: _truth(case, size, ledger) for size in sizes}
    peers = {name: _peer(case, name, sizes, ledger) for name in ESTIMATES}
    through = {size: _truth(case, size, ledger) for size in LINE_SIZES}
    peers[LINE] = {size: line(through, size) for size in sizes}
    return Finding(
        case=case,
        figures=tuple(_figure(n, truths[n], plan["figures"][str(n)], peers) for n in sizes),
        seconds=plan["seconds"],
        lookup_ms=plan["lookup_ms"],
        answer=plan["max_batch"],
        answer_outcome=_trial(case, max(plan["max_batch"], 1), ledger),
        largest=largest,
        peer_answers={
            name: answer_from(figures, case.limit_bytes) for name, figures in peers.items()
        },
    )


def _sizes(answer: int, largest: int) -> list[int]:
    """Take the usual sizes that fit, and the one that was said to be the largest."""
    return sorted({*(size for size in SIZES if size <= largest), max(answer, 1)})


def _figure(
    batch: int, truth: int, plan: Sequence[int], peers: Mapping[str, Mapping[int, int | None]]
) -> Figure:
    low, peak, high = plan
    said = {name: figures[batch] for name, figures in peers.items()}
    return Figure(batch, truth, low, peak, high, said)


def _fits(case: Case, batch: int, ledger: Ledger) -> bool:
    return _trial(case, batch, ledger) == "fits"


def _trial(case: Case, batch: int, ledger: Ledger) -> str:
    outcome: str = ledger.recall(
        case.name, "trial", batch, lambda: train(case, batch, case.limit_mb)["outcome"]
    )
    return outcome


def _truth(case: Case, batch: int, ledger: Ledger) -> int:
    """Give the highest peak of several steps."""
    return int(max(ledger.recall(case.name, "truth", batch, lambda: peaks(case, batch))))


def _peer(case: Case, name: str, sizes: Sequence[int], ledger: Ledger) -> dict[int, int | None]:
    wanted = " ".join(map(str, sizes))
    said = ledger.recall(case.name, name, wanted, lambda: ask("peers", case, name, *sizes))
    return {int(size): figure for size, figure in said.items()}


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
