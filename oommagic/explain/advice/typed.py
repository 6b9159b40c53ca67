"""A cell as typed, and how to change it: by edits, so that comments and magics stay as they are."""

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import takewhile

from oommagic.cell import parse_quietly
from oommagic.explain.advice.nodes import has_long_text
from oommagic.explain.advice.shared_lines import (
    BLANKS,
    SharedLine,
    first_line,
    indented,
    logical_lines,
)
from oommagic.explain.advice.tree import CellTree
from oommagic.report import Edit

# What may stand between an argument and what closes around it. Possessive: what has begun as a
# comment stays one.
_SPACE = r"(?:[ \t\f]|\\?(?:\r\n|\r|\n)|\#[^\r\n]*+)*+"
_CLOSING = re.compile(rf"{_SPACE}\)")


class TypedCell(CellTree):
    """One cell, and the edits that can be made of it."""

    @cached_property
    def _newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def replace(self, node: ast.expr | ast.stmt | ast.keyword, text: str) -> Edit:
        """Write something else in place of a node."""
        return Edit(self.start(node), self.end(node), text)

    def set_keyword(self, call: ast.Call, name: str, value: str) -> Edit | None:
        """Give a call this keyword argument; None where that can't be done by a small edit."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return self.replace(keyword.value, value)
        if any(one.arg is None for one in call.keywords):
            return None  # `**options` may have it
        arguments = self._arguments(call)
        if not arguments:
            at = self.end(call) - 1
            return Edit(at, at, f"{name}={value}")
        at = self._behind_parentheses(call, arguments[-1])
        # A generator without parentheses of its own can't have another argument beside it.
        return Edit(at, at, f", {name}={value}") if at < self.end(call) else None

    def _arguments(self, call: ast.Call) -> list[ast.expr | ast.keyword]:
        return sorted([*call.args, *call.keywords], key=self.start)

    def _behind_parentheses(self, call: ast.Call, argument: ast.expr | ast.keyword) -> int:
        """Go on behind what closes around an argument: `f((x))`."""
        at, most = self.end(argument), self.end(call) - 1
        while found := _CLOSING.match(self.text, at, most):
            at = found.end()
        return at

    def insert_before(self, statement: ast.stmt, code: str) -> Edit:
        """Write lines above a statement, as far to the right as it is.

        Where something stands before it on its line, they come between.
        """
        first, start = first_line(statement), self.start(statement)
        at = self.offset(first, 0)
        # Before a statement that is timed stands its magic alone: lines go above both.
        if first == statement.lineno and self.text[at:start].strip() not in {"", "%time"}:
            return self._shared_line(statement).insert(start, code, is_behind=False)
        return Edit(at, at, indented(code, self.margin(first), self._newline))

    def insert_after(self, statement: ast.stmt, code: str) -> Edit:
        """Write lines below a statement, as far to the right as it is.

        Where it stands behind a colon, or another statement stands behind it, they come between.
        """
        end, (_, last) = self.end(statement), self._logical_lines[statement.end_lineno or 0]
        at = self.offset(last + 1, 0)
        behind = self.text[end:at].strip(f"{BLANKS};\r\n")
        line = self._shared_line(statement)
        if line.is_body or (behind and not behind.startswith("#")):
            return line.insert(end, code, is_behind=True)
        text = indented(code, line.indentation, self._newline)
        ends = self.lines[last - 1].endswith(("\n", "\r"))
        return Edit(at, at, text if ends else self._newline + text.removesuffix(self._newline))

    def _shared_line(self, statement: ast.stmt) -> SharedLine:
        """Describe the line on which a statement stands, with others of its block or alone."""
        span = self._logical_lines[statement.lineno]
        block = self.block_of(statement)
        first = next(one for one in block if self._logical_lines[one.lineno] == span)
        line, start = self.offset(first_line(first), 0), self._start(first)
        is_body = bool(self.text[line:start].strip())
        return SharedLine(self.text, start, self.margin(span[0]), is_body, self._newline)

    @cached_property
    def _logical_lines(self) -> Mapping[int, tuple[int, int]]:
        return logical_lines(self.tree, self.lines)

    def put_within(self, statements: Sequence[ast.stmt], header: str) -> tuple[Edit, ...]:
        """Put statements of one block into another: `with …:`. Nothing where lines can't move.

        A text over several lines would change, and a line may have another statement on it.
        """
        first, last = statements[0].lineno, statements[-1].end_lineno or statements[-1].lineno
        start, end = self.offset(first, 0), self.offset(last + 1, 0)
        before = self.text[start : self.start(statements[0])]
        behind = self.text[self.end(statements[-1]) : end].partition("#")[0]
        if before.strip() or behind.strip() or any(map(has_long_text, statements)):
            return ()
        more = "\t" if "\t" in before else " " * 4
        lines = range(first + 1, last + 1)
        places = [self.offset(line, 0) for line in lines if self.lines[line - 1].strip()]
        above = Edit(start, start, f"{before}{header}\n{more}")
        return (above, *(Edit(place, place, more) for place in places))

    def remove(self, statement: ast.stmt) -> Edit:
        """Take a statement away, with its lines if they are its own; no block is left empty."""
        first, last = first_line(statement), statement.end_lineno or statement.lineno
        line, start, end = self.offset(first, 0), self._start(statement), self.end(statement)
        next_line = self.offset(last + 1, 0)
        before, behind = self.text[line:start].strip(), self.text[end:next_line].strip()
        is_only = len(self.block_of(statement)) == 1 and statement not in self.tree.body
        goes_on = self.text[:line].rstrip("\r\n").endswith("\\")
        has_others = bool(before) or (bool(behind) and not behind.startswith("#"))
        if is_only or goes_on or has_others:
            return Edit(start, end, "pass")
        if behind:  # a comment, which stays
            return Edit(start, self.text.index("#", end), "")
        return Edit(line, next_line, "")

    def _start(self, statement: ast.stmt) -> int:
        """Give the place of a statement's first character, or its decorators'."""
        first = first_line(statement)
        if first == statement.lineno:
            return self.start(statement)
        return self.offset(first, 0) + len(self.margin(first))

    def add_import(self, code: str) -> Edit | None:
        """Write an import on top of the cell; None if it stands there already, or nothing does."""
        wanted = ast.dump(parse_quietly(code).body[0])
        if not self.tree.body or any(ast.dump(one) == wanted for one in self.tree.body):
            return None
        above = list(takewhile(self._stays_on_top, self.tree.body))
        if len(above) == len(self.tree.body):
            return self.insert_after(above[-1], code)
        return self.insert_before(self.tree.body[len(above)], code)

    def _stays_on_top(self, statement: ast.stmt) -> bool:
        """Say whether a statement is the cell's magic, text or `from __future__`."""
        if self.lines[statement.lineno - 1].lstrip().startswith("%%"):
            return True
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return isinstance(statement.value.value, str)
        return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
