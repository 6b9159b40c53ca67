"""One cell's text: as typed, as executed, and the map between their lines.

Lines are numbered as IPython's own tracebacks number them: from 1, without the line of the magic.
"""

import ast
import difflib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of one file, by its first line; `is_long` if it spans several."""

    filename: str
    first_line: int
    is_long: bool


@dataclass(frozen=True, slots=True)
class CellText:
    """A piece of source whose lines are profiled.

    `statement_starts` maps each line to the first line of its statement, so that a call that
    spans five lines is one row. `guarded_lines` stand in a `try` whose handlers may catch.
    """

    lines: tuple[str, ...]
    statement_starts: Mapping[int, int] = field(default_factory=dict)
    guarded_lines: frozenset[int] = frozenset()

    @classmethod
    def of(cls, typed: str, executed: str | None = None) -> "CellText":
        """Read a cell as typed, and as executed where IPython has rewritten it."""
        executed = typed if executed is None else executed
        tree = _parse(executed)
        return cls(
            lines=tuple(_as_typed(typed.splitlines(), executed.splitlines())),
            statement_starts=dict(_statement_starts(tree)),
            guarded_lines=frozenset(_guarded_lines(tree)),
        )

    @classmethod
    def of_function(cls, lines: Sequence[str]) -> "CellText":
        """Read a function's source as it stands in its file, indented or not."""
        return cls.of(textwrap.dedent("".join(lines)))

    def under_magic(self) -> "CellText":
        """Return the text below a cell magic such as `%%time`, with its lines' own numbers."""
        body = CellText.of("\n".join(self.lines[1:]))
        return replace(
            body,
            lines=self.lines,
            statement_starts={line + 1: start + 1 for line, start in body.statement_starts.items()},
            guarded_lines=frozenset(line + 1 for line in body.guarded_lines),
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
        return Statement(filename, start, is_long=self.statement_start(start + 1) == start)


def _parse(source: str) -> ast.Module:
    try:
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


def _statement_starts(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            for line in range(node.lineno + 1, _head_end(node) + 1):
                yield line, node.lineno


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
    for node in ast.walk(tree):
        if isinstance(node, ast.Try | ast.TryStar) and node.handlers:
            last = node.body[-1].end_lineno or node.body[-1].lineno
            yield from range(node.body[0].lineno, last + 1)
