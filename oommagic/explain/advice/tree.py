"""A cell as a tree of Python: what to look for in it, and where that stands in the text."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import accumulate

from oommagic.cell import parse_typed, physical_lines
from oommagic.explain.advice.nodes import dotted, free_names, names_in, parameters, whole_number
from oommagic.explain.names_given import given_by

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ASSIGNING = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COUNTING = ("range", "enumerate")
_DECIDING = (ast.If, ast.IfExp, ast.Match)
_TEXT_OR_COMMENT = re.compile(
    r"""(?s:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3})"""
    r"""|"(?:\\.|[^"\\\r\n])*"|'(?:\\.|[^'\\\r\n])*'|(?P<comment>\#[^\r\n]*)"""
)


class CellTree:
    """One cell, its tree, and where everything in it stands."""

    def __init__(self, text: str) -> None:
        """Read a cell; one that is not Python has an empty tree, and nothing is found in it."""
        self.text = text
        self.tree = parse_typed(text)
        self.lines = physical_lines(text)
        self._starts = (0, *accumulate(map(len, self.lines)))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes, each before those inside it, in the order of the source."""
        return tuple(_in_order(self.tree))

    @cached_property
    def parents(self) -> Mapping[ast.AST, ast.AST]:
        """Each node's parent."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        """All calls but those in f-strings, whose places Python does not always tell right."""
        return tuple(
            node
            for node in self.nodes
            if isinstance(node, ast.Call)
            and not any(isinstance(above, ast.JoinedStr) for above in self.around(node))
        )

    @cached_property
    def names(self) -> frozenset[str]:
        """All names that stand in it."""
        return frozenset(node.id for node in self.nodes if isinstance(node, ast.Name))

    def calls_of(self, *called: str) -> Iterator[ast.Call]:
        """Yield the calls of what has this name, or ends with it: `fit`, `keras.Input`."""
        found = {
            number: call
            for one in called
            for number, name, call in self._called.get(one.rpartition(".")[2], ())
            if name == one or name.endswith(f".{one}")
        }
        yield from (found[number] for number in sorted(found))

    @cached_property
    def _called(self) -> Mapping[str, list[tuple[int, str, ast.Call]]]:
        """All calls by the last part of their names, numbered."""
        found: dict[str, list[tuple[int, str, ast.Call]]] = {}
        for number, call in enumerate(self.calls):
            name = dotted(call.func)
            found.setdefault(name.rpartition(".")[2], []).append((number, name, call))
        return found

    # ---- Where things stand -------------------------------------------------------------------

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what stands around a node, the innermost first."""
        above = self.parents.get(node)
        while above is not None:
            yield above
            above = self.parents.get(above)

    def statement(self, node: ast.AST) -> ast.stmt:
        """Give the innermost statement that has the node, or is it."""
        if isinstance(node, ast.stmt):
            return node
        return next(above for above in self.around(node) if isinstance(above, ast.stmt))

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """Give the statements among which this one stands."""
        above = self.parents.get(statement, self.tree)
        for _, value in ast.iter_fields(above):
            if isinstance(value, list) and any(each is statement for each in value):
                return value
        return [statement]

    def loop_of(self, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
        """Give the innermost loop that repeats a node; a function's body is repeated by none."""
        below = node
        for above in self.around(node):
            if isinstance(above, _FUNCTIONS):
                return None
            # What a loop goes over is found out once.
            if isinstance(above, _LOOPS) and below is not getattr(above, "iter", None):
                return above
            below = above
        return None

    def is_repeated(self, node: ast.AST) -> bool:
        """Say whether a loop or a comprehension repeats a node."""
        path = [node]
        for above in self.around(node):
            if isinstance(above, _FUNCTIONS):
                return False
            if isinstance(above, _COMPREHENSIONS) and above.generators[0].iter not in path:
                return True
            if isinstance(above, _LOOPS) and path[-1] is not getattr(above, "iter", None):
                return True
            path.append(above)
        return False

    def is_conditional(self, node: ast.AST) -> bool:
        """Say whether something decides in which turns of a loop a node runs."""
        beside = self.block_of(self.statement(node))
        if any(isinstance(one, ast.Continue) for each in beside for one in ast.walk(each)):
            return True
        return any(isinstance(above, _DECIDING) for above in self.around(node))

    def function_of(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Give the innermost function in whose body a node stands."""
        inside = (ast.FunctionDef, ast.AsyncFunctionDef)
        return next((above for above in self.around(node) if isinstance(above, inside)), None)

    @cached_property
    def counters(self) -> frozenset[str]:
        """The names with which loops count."""
        return frozenset(_counters(self.nodes))

    # ---- What names stand for -----------------------------------------------------------------

    def assignments(self, name: str) -> tuple[ast.stmt, ...]:
        """Give every statement of the cell that gives a name a value, in whichever way."""
        return self._assignments.get(name, ())

    @cached_property
    def _assignments(self) -> Mapping[str, tuple[ast.stmt, ...]]:
        found: dict[str, dict[ast.stmt, None]] = {}
        for node in self.nodes:
            for name in given_by(node):
                found.setdefault(name, {})[self.statement(node)] = None
        return {name: tuple(statements) for name, statements in found.items()}

    def assignments_for(self, name: ast.Name) -> tuple[ast.stmt, ...]:
        """Give the statements that may have given a name its value where it stands.

        What only is a parameter of a function elsewhere has not.
        """
        around = set(self.around(name))
        return tuple(
            one
            for one in self.assignments(name.id)
            if one in around or not _has_as_parameter(one, name.id)
        )

    def makers(self, name: str) -> Iterator[ast.stmt]:
        """Yield the statements that make what a name stands for: a value, a function or a class."""
        for one in self.assignments(name):
            is_its_own = isinstance(one, _DEFINING) and one.name == name
            if is_its_own or isinstance(one, _ASSIGNING):
                yield one

    def names_reached(self, node: ast.AST) -> frozenset[str]:
        """Give the names that a node uses, and those of which the cell makes what they stand for.

        Those are what functions and classes use, and what stands in `build = partial(make, size)`.
        """
        reached: set[str] = set()
        waiting = list(names_in(node))
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += (used for one in self.makers(name) for used in _names_behind(one))
        return frozenset(reached)

    def value_of(self, name: ast.Name) -> ast.expr | None:
        """Give what a name stands for, if the cell gives it one value only, as in `name = …`.

        Or as in `name, other = …, …`.
        """
        all_of_them = self.assignments_for(name)
        if len(all_of_them) != 1:
            return None
        only = all_of_them[0]
        if isinstance(only, ast.AnnAssign):
            return only.value
        if isinstance(only, ast.Assign) and len(only.targets) == 1:
            return _part_for(name.id, only.targets[0], only.value)
        return None

    def resolved(self, value: ast.expr) -> ast.expr:
        """Give what is meant: for a name with one value in this cell, that value."""
        if isinstance(value, ast.Name):
            meant = self.value_of(value)
            if meant is not None:
                return meant
        return value

    def number(self, value: ast.expr | None) -> int | None:
        """Give a whole number that is written there, or in the cell for the name there."""
        return None if value is None else whole_number(self.resolved(value))

    def comments_in(self, start: int, end: int) -> tuple[str, ...]:
        """Give the comments of a piece that begins at a token."""
        found = _TEXT_OR_COMMENT.finditer(self.text, start, end)
        return tuple(one["comment"] for one in found if one["comment"])

    # ---- Places in the text -------------------------------------------------------------------

    def offset(self, line: int, column: int) -> int:
        """Count characters up to a place in the tree, whose columns count bytes."""
        if line > len(self.lines):
            return len(self.text)
        text = self.lines[line - 1]
        if not text.isascii():
            column = len(text.encode()[:column].decode(errors="ignore"))
        return self._starts[line - 1] + min(column, len(text))

    def line(self, number: int) -> str:
        """Give a line by its number."""
        return self.lines[number - 1] if number <= len(self.lines) else ""

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """Give the place of a node's first character."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """Give the place behind a node's last character."""
        last = node.end_lineno or node.lineno
        if last in self._magic_lines and isinstance(node, ast.stmt):
            return self.offset(last, 0) + len(self.lines[last - 1].rstrip("\r\n"))
        return self.offset(last, node.end_col_offset or 0)

    @cached_property
    def _magic_lines(self) -> frozenset[int]:
        """The lines of IPython's own: in the tree a shorter `pass` or `None` stands for each."""
        return frozenset(
            node.lineno
            for node in self.nodes
            if isinstance(node, ast.Pass | ast.Assign) and self._is_magic(node)
        )

    def _is_magic(self, statement: ast.Pass | ast.Assign) -> bool:
        if isinstance(statement, ast.Pass):
            return not self.text.startswith("pass", self.start(statement))
        value = statement.value
        is_none = isinstance(value, ast.Constant) and value.value is None
        return is_none and not self.text.startswith("None", self.start(value))

    def text_of(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        """Give a node as it is written."""
        return self.text[self.start(node) : self.end(node)]

    def margin(self, line: int) -> str:
        """Give the blanks with which a line begins."""
        text = self.line(line)
        return text[: len(text) - len(text.lstrip())]


def _counters(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.Call):
            first = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
            if dotted(node.iter.func) in _COUNTING and isinstance(first, ast.Name):
                yield first.id


def _has_as_parameter(statement: ast.stmt, name: str) -> bool:
    """Say whether a statement gives a name a value only inside of a function, by its calls."""
    inside = (ast.FunctionDef, ast.AsyncFunctionDef)
    return (
        isinstance(statement, inside) and statement.name != name and name in parameters(statement)
    )


def _names_behind(maker: ast.stmt) -> Iterable[str]:
    """Give the names by which a statement makes something; a function has others of its own."""
    if isinstance(maker, ast.FunctionDef | ast.AsyncFunctionDef):
        return free_names(maker)
    return names_in(maker)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(reversed(list(ast.iter_child_nodes(one))))


def _part_for(name: str, target: ast.expr, value: ast.expr) -> ast.expr | None:
    """Find what an assignment gives to a name: all of it, or one of as many values as names."""
    if isinstance(target, ast.Name):
        return value if target.id == name else None
    if not isinstance(target, ast.Tuple | ast.List) or not isinstance(value, ast.Tuple | ast.List):
        return None
    parts = [*target.elts, *value.elts]
    if len(target.elts) != len(value.elts) or any(isinstance(one, ast.Starred) for one in parts):
        return None
    pairs = zip(target.elts, value.elts, strict=True)
    found = [part for one, given in pairs if (part := _part_for(name, one, given)) is not None]
    return found[0] if len(found) == 1 else None
