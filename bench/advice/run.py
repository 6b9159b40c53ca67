"""Tries what is suggested for the articles' own programs, on a small device on the CPU.

Run from the root of the checkout, all programs or those that are named:
`python -m bench.advice.run [NAME ...]`. docs/advice.md has the results.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.advice.programs import PROGRAMS
from oommagic.units import format_bytes

RESULTS = Path(__file__).with_name("results.json")
_PATIENCE_S = 900


def main(wanted: Sequence[str]) -> int:
    """Try the programs, print and (where it was all of them) write what came out."""
    names = [one.name for one in PROGRAMS]
    if os.environ.get("BENCH_QUICK") == "1":
        wanted = ["accumulates nothing"]
    found = [one for name in wanted or names for one in _printed(name, _trials(name))]
    if not wanted:
        RESULTS.write_text(json.dumps({"trials": found}, indent=2) + "\n", encoding="utf-8")
    return 0


def _trials(name: str) -> Sequence[Mapping[str, Any]]:
    child = subprocess.run(
        [sys.executable, "-m", "bench.advice.child", name],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_PATIENCE_S,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if child.returncode:
        # TensorFlow can crash where it gets no memory; the others are tried all the same.
        how = f"its process ended with {child.returncode}"
        return [{"program": name, "rule": "", "not_tried": how}]
    tried: Sequence[Mapping[str, Any]] = json.loads(child.stdout.splitlines()[-1])
    return tried


def _printed(name: str, tried: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    print(f"{name}:" if tried else f"{name}: nothing to try", flush=True)
    for one in tried:
        print(f"  {one['rule'] or 'none'}: {_words(one)}", flush=True)
    return tried


def _words(one: Mapping[str, Any]) -> str:
    if "not_tried" in one:
        return str(one["not_tried"])
    before, after = (
        f"{one[f'{when}_outcome']} at {format_bytes(one[f'{when}_bytes'] or 0)}"
        for when in ("before", "after")
    )
    return f"{before}, then {after}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
