"""Statements that share a line, as in `a = 1; b = 2` or `if x: f()`, and code put between them."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oommagic.cell import parse_quietly
from oommagic.report import Edit

BLANKS = " \t\f"
_SEMICOLON = re.compile(rf"[{BLANKS}]*;?[{BLANKS}]*")


@dataclass(frozen=True, slots=True)
class SharedLine:
    """The statements of one block that share a line of a cell."""

    text: str
    """The whole cell."""
    start: int
    """Where the first of them begins."""
    indentation: str
    """The line's own."""
    is_body: bool
    """They stand behind a colon: `if x: f()`."""
    newline: str

    def insert(self, at: int, code: str, *, is_behind: bool) -> Edit:
        """Write code before or behind the statement that begins or ends at a place."""
        if _is_simple(code):
            code = code.strip()
            return Edit(at, at, f"; {code}" if is_behind else f"{code}; ")
        return self._opened(at, code)

    def _opened(self, at: int, code: str) -> Edit:
        """Give lines of their own to the code, and to what stands before and behind it."""
        indent = self._block_indentation()
        before = self.text[self.start : at].rstrip(f"{BLANKS};")
        lines = [f"{indent}{before}"] if before else []
        lines += [f"{indent}{line}" if line else "" for line in code.strip("\n").split("\n")]
        rest = _SEMICOLON.match(self.text, at)
        end = rest.end() if rest is not None else at
        if self.text[end : end + 1].strip("\r\n#"):
            lines.append(indent)
        else:
            end = at
        written = self.newline.join(lines)
        if not self.is_body:
            return Edit(self.start, end, written.removeprefix(indent))
        colon = len(self.text[: self.start].rstrip(BLANKS))
        return Edit(colon, end, self.newline + written)

    def _block_indentation(self) -> str:
        one_level = "\t" if self.indentation.startswith("\t") else "    "
        return self.indentation + one_level * self.is_body


def _is_simple(code: str) -> bool:
    """Say whether code may stand between semicolons."""
    statements = parse_quietly(code).body
    is_one_line = "\n" not in code.strip() and "#" not in code
    return is_one_line and not any(hasattr(one, "body") for one in statements)


def logical_lines(tree: ast.Module, lines: Sequence[str]) -> Mapping[int, tuple[int, int]]:
    """Map each line of a statement to the first and last line that it can't be parted from.

    Of a statement with a block, its head counts.
    """
    spans = sorted(
        (first_line(node), _head_end(node, lines))
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
    )
    joined: list[tuple[int, int]] = []
    for first, last in spans:
        if joined and first <= joined[-1][1]:
            first, last = joined[-1][0], max(last, joined.pop()[1])  # noqa: PLW2901
        joined.append((first, last))
    return {line: span for span in joined for line in range(span[0], span[1] + 1)}


def _head_end(node: ast.stmt, lines: Sequence[str]) -> int:
    if isinstance(node, ast.Match):
        return node.subject.end_lineno or node.lineno
    body: Sequence[ast.stmt] = getattr(node, "body", ())
    if not body:
        return node.end_lineno or node.lineno
    first = first_line(body[0])
    before = lines[first - 1].encode()[: body[0].col_offset]
    return first if before.strip() and first == body[0].lineno else first - 1


def first_line(statement: ast.stmt) -> int:
    """Give the line on which a statement begins, its decorators included."""
    decorators: Sequence[ast.expr] = getattr(statement, "decorator_list", ())
    return min([statement.lineno, *(one.lineno for one in decorators)])


def indented(code: str, indentation: str, newline: str) -> str:
    """Write code as whole lines, so far to the right."""
    lines = code.strip("\n").split("\n")
    return "".join(f"{indentation}{line}{newline}" if line else newline for line in lines)
