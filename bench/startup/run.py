"""Measures what `import oommagic` and `%load_ext oommagic` take on top of a running IPython.

Run from the root of the checkout: `python -m bench.startup.run`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from bench.environments import Environment, prepare

PYTHONS = ("3.11", "3.12")
_CHILD = """
from time import perf_counter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
started = perf_counter()
import oommagic
shell.run_line_magic("load_ext", "oommagic")
print(perf_counter() - started)
"""


def main() -> int:
    """Measure on each Python, print and write the median, the lowest and the highest."""
    quick = os.environ.get("BENCH_QUICK") == "1"
    results = {python: _measure(prepare(python), 2 if quick else 15) for python in PYTHONS}
    for python, figures in results.items():
        print(
            f"{python} import and load_ext: {figures['median_ms']} ms "
            f"({figures['lowest_ms']} to {figures['highest_ms']})"
        )
    if not quick:
        path = Path(__file__).with_name("results.json")
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(here: Environment, times: int) -> dict[str, float]:
    """Start so many fresh processes; the very first fills the disk's cache and is not counted."""
    taken = [_once(here) * 1000 for _ in range(times + 1)][1:]
    return {
        "median_ms": round(median(taken), 1),
        "lowest_ms": round(min(taken), 1),
        "highest_ms": round(max(taken), 1),
        "processes": times,
    }


def _once(here: Environment) -> float:
    child = subprocess.run([here.python, "-c", _CHILD], check=True, capture_output=True, text=True)
    return float(child.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
