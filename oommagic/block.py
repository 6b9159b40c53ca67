"""`with oommagic.profile()`: one block of plain Python, profiled like a cell."""

import ast
import linecache
import sys
from dataclasses import replace
from types import TracebackType
from typing import Self

from oommagic.cell import CellText, parse_quietly
from oommagic.errors import UsageError
from oommagic.measure.recorder import Request
from oommagic.recording import Listing
from oommagic.report import Report
from oommagic.session import Run
from oommagic.source_files import CELL


class ProfiledBlock:
    """The body of a `with oommagic.profile()`; `report` is there once the body has ended."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._report: Report | None = None
        self._run: Run | None = None

    @property
    def report(self) -> Report:
        """The report of the block."""
        if self._report is None:
            raise UsageError("The block still runs: its report is there when it has ended.")
        return self._report

    def __enter__(self) -> Self:
        frame = sys._getframe(1)  # noqa: SLF001 (the block's own frame)
        self._filename = frame.f_code.co_filename
        text = CellText.of("".join(linecache.getlines(self._filename, frame.f_globals)))
        self._listing = _block_at(frame.f_lineno, text)
        # Not its locals: in a function they are a copy, which would keep what the body lets go.
        self._run = Run(self._request, frame.f_globals)
        self._run.watch_frame(frame, text)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            if run.is_forked:
                run.leave()
            else:
                self._report = run.finish(self._listing, error, {self._filename: 0})


def profile(
    *functions: str,
    engine: str = "auto",
    include_children: bool = False,
    tape_steps: int = 3,
    compile_seconds: float = 5.0,
) -> ProfiledBlock:
    """Profile the body of a `with`, line by line; functions are named as for `-f`.

    With `tape_steps=0` no step's allocations are recorded. `compile_seconds` is how long a step of
    XLA's may be compiled once more, to say what it keeps in its memory.
    """
    return ProfiledBlock(Request(functions, engine, include_children, tape_steps, compile_seconds))


def _block_at(line_number: int, text: CellText) -> Listing:
    """Find the body of the `with` statement whose head has this line."""
    for node in _with_statements(text):
        if node.lineno <= line_number <= (node.items[-1].context_expr.end_lineno or node.lineno):
            first, last = node.body[0].lineno, node.end_lineno or node.lineno
            body = replace(text, lines=text.lines[first - 1 : last])
            return Listing("the block", CELL, first, body)
    return Listing("the block", CELL, line_number, replace(text, lines=()))


def _with_statements(text: CellText) -> list[ast.With | ast.AsyncWith]:
    tree = parse_quietly("\n".join(text.lines))
    return [node for node in ast.walk(tree) if isinstance(node, ast.With | ast.AsyncWith)]
