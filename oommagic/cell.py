"""One cell's text: as typed, as executed, and the map between their lines.

Lines are numbered as IPython's own tracebacks number them: from 1, without the line of the magic.
"""

import ast
import difflib
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from oommagic.report import Edit

# Where the statements inside a statement stand.
_BLOCKS = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of one file, by its first line.

    One that spans several lines, or has a comprehension, comes back to a line without having
    begun anew: `comes_back`.
    """

    filename: str
    first_line: int
    comes_back: bool


@dataclass(frozen=True, slots=True)
class CellText:
    """A piece of source whose lines are profiled.

    `statement_starts` maps each line to the first line of its statement, so that a call that
    spans five lines is one row. `guarded_lines` stand in a `try` whose handlers may catch.
    """

    lines: tuple[str, ...]
    statement_starts: Mapping[int, int] = field(default_factory=dict)
    guarded_lines: frozenset[int] = frozenset()
    comprehensions: frozenset[int] = frozenset()
    """The first lines of statements that have a comprehension."""

    @classmethod
    def of(cls, typed: str, executed: str | None = None) -> "CellText":
        """Read a cell as typed, and as executed where IPython has rewritten it."""
        executed = typed if executed is None else executed
        tree = parse_quietly(executed)
        return cls(
            lines=tuple(_as_typed(typed.splitlines(), executed.splitlines())),
            statement_starts=dict(_statement_starts(tree)),
            guarded_lines=frozenset(_guarded_lines(tree)),
            comprehensions=frozenset(_comprehensions(tree)),
        )

    @classmethod
    def of_function(cls, lines: Sequence[str]) -> "CellText":
        """Read a function's source as it stands in its file, indented or not."""
        return cls.of(textwrap.dedent("".join(lines)))

    def under_magic(self) -> tuple["CellText", int]:
        """Return this cell read as a cell magic's body, and how far down that body begins.

        IPython drops the blank lines above a body before `%%time` or `%%capture` runs it.
        """
        below = self.lines[1:]
        shift = 1 + next((at for at, line in enumerate(below) if line.strip()), 0)
        body = CellText.of("\n".join(self.lines[shift:]))
        return body._moved_down(self.lines, shift), shift  # noqa: SLF001 (one of its own kind)

    def _moved_down(self, lines: tuple[str, ...], shift: int) -> "CellText":
        starts = {line + shift: start + shift for line, start in self.statement_starts.items()}
        return CellText(
            lines=lines,
            statement_starts=starts,
            guarded_lines=frozenset(line + shift for line in self.guarded_lines),
            comprehensions=frozenset(line + shift for line in self.comprehensions),
        )

    def source(self, line_number: int) -> str:
        """Return one line's text; nothing for a line outside the cell."""
        inside = 1 <= line_number <= len(self.lines)
        return self.lines[line_number - 1] if inside else ""

    def statement_start(self, line_number: int) -> int:
        """Return the line on which the statement of this line begins."""
        return self.statement_starts.get(line_number, line_number)

    def statement(self, filename: str, line_number: int) -> Statement:
        """Name the statement of a line."""
        start = self.statement_start(line_number)
        spans_lines = self.statement_start(start + 1) == start
        return Statement(filename, start, spans_lines or start in self.comprehensions)


# Python warns of a doubtful escape whenever it reads a source; the user has been warned already.
# Before 3.12 that is no SyntaxWarning.
_NO_WARNING = ("ignore", None, Warning, None, 0)


@contextmanager
def _without_warnings() -> Iterator[None]:
    # `catch_warnings` would make Python forget which warnings it has shown once already.
    warnings.filters.insert(0, _NO_WARNING)  # type: ignore[attr-defined]  # typed as a Sequence
    try:
        yield
    finally:
        warnings.filters.remove(_NO_WARNING)  # type: ignore[attr-defined]


def parse_quietly(source: str) -> ast.Module:
    """Read source text; what is not Python has no statements."""
    try:
        with _without_warnings():
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # IPython says what is wrong with it; without a tree each line stands for itself.
        return ast.Module(body=[], type_ignores=[])


def _as_typed(typed: list[str], executed: list[str]) -> Iterator[str]:
    """Yield the typed line for each executed one (`!ls` rather than `get_ipython().system…`)."""
    while typed and not typed[0].strip():
        typed = typed[1:]
    if len(typed) == len(executed):
        yield from typed
        return
    matcher = difflib.SequenceMatcher(None, typed, executed, autojunk=False)
    for _, typed_from, typed_to, executed_from, executed_to in matcher.get_opcodes():
        for offset in range(executed_to - executed_from):
            at = typed_from + offset
            yield typed[at] if at < typed_to else executed[executed_from + offset]


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Walk through statements alone: a long cell has ten times as many other nodes."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for field_name in _BLOCKS:
            waiting.extend(getattr(node, field_name, ()))


def _statement_starts(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in _statements(tree):
        first = _first_line(node)
        for line in range(first + 1, _head_end(node) + 1):
            yield line, first


def _head_end(node: ast.stmt) -> int:
    """Return the last line of a simple statement, or of a compound statement's head."""
    if isinstance(node, ast.Match):
        return node.subject.end_lineno or node.lineno
    body: list[ast.stmt] = getattr(node, "body", [])
    if not body:
        return node.end_lineno or node.lineno
    return min(_first_line(child) for child in body) - 1


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _guarded_lines(tree: ast.Module) -> Iterator[int]:
    for node in _statements(tree):
        if isinstance(node, ast.Try | ast.TryStar) and node.handlers:
            last = node.body[-1].end_lineno or node.body[-1].lineno
            yield from range(node.body[0].lineno, last + 1)


def _comprehensions(tree: ast.Module) -> Iterator[int]:
    for node in _statements(tree):
        # The head of a loop comes back anyway, and each time is a hit.
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            continue
        if any(isinstance(inner, ast.comprehension) for inner in _inside_head(node)):
            yield node.lineno


def _inside_head(node: ast.stmt) -> Iterator[ast.AST]:
    for field_name, value in ast.iter_fields(node):
        if field_name not in _BLOCKS:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from ast.walk(child)


# ---- A cell as typed, changed -------------------------------------------------------------------

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# Under these a cell's body is Python that runs in the notebook.
_TRANSPARENT = re.compile(r"\s*%%(?:time|timeit|capture|prun|oomprofile)\b")
_OF_IPYTHON = re.compile(r"(?P<indent>\s*)(?:[%!?].*|.*\?\s*|(?P<head>[\w\s.,\[\]'\"]+=\s*)[%!].*)")

# A statement that is timed runs; what stands for its magic is as long, so that places stay.
_TIMED = re.compile(r"(?P<indent>\s*)%time(?P<statement>[ \t]+[^-\s].*)")
_AS_LONG = "True;"
_TIMED_VALUE = re.compile(r"(?P<head>[\w\s.,\[\]'\"]+=\s*)%time(?P<statement>[ \t]+[^-\s].*)")
_BLANKS = " " * len("%time")

_LIKE_IPYTHON = re.compile(r"\s*(?:[%!?]|[\w.]+\?\??\s*$)|[\w\s.,\[\]'\"]+=\s*[%!]")


def physical_lines(text: str) -> list[str]:
    """Split a text as Python's own line numbers do, each line with its end."""
    return _LINE.findall(text)


def parse_typed(typed: str) -> ast.Module:
    """Read a cell as typed: lines that are IPython's own count as `pass`, at the same place."""
    return _as_python(typed)[0]


def without_ipython(typed: str) -> tuple[str, tuple[str, ...]]:
    """Give a cell with `pass` in place of IPython's own lines, and those lines.

    Of `%time` the statement stays. What is not Python even then is an empty text.
    """
    tree, lines = _as_python(typed)
    if not tree.body:
        return "", ()
    typed_lines = physical_lines(typed)
    pairs = zip(map(str.strip, typed_lines), map(str.strip, lines), strict=True)
    left_out = [line for line, kept in pairs if kept not in _with_its_statement(line)]
    return "".join(lines), tuple(left_out)


def _with_its_statement(line: str) -> tuple[str, ...]:
    """Give a line as it may have been kept: as it is, or without its `%time`."""
    return line, line.replace("%time", _AS_LONG, 1), line.replace("%time", _BLANKS, 1)


def _as_python(typed: str) -> tuple[ast.Module, list[str]]:
    """Read a cell, and give its lines with `pass` in place of IPython's own.

    At first all lines that begin like one are taken for one, as reading takes most of the time;
    where one of them was a piece of a text, one by one those that Python does not read.
    """
    lines = physical_lines(typed)
    likely = [at for at, line in enumerate(lines) if _LIKE_IPYTHON.match(line)]
    if likely:
        for at in likely:
            _blank_out(lines, at)
        tree = _read(lines)
        begun = {node.lineno - 1 for node in _statements(tree)}
        if begun.issuperset(likely):
            return tree, lines
        lines = physical_lines(typed)
    return _read(lines), lines


def _read(lines: list[str]) -> ast.Module:
    """Parse lines, with `pass` put in place of each of IPython's own that is in the way."""
    for _ in range(len(lines) + 1):
        try:
            with _without_warnings():
                return ast.parse("".join(lines))
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            if not 0 <= at < len(lines) or not _blank_out(lines, at):
                break
        except (ValueError, RecursionError, MemoryError):
            break
    return ast.Module(body=[], type_ignores=[])


def _blank_out(lines: list[str], at: int) -> bool:
    """Put `pass` in place of a line of IPython's; say whether it was one."""
    line = lines[at].rstrip("\r\n")
    found = _OF_IPYTHON.fullmatch(line)
    is_body = line.lstrip().startswith("%%") and not _TRANSPARENT.match(line)
    if found is None or is_body or line.strip() == "pass":
        return False
    timed = _TIMED.fullmatch(line)
    if timed is not None and parse_quietly(_AS_LONG + timed["statement"]).body:
        lines[at] = f"{timed['indent']}{_AS_LONG}{timed['statement']}\n"
        return True
    timed = _TIMED_VALUE.fullmatch(line)
    if timed is not None and parse_quietly(f"_ ={timed['statement']}").body:
        lines[at] = f"{timed['head']}{_BLANKS}{timed['statement']}\n"
        return True
    rest = f"{found['head']}None" if found["head"] else "pass"
    # A magic may go on in the next line.
    while line.endswith("\\") and at + 1 < len(lines):
        lines[at] = f"{found['indent']}pass\n"
        at, line = at + 1, lines[at + 1].rstrip("\r\n")
        rest = "pass"
    lines[at] = f"{found['indent']}{rest}\n"
    return True


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Make edits that do not overlap; two at one place come in their own order."""
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < at:
            raise ValueError("These edits overlap.")
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, text[at:]])


def breaks(before: str, after: str) -> bool:
    """Say whether a change of a cell makes something of it that Python can't run."""
    if compiles(after):
        return False
    # One that did not compile, as with `return` on top of it, is only to be read as before.
    return compiles(before) or bool(parse_typed(before).body and not parse_typed(after).body)


def compiles(typed: str) -> bool:
    """Say whether Python can run a cell: what it can read may still name an argument twice."""
    tree = parse_typed(typed)
    try:
        with _without_warnings():
            compile(tree, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(tree.body)


def diff(before: str, after: str) -> tuple[str, ...]:
    """Say line by line what changes, each line behind ` `, `-`, `+` or `@`."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return tuple(islice(lines, 2, None))  # the first two would name files
