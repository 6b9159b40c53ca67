"""A cell with the magic, while IPython runs it: which code is the cell's, and where it stands.

IPython 7 and 9, in a terminal and in a kernel, all name, compile and run a cell by the shell's
compiler. Standing in for that shows every piece of the cell just before it runs, and changes
nothing in what is compiled.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Protocol

from oommagic.cell import CellText

_MAGIC_LINE = re.compile(r"\s*%%oomprofile(?P<options>\s.*)?")
_MISSING = object()
_TRACER_FOLDER = str(Path(__file__).parent / "measure")
# The file name under which `%%time` compiles its body, in all versions of IPython.
_TIMED_BODY = "<timed exec>"


def magic_line_number(lines: list[str]) -> int | None:
    """Find the magic's line: the first that is not blank. `%%oomprofile?` asks for help."""
    for number, line in enumerate(lines):
        if line.strip():
            match = _MAGIC_LINE.fullmatch(line.rstrip())
            return number if match and not line.rstrip().endswith("?") else None
    return None


def options_in(line: str) -> str:
    """Return what stands behind the magic's name."""
    match = _MAGIC_LINE.fullmatch(line.rstrip())
    return (match["options"] or "") if match else ""


class MagicLine:
    """The input transformer that takes the magic's line away."""

    # IPython then does not call it to find out whether a cell is complete, and so treats the
    # cell like that of any other magic: it ends with a blank line.
    has_side_effects = True

    def __init__(self) -> None:
        self.is_awaited = False

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the cell without the magic's line."""
        at = magic_line_number(lines)
        if at is None:
            return lines
        # The event before the cell answers this. None comes where another magic runs the cell.
        self.is_awaited = True
        return lines[at + 1 :]


def strip_our_frames(error: BaseException | None) -> None:
    """Take the tracer's frames out of a traceback.

    An interrupt, or the end of the stack, may come while the tracer is at work. The error is the
    user's all the same, and so are its lines.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        above = error.__traceback__
        while above is not None:
            while above.tb_next is not None and _is_tracer(above.tb_next):
                above.tb_next = above.tb_next.tb_next
            above = above.tb_next
        error = error.__cause__ or error.__context__


def _is_tracer(entry: TracebackType) -> bool:
    filename = entry.tb_frame.f_code.co_filename
    return filename == __file__ or filename.startswith(_TRACER_FOLDER)


class CodeWatcher(Protocol):
    """Who profiles the cell."""

    def watch(self, code: CodeType, text: CellText, shift: int) -> None:
        """Code of the cell is about to run; its lines are so far from the text's."""

    def statement_failed(self) -> None:
        """An error has ended the statement that ran, and is about to be shown."""


class WatchedCell:
    """Learns how IPython names a cell, and hands on each piece of it just before it runs.

    For that it stands in for methods of the shell and its compiler, on these objects alone. No
    frame of ours is on the stack while the cell is compiled or runs.
    """

    def __init__(self, shell: Any, typed: str, profiler: CodeWatcher) -> None:
        self.text = CellText(())
        self.has_run = False
        self._shell = shell
        self._compiler = shell.compile
        self._typed = typed
        self._body: str | None = None
        self._profiler = profiler
        # What stood where we stand in: the object, the name, what it was, and what is ours.
        self._replaced: list[tuple[Any, str, object, object]] = []
        # What runs under a file name: its text, and how far its lines are from the cell's.
        self._places: dict[str, tuple[CellText, int]] = {}

    @property
    def shifts(self) -> dict[str, int]:
        """How far the lines under each file name are from the cell's."""
        return {name: shift for name, (_, shift) in self._places.items()}

    def stand_in(self) -> None:
        """Begin to see what the shell compiles and runs."""
        shell, compiler = self._shell, self._compiler
        self._put(compiler, "cache", self._learning(compiler.cache))
        # IPython 7 renames what it has compiled, so what runs is what has to be watched.
        self._put(shell, "run_code", self._watching(shell.run_code))
        self._put(shell, "showtraceback", self._without_us(shell.showtraceback))
        if self._typed.lstrip().startswith("%%"):
            self._put(shell, "compile", _BodyCompiler(compiler, self._watch_if_ours))

    def step_aside(self) -> None:
        """Leave the shell as it was."""
        for owner, name, before, ours in reversed(self._replaced):
            if vars(owner).get(name) is not ours:
                continue  # the cell has put its own there
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def _put(self, owner: Any, name: str, ours: object) -> None:
        self._replaced.append((owner, name, vars(owner).get(name, _MISSING), ours))
        setattr(owner, name, ours)

    def _watching(self, run_code: Callable[..., Any]) -> Callable[..., Any]:
        def watch_and_run(code: CodeType, *args: Any, **kwargs: Any) -> Any:
            self._watch_if_ours(code)
            return run_code(code, *args, **kwargs)

        return watch_and_run

    def _without_us(self, showtraceback: Callable[..., Any]) -> Callable[..., Any]:
        def strip_and_show(*args: Any, **kwargs: Any) -> Any:
            self._profiler.statement_failed()
            strip_our_frames(sys.exc_info()[1])
            return showtraceback(*args, **kwargs)

        return strip_and_show

    def _watch_if_ours(self, code: CodeType) -> None:
        place = self._places.get(code.co_filename)
        if place is not None:
            self.has_run = True
            self._profiler.watch(code, *place)

    def _learning(self, cache: Callable[..., str]) -> Callable[..., str]:
        """Name a piece of source as ever, and learn the name."""

        def cache_and_learn(transformed_code: str, *args: Any, **kwargs: Any) -> str:
            name = cache(transformed_code, *args, **kwargs)
            if not self._places:
                self._learn(name, transformed_code)
            elif transformed_code.rstrip() == self._body:
                self._places[name] = self._places[_TIMED_BODY]
            return name

        return cache_and_learn

    def _learn(self, name: str, transformed_code: str) -> None:
        if self._typed.lstrip().startswith("%%"):
            # `%%time` and `%%capture` compile and run their body by this shell, too.
            self.text, shift = CellText.of(self._typed.strip()).under_magic()
            self._body = "\n".join(self.text.lines[shift:])
            self._places = {name: (self.text, 0), _TIMED_BODY: (self.text, shift)}
        else:
            self.text = CellText.of(self._typed, transformed_code)
            self._places = {name: (self.text, 0)}


class _BodyCompiler:
    """Stands in for the shell's compiler under a cell magic, whose body nobody else hands on."""

    def __init__(self, compiler: Any, watch: Callable[[CodeType], None]) -> None:
        self._compiler = compiler
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler, name)

    def __call__(self, source: Any, filename: str, symbol: str, *more: Any) -> Any:
        """Compile as ever; if it is the cell's body, have its lines watched."""
        code = self._compiler(source, filename, symbol, *more)
        if filename == _TIMED_BODY:
            self._watch(code)
        return code
