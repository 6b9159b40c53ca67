"""memory_profiler's own line profiler, run on the cell for comparison.

Its figures are its own: memory after each line, and how much that changed. It measures no time,
and what a line allocates and frees again it cannot see.
"""

from types import CodeType, FrameType
from typing import Any

from oommagic.measure.ledger import Ledger
from oommagic.units import MIB

# memory_profiler charges a line with the change since the line before it. This is the line
# before the first one.
_BEFORE_THE_CELL = -1


class MemoryProfilerEngine:
    """Lets memory_profiler's `LineProfiler` trace the watched code, and copies its account."""

    def __init__(self, ledger: Ledger) -> None:
        from memory_profiler import LineProfiler, memory_usage

        class CellProfiler(LineProfiler):  # type: ignore[misc]  # it has no types
            prev_lineno: int | None

            def trace_memory_usage(self, frame: FrameType, event: str, arg: object) -> Any:
                super().trace_memory_usage(frame, event, arg)
                # A statement of a cell begins at line 0, which it takes for "no line before",
                # and would charge all of the process's memory to the first line.
                if self.prev_lineno == 0:
                    measures = self.code_map[frame.f_code]
                    measures[_BEFORE_THE_CELL] = measures.pop(0)
                    self.prev_lineno = _BEFORE_THE_CELL
                return self.trace_memory_usage

        self._ledger = ledger
        self._profiler: Any = CellProfiler(backend="psutil")
        self._memory_mib: float = memory_usage(-1, interval=0)[0]
        self._measures: dict[str, dict[int, tuple[float, float, int]]] = {}
        self._codes: dict[str, CodeType] = {}

    def start(self) -> None:
        """Let the profiler take the trace hook."""
        self._profiler.prev_lineno = _BEFORE_THE_CELL
        self._profiler.enable_by_count()

    def watch(self, code: CodeType, guarded_lines: frozenset[int]) -> None:  # noqa: ARG002
        """Report the lines of one code object from now on."""
        # Its own `code_map.add` refuses code that stands in no file, such as a notebook's.
        before = {_BEFORE_THE_CELL: (0.0, self._memory_mib, 0)}
        measures = self._measures.setdefault(code.co_filename, before)
        self._codes.setdefault(code.co_filename, code)
        self._profiler.code_map[code] = measures

    def adopt(self, frame: FrameType) -> None:
        """Let the profiler trace a frame that runs already."""
        self._profiler.prevlines.append(frame.f_lineno)
        frame.f_trace = self._profiler.trace_memory_usage

    def statement_failed(self) -> None:
        """Do nothing: this engine never pauses."""

    def tick(self, *, silenced: bool) -> None:
        """Do nothing: memory_profiler silences no line."""

    def stop(self) -> str:
        """Give the hook back, and enter what was measured into the ledger."""
        self._profiler.disable_by_count()
        for filename, measures in self._measures.items():
            for line, (change_mib, memory_mib, hits) in measures.items():
                if line != _BEFORE_THE_CELL:
                    tally = self._ledger.tally(id(self._codes[filename]), line)
                    tally.hits = hits
                    tally.own_delta = round(change_mib * MIB)
                    tally.own_peak = round(memory_mib * MIB)
        return ""
