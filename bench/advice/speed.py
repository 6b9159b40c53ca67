"""Measures what it takes to find suggestions for a long cell, after its run.

Run from the root of the checkout: `python -m bench.advice.speed`. The cell is put together from
those that the tests have, up to 200 lines; its run is that of a step that does not fit, so that
every rule that reads cells has to.
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

from oommagic.cell import parse_typed
from oommagic.explain.advice.engine import findings_of
from oommagic.explain.advice.examples import HOST_RAN_OUT, STEP_OF_96
from oommagic.explain.advice.rules import RULES
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = Path(__file__).with_name("speed.json")
LINES = 200
_NAMES = {
    "model": STEP_OF_96.names["model"],
    **dict.fromkeys(("x_train", "X_train", "X", "images", "data"), STEP_OF_96.names["x"]),
}


def _cells() -> Iterator[str]:
    """Yield the tests' cells that are Python below no cell magic."""
    for path in sorted((ROOT / "tests" / "notebook_cells").glob("*.txt")):
        for piece in path.read_text(encoding="utf-8").split("#### ")[1:]:
            text = piece.partition("\n")[2].rstrip("\n")
            if "%%" not in text and parse_typed(text).body:
                yield text


def long_cell() -> str:
    """Put whole cells together, each below the other, up to so many lines."""
    lines: list[str] = []
    for text in _cells():
        own = text.splitlines()
        if len(lines) + len(own) <= LINES:
            lines += own
    return "\n".join(lines)


def runs() -> dict[str, Situation]:
    """Give runs of that cell, each with other rules that have something to say."""
    fitting = replace(STEP_OF_96, cause="none", place="", device_needs_bytes=1)
    return {
        "a step too big for the device": _with_names(STEP_OF_96),
        "a host that ran out": _with_names(HOST_RAN_OUT),
        "memory enough": _with_names(fitting),
    }


def _with_names(here: Situation) -> Situation:
    return replace(here, names={**here.names, **_NAMES})


def main() -> int:
    """Measure each run, print and write the median, the lowest and the highest."""
    times = 3 if os.environ.get("BENCH_QUICK") == "1" else 51
    text = long_cell()
    results = {name: _measure(text, here, times) for name, here in runs().items()}
    for name, one in results.items():
        print(
            f"{name}: {one['median_ms']} ms ({one['lowest_ms']} to {one['highest_ms']}) for "
            f"{one['suggestions']} suggestions"
        )
    if times > 3:
        found = {"lines": len(text.splitlines()), "rules": len(RULES), "runs": results}
        RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(text: str, here: Situation, times: int) -> dict[str, float]:
    taken = []
    for _ in range(times):
        started = perf_counter()
        findings = findings_of(TypedCell(text), here)
        taken.append((perf_counter() - started) * 1000)
    return {
        "median_ms": round(median(taken), 1),
        "lowest_ms": round(min(taken), 1),
        "highest_ms": round(max(taken), 1),
        "suggestions": len(findings),
    }


if __name__ == "__main__":
    sys.exit(main())
