"""Measures what the tape costs: a step on it, a step after it, its memory, and reading it.

Run from the root of the checkout: `python -m bench.tape.run`. `BENCH_QUICK=1` runs a fraction
of it, to see that everything runs; its figures mean little and go to a scratch folder.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.environments import ROOT, prepare
from bench.tape.child import WORKLOADS

PYTHON = "3.11"
_ARENA = {
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": "4096",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_FIGURES = ("taped", "after", "memory_mb", "end_ms")
_TEXT = """\
# The tape

Each figure is the median, in brackets the lowest and highest. Taped and after are times as long
as plain; memory is the process's peak above what it had before.

| workload | events | taped | after | memory, MB | end, ms |
|---|---|---|---|---|---|
{rows}

A whole eager loop of 5 s, reading included: {whole} times as long as plain.

Reading {events:,} events: {seconds} s a million, with {memory} MB.
"""


def main() -> int:
    """Measure each workload in a process of its own, and write both files."""
    quick = os.environ.get("BENCH_QUICK") == "1"
    folder = Path(tempfile.mkdtemp(prefix="tape-")) if quick else Path(__file__).parent
    python = prepare(PYTHON).python
    results = {}
    for name in (*WORKLOADS, "eager loop", "reading"):
        results[name] = _measure(python, name, 1 if quick else 7)
        print(name, json.dumps(results[name]), flush=True)
    text = json.dumps(results, indent=2) + "\n"
    (folder / "results.json").write_text(text, encoding="utf-8")
    (folder / "results.md").write_text(markdown(results), encoding="utf-8")
    print(f"Written: {folder}/results.md and results.json")
    return 0


def markdown(results: dict[str, Any]) -> str:
    """Write a table of the workloads, and the two other figures below it."""
    rows = [
        f"| {name} | {found['events']:,} | "
        + " | ".join(_range(found[figure]) for figure in _FIGURES)
        + " |"
        for name, found in results.items()
        if name in WORKLOADS
    ]
    read, whole = results["reading"], results["eager loop"]["whole"]
    return _TEXT.format(
        rows="\n".join(rows),
        whole=_range(whole),
        events=read["events"],
        seconds=_range(read["seconds_a_million"]),
        memory=read["memory_mb"],
    )


def _range(found: dict[str, float]) -> str:
    return f"{found['median']} ({found['lowest']}, {found['highest']})"


def _measure(python: Path, name: str, rounds: int) -> dict[str, Any]:
    child = subprocess.run(
        [python, "-m", "bench.tape.child", name, str(rounds)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **_ARENA},
    )
    told: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return told


if __name__ == "__main__":
    sys.exit(main())
