"""What can be typed in a notebook: each magic's options, what it is for, and whom it asks."""

from dataclasses import replace
from typing import Any

from IPython.core import magic_arguments
from IPython.core.error import UsageError as IPythonUsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from oommagic.magics import asked, planned, shown, tried
from oommagic.magics.refusal import refusal, refusing
from oommagic.measure.engines import ENGINES

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

        with refusing("oomdevice"):
            wanted = asked.device(self.oomdevice, line)
            if wanted.size or wanted.like:
                session.use_device(
                    " ".join(wanted.size) or None, like=" ".join(wanted.like) or None
                )
        overview = session.devices()
        shown.devices(replace(overview, cards=()) if line.strip() else overview)

    @line_magic
    def oomwhy(self, _line: str) -> None:
        """Say why memory ran out: in the last error, or in the last profiled cell.

        It also answers for a cell that was not profiled, and after oommagic was loaded late.
        Nothing runs again.
        """
        shell: Shell = self.shell
        with refusing("oomwhy"):
            try:
                from oommagic import session

                shown.why(session.explain(None, shell.user_ns))
            except MemoryError:
                # Not an error: where there is so little room, the last one must stay what it is.
                shown.say(_NO_ROOM_TO_SAY_WHY)

    @line_magic
    def oomfix(self, line: str) -> None:
        """Put a suggestion into a new cell below, as in `%oomfix 2`; nothing runs.

        The numbers are those of the suggestions that were shown last, by %%oomprofile or %oomwhy.
        """
        shell: Shell = self.shell
        from oommagic import session

        with refusing("oomfix"):
            shell.set_next_input(session.fixed_cell(asked.number(line)))

    @line_magic
    def oomtry(self, line: str) -> None:
        """Measure suggestions, as in `%oomtry 2` or `%oomtry 1 3` for two of them together.

        The numbers are those of the suggestions that were shown last, by %%oomprofile or %oomwhy.
        The cell runs as it is and as it would be, for the same few steps, in child processes
        with the same memory; what the notebook holds stays as it is, and so do its files.
        What Python would reach over the network is refused: nothing is sent anywhere by it. Other
        programs, and what TensorFlow itself reads or writes in cloud storage, are not held back.
        """
        shell: Shell = self.shell
        show_trial = tried.in_notebook if hasattr(shell, "kernel") else tried.in_terminal
        with refusing("oomtry"):
            show_trial(asked.numbers(line))

    @magic_arguments.magic_arguments()
    @magic_arguments.argument(
        "model", help="a compiled Keras model, or a function that makes one training step"
    )
    @magic_arguments.argument(
        "batch",
        nargs="*",
        default=[],
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
        shell: Shell = self.shell
        show_plan = planned.in_notebook if hasattr(shell, "kernel") else planned.in_terminal
        with refusing("oombatch"):
            wanted = asked.batch(self.oombatch, line)
            texts = (wanted.model, " ".join(wanted.batch) or "None")
            show_plan([self._value_of(text) for text in texts], wanted)

    def _value_of(self, text: str) -> Any:
        """Give what an expression of the notebook stands for."""
        shell: Shell = self.shell
        try:
            return shell.ev(text)
        except (NameError, SyntaxError) as error:
            raise refusal(f"%oombatch: {text} is not known here: {error}.") from None
