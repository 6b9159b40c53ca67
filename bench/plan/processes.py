"""Fresh processes: each figure comes from one of its own."""

import json
import os
import subprocess
import sys
from typing import Any

from bench.environments import ROOT, last_line
from bench.plan.cases import Case

AMPLE_MB = 8192
"""A device on which none of the models gets near the limit."""
_TIME_OUT_S = 300
"""A failed allocation waits for ten seconds, and several can wait one after the other."""


def ask(module: str, case: Case, *arguments: object) -> dict[str, Any]:
    """Let a module of this folder answer in a process without a training device."""
    answer = _run(module, case, arguments, {})
    if "outcome" in answer:
        raise RuntimeError(f"{case.name}: {module} {arguments}: {answer}")
    return answer


def train(case: Case, batch: int, device_mb: int = AMPLE_MB) -> dict[str, Any]:
    """Train real steps on a training device of that size; `outcome` says how that went."""
    device = {
        "TF_CPU_ALLOCATOR_USE_BFC": "true",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(device_mb),
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    answer = _run("child", case, (batch, case.steps), device)
    if answer["outcome"] == "failed":
        raise RuntimeError(f"{case.name} at batch {batch}: {answer['message']}")
    return answer


def peaks(case: Case, batch: int) -> list[int]:
    """Give the peak of each of several steps on a device that is never nearly full."""
    answer = train(case, batch)
    if answer["outcome"] != "fits":
        raise RuntimeError(f"{case.name} at batch {batch}: {answer}")
    found: list[int] = answer["peaks"]
    return found


def _run(
    module: str, case: Case, arguments: tuple[object, ...], device: dict[str, str]
) -> dict[str, Any]:
    jit = "compiled" if case.is_compiled else "plain"
    words = [case.model, case.optimizer, jit, *map(str, arguments)]
    try:
        child = subprocess.run(
            [sys.executable, "-m", f"bench.plan.{module}", *words],
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **device},
            timeout=_TIME_OUT_S,
        )
    except subprocess.TimeoutExpired:
        return {"outcome": "timed out"}
    if child.returncode:
        is_signal = child.returncode < 0
        message = f"signal {-child.returncode}" if is_signal else last_line(child.stderr)
        return {"outcome": "died" if is_signal else "failed", "message": message}
    told: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return told
