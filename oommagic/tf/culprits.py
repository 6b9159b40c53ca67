"""Which line of the user's an error comes from: in its traceback, or where its graph was made."""

import linecache
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb

from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_PYTHON = re.compile(r'^[ \t]*File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<name>.*)$')
_IPYTHON_FILE = re.compile(r"^File (?P<file>[^\n:]+):(?P<line>\d{1,9}), in (?P<name>.*)$")
_IPYTHON_CELL = re.compile(r"^(?:Cell )?(?P<file>In ?\[\d+\]), line (?P<line>\d{1,9})(?P<name>.*)$")
_IPYTHON_7 = re.compile(r"^(?P<file><ipython-input-[^>\n]+>|\S+\.py) in (?P<name>.+)$")
_IPYTHON_7_LINE = re.compile(r"^-+> ?(?P<line>\d{1,9}) ")

_MADE_AT = "defined at (most recent call last):"
_RAISED_AT = "Traceback (most recent call last)"

_LIBRARY = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]"
    r"|[/\\]lib[/\\]python3\.\d+[/\\]"
    r"|[/\\]tensorflow[/\\]python[/\\]|[/\\]keras[/\\]src[/\\]"
    r"|__autograph_generated_file"
    r"|^<(?:frozen |__|attrs |decorator-gen)"
)
_OWN_FOLDERS = tuple(
    f"{folder}{os.sep}" for folder in (sysconfig.get_path("stdlib"), Path(__file__).parents[1])
)

# Keras' own loops: a line that calls one is the caller of the graph, no part of it.
_LOOPS = re.compile(r"(?:fit|evaluate|predict|(?:train|test|predict)_on_batch)\b")
_LOOP_FILE = re.compile(r"[/\\]trainer\.py$")
_SHELL_FILE = re.compile(r"[/\\]IPython[/\\]core[/\\]interactiveshell\.py$")
_WRAPPER_FILE = re.compile(r"[/\\]traceback_utils\.py$")


@dataclass(frozen=True, slots=True)
class Frame:
    """One line on a call stack."""

    filename: str
    line_number: int
    function: str = ""

    @property
    def is_users(self) -> bool:
        """Whether it is neither Python's nor an installed package's nor ours."""
        return not _LIBRARY.search(self.filename) and not self.filename.startswith(_OWN_FOLDERS)

    @property
    def is_top_level(self) -> bool:
        """Whether it stands in a cell or a module, outside any function."""
        return self.function in {"", "<module>"} or self.function.startswith("<cell line")

    @property
    def source(self) -> str:
        """The line's text, where Python still knows it."""
        return linecache.getline(self.filename, self.line_number).strip()


def frames_of(error: BaseException) -> tuple[Frame, ...]:
    """List an exception's frames, outermost first."""
    return tuple(
        Frame(frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in walk_tb(error.__traceback__)
    )


def calls_in(traceback: str) -> tuple[Frame, ...]:
    """List the frames of a traceback that was saved as text."""
    return tuple(line for line in _lines_in(traceback) if isinstance(line, Frame))


def line_of(calls: Iterable[Frame], message: str) -> Frame | None:
    """Find the user's innermost line, from an error's calls and its message.

    A traceback within the message (of a generator, a py_function) goes deepest; next comes the
    line that put the failed op into a graph, if it is not the caller; then the calls themselves.
    """
    made, inner = _stacks_in(message)
    callers = _users(calls)
    in_graph = _users(_graph_lines(made, callers))
    stacks = (_users(inner), in_graph, callers, _users(made))
    return next((stack[-1] for stack in stacks if stack), None)


def _users(frames: Iterable[Frame]) -> list[Frame]:
    return [frame for frame in frames if frame.is_users]


def _graph_lines(made: Sequence[Frame], callers: Iterable[Frame]) -> Iterator[Frame]:
    """Yield the lines of functions that became part of the graph, not those that called it."""
    called = {(frame.filename, frame.function) for frame in callers}
    made = made[_start_of_cell(made) :]
    for place, frame in enumerate(made):
        if frame.is_top_level or (frame.filename, frame.function) in called:
            continue
        if not _calls_a_loop(made[place + 1 :]):
            yield frame


def _start_of_cell(made: Sequence[Frame]) -> int:
    """Count the frames that led to the cell: a script may run IPython."""
    places = [place for place, frame in enumerate(made) if _SHELL_FILE.search(frame.filename)]
    return places[-1] + 1 if places else 0


def _calls_a_loop(deeper: Sequence[Frame]) -> bool:
    callee = next((each for each in deeper if not _WRAPPER_FILE.search(each.filename)), None)
    if callee is None or callee.is_users:
        return False
    return bool(_LOOP_FILE.search(callee.filename) and _LOOPS.fullmatch(callee.function))


def _stacks_in(message: str) -> tuple[list[Frame], list[Frame]]:
    """Take two stacks out of a message: where its op was made, and what it ran in Python."""
    stacks: dict[str, list[Frame]] = {"": [], _MADE_AT: [], _RAISED_AT: []}
    header = ""
    for line in _lines_in(message):
        if isinstance(line, str):
            header = line
        else:
            stacks[header].append(line)
    return stacks[_MADE_AT], stacks[_RAISED_AT]


def _lines_in(text: str) -> Iterator[Frame | str]:
    """Yield a text's frames, and the headers between them."""
    file_above: re.Match[str] | None = None
    for line in text.splitlines():
        for header in (_MADE_AT, _RAISED_AT):
            if header in line:
                yield header
        arrow = _IPYTHON_7_LINE.match(line)
        if arrow is not None and file_above is not None:
            yield Frame(file_above["file"], int(arrow["line"]), _name(file_above["name"]))
            file_above = None
        matches = (pattern.match(line) for pattern in (_PYTHON, _IPYTHON_FILE, _IPYTHON_CELL))
        match = next((each for each in matches if each is not None), None)
        if match is not None:
            yield Frame(match["file"], int(match["line"]), _name(match["name"]))
        file_above = _IPYTHON_7.match(line) or file_above


def _name(said: str) -> str:
    """Take a function's name from how a traceback says it: `f`, `f(x)`, `, in f(x)`."""
    return said.removeprefix(", in ").partition("(")[0].strip()
