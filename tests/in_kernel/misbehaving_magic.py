"""An `%%oomprofile` that only shows a report, and does one thing wrong if it is told to."""

import builtins
import os
import threading
from collections.abc import Callable
from textwrap import indent

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.display import HTML, display

REPORT = "<div class='oommagic'>a report</div>"
NEVER = threading.Event()


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magic's line away, and show a report after the cell."""
    stand_in = _StandIn(shell)
    shell.input_transformers_cleanup.insert(0, stand_in.transform)
    shell.events.register("pre_run_cell", stand_in.before)
    shell.events.register("post_run_cell", stand_in.after)


class _StandIn:
    """Wrongs are named in the environment, so that a test can pick one at a time."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.raw_cell = ""

    @property
    def wrong(self) -> str:
        return str(self.shell.user_ns.get("WRONG", ""))

    def transform(self, lines: list[str]) -> list[str]:
        if not lines or not lines[0].startswith("%%oomprofile"):
            return lines
        if self.wrong == "leaves the magic's line":
            return ["\n", "pass\n", *lines[1:]]
        if self.wrong == "indents the cell":
            return ["if True:\n", *indent("".join(lines[1:]), "    ").splitlines(keepends=True)]
        if self.wrong == "runs the cell inside another":
            return [f"get_ipython().run_cell({''.join(lines[1:])!r});\n"]
        if self.wrong == "swallows errors":
            body = indent("".join(lines[1:]), "    ")
            return f"try:\n{body}\nexcept Exception:\n    pass\n".splitlines(keepends=True)
        return lines[1:]

    def before(self, info: object) -> None:
        raw_cell = str(getattr(info, "raw_cell", ""))
        if not raw_cell.startswith("%%oomprofile"):
            return
        self.raw_cell = raw_cell
        if self.wrong in WRONG_BEFORE:
            WRONG_BEFORE[self.wrong](self.shell)

    def after(self, result: ExecutionResult) -> None:
        if not self.raw_cell or result.info is None or result.info.raw_cell != self.raw_cell:
            return
        self.raw_cell = ""
        if self.wrong == "shows no report":
            return
        display(HTML(REPORT))
        if self.wrong in WRONG_AFTER:
            WRONG_AFTER[self.wrong](self.shell)


def _leave_thread(_shell: InteractiveShell) -> None:
    threading.Thread(target=NEVER.wait, daemon=True).start()


def _leave_file(_shell: InteractiveShell) -> None:
    os.open("/dev/null", os.O_RDONLY)


def _leave_variable(_shell: InteractiveShell) -> None:
    os.environ["LEFT_BEHIND"] = "1"


def _leave_name(shell: InteractiveShell) -> None:
    shell.user_ns["_report"] = 1


def _leave_builtin(_shell: InteractiveShell) -> None:
    builtins.profile = print  # type: ignore[attr-defined]


WRONG_BEFORE: dict[str, Callable[[InteractiveShell], None]] = {
    "prints": lambda _shell: print("profiling"),  # noqa: T201
    "counts the cell twice": lambda shell: setattr(
        shell, "execution_count", shell.execution_count + 1
    ),
}
WRONG_AFTER: dict[str, Callable[[InteractiveShell], None]] = {
    "prints after the report": lambda _shell: print("profiled"),  # noqa: T201
    "shows two reports": lambda _shell: display(HTML(REPORT)),
    "leaves a thread": _leave_thread,
    "leaves a file open": _leave_file,
    "leaves a variable": _leave_variable,
    "leaves a name": _leave_name,
    "leaves a built-in": _leave_builtin,
}
