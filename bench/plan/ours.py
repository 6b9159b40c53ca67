"""Runs in a process of its own, without a training device: asks `oommagic.plan`.

`python -m bench.plan.ours MODEL OPTIMIZER JIT LIMIT BATCH...` prints low, peak and high for each
batch, for the largest that it says fits the limit too, and how long that took; and what its steps
ask for, added up without the allocator's rules.
"""

import json
import sys
from time import perf_counter
from typing import Any

from bench.plan.live_requests import highest_live
from bench.plan.models import build

_ROWS = 8


def main() -> None:
    """Make the plan, and ask it everything."""
    import oommagic
    from oommagic.errors import OommagicError

    name, optimizer, jit, limit, *batches = sys.argv[1:]
    model, make_batch = build(name, optimizer, jit=jit == "compiled")
    began_s = perf_counter()
    try:
        plan = oommagic.plan(model, make_batch(_ROWS))
        seconds = perf_counter() - began_s
        said = _answers(plan, int(limit), [int(batch) for batch in batches])
        said["seconds"] = round(seconds, 2)
    except OommagicError as error:
        said = {"failure": str(error)}
    print(json.dumps(said))


def _answers(plan: Any, limit_bytes: int, batches: list[int]) -> dict[str, Any]:
    largest = plan.max_batch(limit_bytes)
    figures, slowest_s = {}, 0.0
    for batch in dict.fromkeys([*batches, largest or 1]):
        began_s = perf_counter()
        peak_bytes = plan.peak_bytes(batch)
        slowest_s = max(slowest_s, perf_counter() - began_s)
        low_bytes, high_bytes = plan.range_bytes(batch)
        figures[batch] = (low_bytes, peak_bytes, high_bytes)
    scripts = plan._scripts  # noqa: SLF001 (to record them again takes as long as the plan)
    return {
        "max_batch": largest,
        "figures": figures,
        "lookup_ms": round(slowest_s * 1000, 3),
        "live requests": {batch: highest_live(scripts, batch) for batch in batches},
    }


if __name__ == "__main__":
    main()
