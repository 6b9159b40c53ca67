"""The cells that carry the magic.

IPython itself runs the cell. An input transformer takes the magic's line away, and the events
before and after the cell start and stop the recording. So history, `await`, `Out`, errors and
"Run all" are IPython's own.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError as IPythonUsageError

from oommagic.errors import OommagicError
from oommagic.ipython_cell import MagicLine, WatchedCell, magic_line_number
from oommagic.magics import asked, shown
from oommagic.magics.commands import OommagicMagics, Shell
from oommagic.magics.refusal import give_way, is_refusal
from oommagic.recording import Listing
from oommagic.report import Report
from oommagic.source_files import CELL

# A profiler that is loaded but not used should cost nothing: whatever measures is imported where
# it is first needed.
if TYPE_CHECKING:
    from oommagic.session import Run

_NOT_FIRST = "%%oomprofile must be the cell's first line: this cell was not profiled."


@dataclass(frozen=True, slots=True)
class _ProfiledCell:
    """The cell that is being profiled, and what was asked for."""

    raw: str
    head: str
    """The lines down to the magic's, as typed."""
    options: Any
    run: "Run"
    watched: WatchedCell


class CellProfiler:
    """Profiles the cells that carry the magic: IPython's events start and stop it."""

    def __init__(self, shell: Shell, magic_line: MagicLine) -> None:
        self._shell = shell
        self._magic_line = magic_line
        self._cell: _ProfiledCell | None = None

    def before_cell(self, info: Any) -> None:
        """Start, if the cell that is about to run carries the magic."""
        lines = info.raw_cell.splitlines(keepends=True)
        at = magic_line_number(lines)
        # A cell that runs silently asks for the magic, too, and has no such event.
        self._magic_line.is_awaited = False
        if at is None:
            return
        try:
            self._start(info.raw_cell, lines, at)
        except OommagicError as error:
            shown.say(f"%%oomprofile: {error}\nThe cell runs without being profiled.")

    def after_cell(self, result: Any) -> None:
        """Stop and show the report, if it was this cell that carried the magic."""
        if self._magic_line.is_awaited:
            self._magic_line.is_awaited = False
            shown.say(_NOT_FIRST)
        if _is_below_something(result):
            shown.say(_NOT_FIRST)
        error = getattr(result, "error_in_exec", None)
        give_way(error)
        cell = self._cell
        if cell is not None and (result is None or result.info.raw_cell == cell.raw):
            self._cell = None
            try:
                self._finish(cell, result)
            except KeyboardInterrupt:
                shown.say("%%oomprofile: interrupted before the report was shown.")
        elif error is not None and not is_refusal(error):
            # Before the first profiled cell there is nothing that the error would be newer than.
            session = sys.modules.get("oommagic.session")
            if session is not None:
                session.note_plain_error(result.info.raw_cell)

    def give_up(self) -> None:
        """Stop without a report: the extension is being unloaded."""
        cell, self._cell = self._cell, None
        if cell is not None:
            cell.watched.step_aside()
            cell.run.stop()

    def _start(self, raw: str, lines: list[str], at: int) -> None:
        from oommagic.session import Run

        head, typed = "".join(lines[: at + 1]), "".join(lines[at + 1 :])
        options = asked.profile(OommagicMagics.oomprofile, lines[at])
        request = asked.request(options)
        run = Run(request, self._shell.user_ns)
        watched = WatchedCell(self._shell, typed, run)
        watched.stand_in()
        self._cell = _ProfiledCell(raw, head, options, run, watched)

    def _finish(self, cell: _ProfiledCell, result: Any) -> None:
        cell.watched.step_aside()
        if cell.run.is_forked:
            cell.run.leave()
            return
        if not cell.watched.has_run:
            cell.run.stop()
            shown.say("%%oomprofile: no line of this cell ran, so nothing was measured.")
            return
        error = (result.error_in_exec or result.error_before_exec) if result else None
        listing = Listing("the cell", CELL, 1, cell.watched.text)
        report = cell.run.finish(listing, error, cell.watched.shifts, cell.head)
        if not cell.options.quiet:
            shown.report(report, has_widgets=hasattr(self._shell, "kernel"))
        if cell.options.output:
            _save(report, cell.options.output)


def _is_below_something(result: Any) -> bool:
    """Say whether IPython has looked for a line magic of this name: it stood below other lines."""
    error = getattr(result, "error_in_exec", None)
    return isinstance(error, IPythonUsageError) and "`%%oomprofile` not found" in str(error)


def _save(report: Report, path: str) -> None:
    try:
        report.save(path)
    except OommagicError as error:
        shown.say(f"%%oomprofile -o: {error}")
