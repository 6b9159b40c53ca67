"""The magics: parse, call, display.

IPython itself runs the cell. An input transformer takes the magic's line away, and the events
before and after the cell start and stop the recording. So history, `await`, `Out`, errors and
"Run all" are IPython's own.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from IPython.core import magic_arguments
from IPython.core.error import UsageError as IPythonUsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.display import publish_display_data
from traitlets.config import Config

from oommagic import session
from oommagic.cell import CellText
from oommagic.errors import OommagicError
from oommagic.measure.engines import ENGINES
from oommagic.measure.recorder import Request
from oommagic.recording import CELL, Listing
from oommagic.report import Report

_MAGIC_LINE = re.compile(r"\s*%%oomprofile(?P<options>\s.*)?")
# The file name under which `%%time` compiles its body, in all versions of IPython.
_TIMED_BODY = "<timed exec>"


@magics_class
class OommagicMagics(Magics):  # type: ignore[misc]  # IPython's base class has no types
    """What can be typed in a notebook."""

    @magic_arguments.magic_arguments()
    @magic_arguments.argument(
        "-f",
        "--function",
        action="append",
        default=[],
        metavar="FUNCTION",
        help="show the lines of this function, too: one of the notebook (train_step) or of an "
        "imported module (mypkg.data.load); may be given several times",
    )
    @magic_arguments.argument("-o", "--output", metavar="FILE", help="save the report as JSON")
    @magic_arguments.argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="what tells the lines apart: sys.monitoring (Python 3.12 and newer), sys.settrace, "
        "or memory_profiler's own line profiler, for comparison",
    )
    @magic_arguments.argument(
        "--include-children",
        action="store_true",
        help="add what the process's children hold, sampled five times a second",
    )
    @magic_arguments.argument(
        "-q",
        "--quiet",
        action="store_true",
        help="show nothing; oommagic.last_report() has the report",
    )
    @cell_magic
    def oomprofile(self, line: str, cell: str) -> None:
        """Run the cell as it is, and show what each line took: time, host and device memory.

        It must stand on the cell's first line. Lines are numbered as in Python's tracebacks,
        so the line below the magic is line 1.
        """
        # The input transformer takes this magic's line away before IPython would call it.
        raise IPythonUsageError("%%oomprofile must be the first line of a cell that IPython runs.")


class MagicLine:
    """The input transformer that takes the magic's line away."""

    # IPython then does not call it to find out whether a cell is complete, and so treats the
    # cell like that of any other magic: it ends with a blank line.
    has_side_effects = True

    def __init__(self) -> None:
        self.is_awaited = False

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the cell without the magic's line."""
        at = _magic_line_number(lines)
        if at is None:
            return lines
        # The event before the cell answers this. None comes where another magic runs the cell.
        self.is_awaited = True
        return lines[at + 1 :]


class WatchedCompiler:
    """Stands in for the shell's compiler during a profiled cell, and passes on what it compiles."""

    def __init__(self, compiler: Any, typed: str, watch: Callable[..., None]) -> None:
        self.compiler = compiler
        self.cell_name = ""
        self.text = CellText.of(typed)
        self._typed = typed
        self._body: str | None = None
        self._watch = watch
        # What runs under a file name: its text, and how far its lines are from the cell's.
        self._places: dict[str, tuple[CellText, int]] = {}
        self.has_run = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiler, name)

    def __call__(self, source: Any, filename: str, symbol: str, *more: Any) -> Any:
        """Compile as ever; if it is a piece of the cell, have its lines watched."""
        code = self.compiler(source, filename, symbol, *more)
        if filename == _TIMED_BODY:
            self.watch_if_ours(code)
        return code

    def watch_if_ours(self, code: CodeType) -> None:
        """Have the lines of a code object watched, if it is a piece of the cell."""
        place = self._places.get(code.co_filename)
        if place is not None:
            self.has_run = True
            self._watch(code, *place)

    @property
    def shifts(self) -> dict[str, int]:
        """How far the lines under each file name are from the cell's."""
        return {name: shift for name, (_, shift) in self._places.items()}

    def cache(self, transformed_code: str, *args: Any, **kwargs: Any) -> str:
        """Learn under which name a piece of source will run."""
        name: str = self.compiler.cache(transformed_code, *args, **kwargs)
        if not self.cell_name:
            self._learn_cell(name, transformed_code)
        elif transformed_code.rstrip() == self._body:
            self._places[name] = self._places[_TIMED_BODY]
        return name

    def _learn_cell(self, name: str, transformed_code: str) -> None:
        self.cell_name = name
        if self._typed.lstrip().startswith("%%"):
            # `%%time` and `%%capture` run their body through this compiler, too.
            self.text, shift = CellText.of(self._typed.strip()).under_magic()
            self._body = "\n".join(self.text.lines[shift:])
            self._places = {name: (self.text, 0), _TIMED_BODY: (self.text, shift)}
        else:
            self.text = CellText.of(self._typed, transformed_code)
            self._places = {name: (self.text, 0)}


@dataclass(frozen=True, slots=True)
class _ProfiledCell:
    """The cell that is being profiled, and what was asked for."""

    raw: str
    options: Any
    run: session.Run
    compiler: WatchedCompiler


class CellProfiler:
    """Profiles the cells that carry the magic: IPython's events start and stop it."""

    def __init__(self, shell: InteractiveShell, magic_line: MagicLine) -> None:
        self._shell = shell
        self._magic_line = magic_line
        self._cell: _ProfiledCell | None = None

    def before_cell(self, info: Any) -> None:
        """Start, if the cell that is about to run carries the magic."""
        lines = info.raw_cell.splitlines(keepends=True)
        at = _magic_line_number(lines)
        if at is None:
            return
        self._magic_line.is_awaited = False
        try:
            self._start(info.raw_cell, lines[at], "".join(lines[at + 1 :]))
        except (OommagicError, IPythonUsageError) as error:
            _say(f"%%oomprofile: {error}\nThe cell runs without being profiled.")

    def after_cell(self, result: Any) -> None:
        """Stop and show the report, if it was this cell that carried the magic."""
        if self._magic_line.is_awaited:
            self._magic_line.is_awaited = False
            _say("%%oomprofile must be the cell's first line: this cell was not profiled.")
        cell = self._cell
        if cell is not None and (result is None or result.info.raw_cell == cell.raw):
            self._cell = None
            self._finish(cell, result)

    def _start(self, raw: str, line: str, typed: str) -> None:
        options = magic_arguments.parse_argstring(OommagicMagics.oomprofile, _options_in(line))
        request = Request(tuple(options.function), options.engine, options.include_children)
        run = session.Run(request, self._shell.user_ns)
        compiler = WatchedCompiler(self._shell.compile, typed, run.watch)
        self._stand_in(compiler)
        self._cell = _ProfiledCell(raw, options, run, compiler)

    def _stand_in(self, compiler: WatchedCompiler) -> None:
        """See each statement's code just before it runs: IPython 7 renames what it compiled."""
        shell, run_code = self._shell, self._shell.run_code

        def watch_and_run(code: CodeType, *args: Any, **kwargs: Any) -> Any:
            compiler.watch_if_ours(code)
            return run_code(code, *args, **kwargs)

        shell.compile = compiler
        shell.run_code = watch_and_run

    def _step_aside(self, compiler: WatchedCompiler) -> None:
        vars(self._shell).pop("run_code", None)
        if self._shell.compile is compiler:
            self._shell.compile = compiler.compiler

    def _finish(self, cell: _ProfiledCell, result: Any) -> None:
        self._step_aside(cell.compiler)
        if not cell.compiler.has_run:
            cell.run.stop()
            _say("%%oomprofile: no line of this cell ran, so nothing was measured.")
            return
        error = (result.error_in_exec or result.error_before_exec) if result else None
        listing = Listing("the cell", CELL, 1, cell.compiler.text)
        report = cell.run.finish(listing, session.outcome_of(error, cell.compiler.shifts))
        if not cell.options.quiet:
            _show(report)
        if cell.options.output:
            _save(report, cell.options.output)


def load(shell: InteractiveShell) -> None:
    """Add the magics to a shell; once is enough, and twice does no harm."""
    unload(shell)
    magic_line = MagicLine()
    profiler = CellProfiler(shell, magic_line)
    shell.register_magics(OommagicMagics)
    shell.input_transformers_cleanup.insert(0, magic_line)
    shell.events.register("pre_run_cell", profiler.before_cell)
    shell.events.register("post_run_cell", profiler.after_cell)
    for kind, render in _RENDERERS.items():
        shell.display_formatter.formatters[kind].for_type(Report, render)


def open_shell() -> InteractiveShell:
    """Start a shell in this process, with the magics and without a history file."""
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    load(shell)
    return shell


def unload(shell: InteractiveShell) -> None:
    """Take the magics away again."""
    transformers = shell.input_transformers_cleanup
    transformers[:] = [known for known in transformers if not isinstance(known, MagicLine)]
    for event in ("pre_run_cell", "post_run_cell"):
        for callback in list(shell.events.callbacks[event]):
            if isinstance(getattr(callback, "__self__", None), CellProfiler):
                shell.events.unregister(event, callback)
    shell.magics_manager.magics["cell"].pop("oomprofile", None)
    for kind in _RENDERERS:
        shell.display_formatter.formatters[kind].pop(Report, None)


def _magic_line_number(lines: list[str]) -> int | None:
    """Find the magic's line: the first that is not blank. `%%oomprofile?` asks for help."""
    for number, line in enumerate(lines):
        if line.strip():
            match = _MAGIC_LINE.fullmatch(line.rstrip())
            return number if match and not line.rstrip().endswith("?") else None
    return None


def _options_in(line: str) -> str:
    match = _MAGIC_LINE.fullmatch(line.rstrip())
    return (match["options"] or "") if match else ""


def _as_text(report: Report, printer: Any, cycle: bool) -> None:  # noqa: FBT001 (IPython's call)
    printer.text(_render_text(report))


def _render_text(report: Report) -> str:
    # A profiler that is loaded but not used should cost nothing: drawing is imported when needed.
    from oommagic.show import text  # noqa: PLC0415

    return text.render(report)


def _render_html(report: Report) -> str:
    from oommagic.show import html  # noqa: PLC0415 (see above)

    return html.render(report)


_RENDERERS: dict[str, Callable[..., Any]] = {"text/plain": _as_text, "text/html": _render_html}


def _show(report: Report) -> None:
    publish_display_data(
        {"text/plain": _render_text(report), "text/html": _render_html(report)}
    )


def _save(report: Report, path: str) -> None:
    try:
        report.save(Path(path).expanduser())
    except OommagicError as error:
        _say(f"%%oomprofile -o: {error}")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201 (this is how a magic speaks)
