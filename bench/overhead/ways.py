"""The ways to run a workload: plain, and each profiler as its own documentation says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench.environments import Environment
from bench.overhead.workloads import Workload

Form = Literal["script", "function"]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a workload in a process of its own."""

    name: str
    form: Form
    command: Callable[[Environment], list[str]]
    """What stands before the script's name; the process runs in a scratch folder."""
    shrink: int = 1
    """A profiler that is thousands of times slower gets this much less of the tight loop."""

    def text(self, workload: Workload, iterations: int) -> str:
        """Write one workload in the form that this way needs."""
        if self.form == "script":
            return workload.script(iterations)
        decorator = "@profile" if self.name == "memory_profiler" else ""
        return workload.function(iterations, decorator)

    def iterations(self, workload: Workload, asked: int) -> int:
        """Say how many of the iterations asked for this way gets."""
        return max(1, asked // self.shrink) if workload.name == "tight_loop" else asked


PLAIN: dict[Form, Way] = {
    "script": Way("plain script", "script", lambda here: [str(here.python)]),
    "function": Way("plain function", "function", lambda here: [str(here.python)]),
}

PEERS = (
    Way(
        "memory_profiler",
        "function",
        lambda here: [str(here.python), "-m", "memory_profiler", "-o", "lines.txt"],
        shrink=1_000,
    ),
    Way(
        "memray",
        "script",
        lambda here: [str(here.python), "-m", "memray", "run", "--quiet", "-f", "-o", "memray.bin"],
    ),
    Way(
        "scalene",
        "script",
        lambda here: [str(here.python), "-m", "scalene", "run", "-o", "scalene.json"],
    ),
    Way(
        "fil",
        "script",
        lambda here: [here.command("fil-profile"), "--no-browser", "-o", "fil", "run"],
    ),
)
