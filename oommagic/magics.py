"""The magics: parse, call, display.

IPython itself runs the cell. An input transformer takes the magic's line away, and the events
before and after the cell start and stop the recording. So history, `await`, `Out`, errors and
"Run all" are IPython's own.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from IPython.core import magic_arguments
from IPython.core.error import UsageError as IPythonUsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.display import publish_display_data
from traitlets.config import Config

from oommagic.errors import OommagicError, UsageError
from oommagic.ipython_cell import MagicLine, WatchedCell, magic_line_number, options_in
from oommagic.measure.engines import ENGINES
from oommagic.recording import Listing
from oommagic.report import Report
from oommagic.source_files import CELL

# A profiler that is loaded but not used should cost nothing: whatever measures, explains or draws
# is imported where it is first needed.
if TYPE_CHECKING:
    from oommagic.devices import Overview
    from oommagic.explain.plan import Plan
    from oommagic.measure.recorder import Request
    from oommagic.session import Explanation, Run

_NO_ROOM_TO_SAY_WHY = (
    "%oomwhy: the host's memory is so full that there is no room to say why. Let go of something "
    "(del name) and ask again."
)

# What IPython says of its shell differs from version to version: no types fit all of them.
Shell = Any


@magics_class
class OommagicMagics(Magics):
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
        "--tape-steps",
        type=int,
        default=3,
        metavar="N",
        help="record every allocation of the first N training steps (3), to say what filled the "
        "device",
    )
    @magic_arguments.argument(
        "--no-tape", action="store_true", help="record no allocations, only each line's figures"
    )
    @magic_arguments.argument(
        "--compile-seconds",
        type=float,
        default=5.0,
        metavar="S",
        help="compile a step of XLA's once more, if that takes no longer than about S seconds (5), "
        "to say what it keeps in its memory; 0 for never",
    )
    @magic_arguments.argument(
        "-q",
        "--quiet",
        action="store_true",
        help="show nothing; oommagic.last_report() has the report",
    )
    @cell_magic
    def oomprofile(self, _line: str, _cell: str) -> None:
        """Run the cell as it is, and show what each line took: time, host and device memory.

        It must stand on the cell's first line. Lines are numbered as in Python's tracebacks,
        so the line below the magic is line 1.
        """
        # The input transformer takes this magic's line away before IPython would call it.
        raise IPythonUsageError("%%oomprofile must be the first line of a cell that IPython runs.")

    @magic_arguments.magic_arguments()
    @magic_arguments.argument(
        "size", nargs="*", help="how much memory the device gets, as in 512MB or 1.5 GB"
    )
    @magic_arguments.argument(
        "--like",
        nargs="+",
        metavar="CARD",
        default=[],
        help="as much memory as TensorFlow gets on this card, as in T4 or A100-40GB",
    )
    @line_magic
    def oomdevice(self, line: str) -> None:
        """Turn this CPU into a training device, or say what there is to train on.

        The device has TensorFlow's GPU allocator and the memory that was asked for: where that
        runs out, training stops with the ResourceExhaustedError of a GPU, and the kernel lives.
        Ask before TensorFlow is imported; the device is for the rest of the process.

        Without a size or a card it lists TensorFlow's devices, this machine's GPUs and the
        known cards.
        """
        from oommagic import session

        asked = _device_asked_for(line)
        try:
            if asked.size or asked.like:
                session.use_device(" ".join(asked.size) or None, like=" ".join(asked.like) or None)
        except OommagicError as error:
            raise IPythonUsageError(f"%oomdevice: {error}") from None
        overview = session.devices()
        _show_devices(replace(overview, cards=()) if line.strip() else overview)

    @line_magic
    def oomwhy(self, _line: str) -> None:
        """Say why memory ran out: in the last error, or in the last profiled cell.

        It also answers for a cell that was not profiled, and after oommagic was loaded late.
        Nothing runs again.
        """
        shell: Shell = self.shell
        try:
            from oommagic import session

            _show_why(session.explain(None, shell.user_ns))
        except OommagicError as error:
            raise IPythonUsageError(f"%oomwhy: {error}") from None
        except MemoryError:
            raise IPythonUsageError(_NO_ROOM_TO_SAY_WHY) from None

    @magic_arguments.magic_arguments()
    @magic_arguments.argument(
        "model", help="a compiled Keras model, or a function that makes one training step"
    )
    @magic_arguments.argument(
        "batch",
        nargs="*",
        help="a sample of the data, as in train_ds or (x, y); without it the model's shapes tell",
    )
    @magic_arguments.argument(
        "--limit", nargs="+", default=[], help="what the step has to fit into, as in 15GB"
    )
    @magic_arguments.argument(
        "--like",
        nargs="+",
        metavar="CARD",
        default=[],
        help="as much memory as TensorFlow gets on this card, as in T4 or A100-40GB",
    )
    @magic_arguments.argument(
        "--measure",
        action="store_true",
        help="prove it: real steps at that batch, in a child process with so much memory",
    )
    @magic_arguments.argument(
        "--predict", action="store_true", help="plan model.predict instead of training"
    )
    @line_magic
    def oombatch(self, line: str) -> None:
        """Say which batch fits, and show the device's peak for any batch size on a slider.

        A few small steps run in a child process; the model stays as it is, and so does the
        kernel. Without --limit or --like it is the device's own memory that counts.
        """
        asked = _batch_asked_for(line)
        values = [self._value_of(text) for text in (asked.model, " ".join(asked.batch) or "None")]
        try:
            found = _planned(values, asked)
        except OommagicError as error:
            raise IPythonUsageError(f"%oombatch: {error}") from None
        shell: Shell = self.shell
        _show_plan(found, is_in_notebook=hasattr(shell, "kernel"))

    def _value_of(self, text: str) -> Any:
        """Give what an expression of the notebook stands for."""
        shell: Shell = self.shell
        try:
            return shell.ev(text)
        except (NameError, SyntaxError) as error:
            raise IPythonUsageError(f"%oombatch: {text} is not known here: {error}.") from None


@dataclass(frozen=True, slots=True)
class _ProfiledCell:
    """The cell that is being profiled, and what was asked for."""

    raw: str
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
            self._start(info.raw_cell, lines[at], "".join(lines[at + 1 :]))
        except OommagicError as error:
            _say(f"%%oomprofile: {error}\nThe cell runs without being profiled.")

    def after_cell(self, result: Any) -> None:
        """Stop and show the report, if it was this cell that carried the magic."""
        if self._magic_line.is_awaited:
            self._magic_line.is_awaited = False
            _say("%%oomprofile must be the cell's first line: this cell was not profiled.")
        cell = self._cell
        if cell is not None and (result is None or result.info.raw_cell == cell.raw):
            self._cell = None
            try:
                self._finish(cell, result)
            except KeyboardInterrupt:
                _say("%%oomprofile: interrupted before the report was shown.")
        elif result is not None and result.error_in_exec is not None:
            # Before the first profiled cell there is nothing that the error would be newer than.
            session = sys.modules.get("oommagic.session")
            if session is not None:
                session.note_plain_error()

    def give_up(self) -> None:
        """Stop without a report: the extension is being unloaded."""
        cell, self._cell = self._cell, None
        if cell is not None:
            cell.watched.step_aside()
            cell.run.stop()

    def _start(self, raw: str, line: str, typed: str) -> None:
        from oommagic.session import Run

        options = _parsed(line)
        request = _request(options)
        run = Run(request, self._shell.user_ns)
        watched = WatchedCell(self._shell, typed, run)
        watched.stand_in()
        self._cell = _ProfiledCell(raw, options, run, watched)

    def _finish(self, cell: _ProfiledCell, result: Any) -> None:
        cell.watched.step_aside()
        if cell.run.is_forked:
            cell.run.leave()
            return
        if not cell.watched.has_run:
            cell.run.stop()
            _say("%%oomprofile: no line of this cell ran, so nothing was measured.")
            return
        error = (result.error_in_exec or result.error_before_exec) if result else None
        listing = Listing("the cell", CELL, 1, cell.watched.text)
        report = cell.run.finish(listing, error, cell.watched.shifts)
        if not cell.options.quiet:
            _show(report)
        if cell.options.output:
            _save(report, cell.options.output)


def _parsed(line: str) -> Any:
    try:
        return magic_arguments.parse_argstring(OommagicMagics.oomprofile, options_in(line))
    except (IPythonUsageError, ValueError) as error:  # ValueError: a quotation is not closed
        raise UsageError(f"{str(error).rstrip('.')}; %%oomprofile? lists the options.") from None


def _device_asked_for(line: str) -> Any:
    try:
        return magic_arguments.parse_argstring(OommagicMagics.oomdevice, line)
    except (IPythonUsageError, ValueError) as error:
        raise IPythonUsageError(
            f"%oomdevice: {str(error).rstrip('.')}. Ask for a size, as in 512MB, or for a card, "
            "as in --like T4; %oomdevice alone lists the cards."
        ) from None


def _batch_asked_for(line: str) -> Any:
    try:
        return magic_arguments.parse_argstring(OommagicMagics.oombatch, line)
    except (IPythonUsageError, ValueError) as error:
        raise IPythonUsageError(
            f"%oombatch: {str(error).rstrip('.')}. Name a model, as in %oombatch model; "
            "%oombatch? lists the options."
        ) from None


def _planned(values: list[Any], asked: Any) -> "Plan":
    from oommagic import planning

    limit, like = " ".join(asked.limit) or None, " ".join(asked.like) or None
    question = planning.question(*values, predict=asked.predict, limit=limit, like=like)
    with planning.saying() as say:
        plan = question.answer(say)
        if asked.measure:
            question.prove(plan, say)
    return plan


def _request(options: Any) -> "Request":
    from oommagic.measure.recorder import Request

    if options.tape_steps < 1:
        raise UsageError("--tape-steps takes a number from 1 on; --no-tape records none.")
    return Request(
        functions=tuple(options.function),
        engine=options.engine,
        include_children=options.include_children,
        tape_steps=0 if options.no_tape else options.tape_steps,
        compile_s=options.compile_seconds,
    )


def load(shell: Shell) -> None:
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
    shell.display_formatter.mimebundle_formatter.for_type_by_name(*_PLAN, _plan_bundle)


def open_shell() -> Shell:
    """Start a shell in this process, with the magics and without a history file."""
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "oommagic")
    return shell


def unload(shell: Shell) -> None:
    """Take the magics away again."""
    transformers = shell.input_transformers_cleanup
    transformers[:] = [known for known in transformers if not isinstance(known, MagicLine)]
    for event in ("pre_run_cell", "post_run_cell"):
        for callback in list(shell.events.callbacks[event]):
            profiler = getattr(callback, "__self__", None)
            if isinstance(profiler, CellProfiler):
                profiler.give_up()
                shell.events.unregister(event, callback)
    shell.magics_manager.magics["cell"].pop("oomprofile", None)
    for name in ("oombatch", "oomdevice", "oomwhy"):
        shell.magics_manager.magics["line"].pop(name, None)
    for kind in _RENDERERS:
        shell.display_formatter.formatters[kind].pop(Report, None)
    _forget_plans(shell.display_formatter.mimebundle_formatter)


def _as_text(report: Report, printer: Any, _cycle: object) -> None:
    printer.text(_render_text(report))


def _render_text(report: Report) -> str:
    from oommagic.show import text

    return text.render(report)


def _render_html(report: Report) -> str:
    from oommagic.show import html

    return html.render(report)


# By its name, so that a kernel that plans nothing imports nothing for it.
_PLAN = ("oommagic.explain.plan", "Plan")


def _forget_plans(formatter: Any) -> None:
    formatter.deferred_printers.pop(_PLAN, None)
    for kind in [kind for kind in formatter.type_printers if kind.__module__ == _PLAN[0]]:
        formatter.type_printers.pop(kind)


_RENDERERS: dict[str, Callable[..., Any]] = {"text/plain": _as_text, "text/html": _render_html}


def _show(report: Report) -> None:
    publish_display_data({"text/plain": _render_text(report), "text/html": _render_html(report)})


def _show_devices(overview: "Overview") -> None:
    from oommagic.show import devices

    text, html = devices.render_text(overview), devices.render_html(overview)
    publish_display_data({"text/plain": text, "text/html": html})


def _plan_bundle(plan: "Plan", **_asked: object) -> dict[str, object]:
    from oommagic.show import planner

    return planner.bundle(plan.forecast)


def _show_plan(plan: "Plan", *, is_in_notebook: bool) -> None:
    from oommagic.show import planner
    from oommagic.tf.arena import CARDS

    publish_display_data(planner.bundle(plan.forecast))
    if is_in_notebook:
        publish_display_data(planner.slider(plan.forecast, CARDS))


def _show_why(explanation: "Explanation") -> None:
    from oommagic.show.why_html import why_html
    from oommagic.show.why_text import why_text

    told = explanation.verdict, explanation.compositions
    publish_display_data({"text/plain": why_text(*told), "text/html": why_html(*told)})


def _save(report: Report, path: str) -> None:
    try:
        report.save(path)
    except OommagicError as error:
        _say(f"%%oomprofile -o: {error}")


def _say(sentence: str) -> None:
    # One write: a kernel sends what is written when it likes, and would send the end apart.
    sys.stderr.write(f"{sentence}\n")
