"""The work that is run plain and under each profiler, in the forms that these ask for."""

import ast
import textwrap
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "work"
_MARK = "# measured\n"
_CLOCK = "from time import perf_counter\n"


@dataclass(frozen=True, slots=True)
class Workload:
    """One piece of work: what prepares it, and what is timed."""

    name: str
    title: str
    setup: str
    body: str
    default_iterations: int

    def preparation(self, iterations: int) -> str:
        """Give the part that is not timed; a cell of its own in a notebook."""
        return f"{_CLOCK}ITERATIONS = {iterations}\n{self.setup}"

    def timed_body(self) -> str:
        """Give the timed part as a cell or a script has it; it leaves `elapsed_s`."""
        return f"started = perf_counter()\n{self.body}elapsed_s = perf_counter() - started\n"

    def script(self, iterations: int) -> str:
        """Write the work as a script that prints how long its timed part took."""
        return self.preparation(iterations) + self.timed_body() + self._say()

    def function(self, iterations: int, decorator: str = "") -> str:
        """Write the work as a script whose timed part is the body of one function."""
        body = textwrap.indent(self.body, "    ")
        call = "started = perf_counter()\nwork()\nelapsed_s = perf_counter() - started\n"
        defined = f"{decorator}\ndef work():\n{body}"
        return f"{self.preparation(iterations)}\n{defined}\n{call}{self._say()}"

    def _say(self) -> str:
        return f'print("\\nMEASURED {self.name}", elapsed_s, ITERATIONS, flush=True)\n'


def load_all() -> tuple[Workload, ...]:
    """Read the workloads, cheapest lines first."""
    names = ("tight_loop", "allocating_loop", "eager_loop", "function_loop", "fit")
    return tuple(_load(name) for name in names)


def _load(name: str) -> Workload:
    text = (_FOLDER / f"{name}.py").read_text(encoding="utf-8")
    setup, body = text.split(_MARK)
    title = ast.get_docstring(ast.parse(text)) or name
    return Workload(name, title.rstrip("."), setup, body, _default_iterations(setup))


def _default_iterations(setup: str) -> int:
    for node in ast.parse(setup).body:
        match node:
            case ast.Assign(targets=[ast.Name("DEFAULT_ITERATIONS")], value=ast.Constant(int(n))):
                return n
    raise LookupError("A workload has to say its DEFAULT_ITERATIONS.")
