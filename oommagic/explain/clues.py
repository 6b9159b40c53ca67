"""What a cell's source says of where memory may go: calls that are known to take it, and loops.

A clue only names a line. That memory went there, figures must say.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent
from typing import Literal

from oommagic.cell import parse_typed
from oommagic.explain.filling import items_added
from oommagic.explain.names_given import given_by

ClueKind = Literal[
    "to_categorical",
    "array",
    "float64",
    "from_tensor_slices",
    "tensor",
    "cache",
    "shuffle",
    "batch",
    "fit",
    "evaluate",
    "predict",
    "append",
    "model",
]
"""`array`: a conversion by NumPy; `tensor`: one by TensorFlow; `model`: one is built."""

_BY_NAME: dict[str, ClueKind] = {
    "to_categorical": "to_categorical",
    "one_hot": "to_categorical",
    "get_dummies": "to_categorical",
    "array": "array",
    "asarray": "array",
    "stack": "array",
    "vstack": "array",
    "hstack": "array",
    "concatenate": "array",
    "float64": "float64",
    "from_tensor_slices": "from_tensor_slices",
    "from_tensors": "from_tensor_slices",
    "constant": "tensor",
    "convert_to_tensor": "tensor",
    "cache": "cache",
    "shuffle": "shuffle",
    "batch": "batch",
    "fit": "fit",
    "train_on_batch": "fit",
    "evaluate": "evaluate",
    "test_on_batch": "evaluate",
    "predict": "predict",
    "predict_on_batch": "predict",
    "append": "append",
    "extend": "append",
    "clone_model": "model",
    "Sequential": "model",
    "Model": "model",
    "Functional": "model",
}
_NUMPY = frozenset({"np", "numpy", "onp"})
_BUILDER = re.compile(
    r"(?:build|create|make|get|new|define|construct|init)_?\w*?"
    r"(?:model|net|network|cnn|classifier|generator|discriminator|autoencoder)\w*"
)
_TAPES = frozenset({"GradientTape", "ForwardAccumulator"})
_RUN_MAGIC = frozenset({"run_line_magic", "run_cell_magic"})
_RUNNING_PYTHON = frozenset({"time", "timeit", "prun", "capture"})
_OPTIONS = re.compile(r"^\s*(?:-\w+[ \t]*\d*[ \t]+)*")
_LONGEST_TEXT = 60

_Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True, slots=True)
class Clue:
    """One call, and the lines of the statement in which it stands."""

    kind: ClueKind
    first_line: int
    last_line: int
    text: str
    """As it is written, shortened."""
    name: str = ""
    """What the method is called on: the list, the model."""
    arguments: frozenset[str] = frozenset()
    """The names that stand in its arguments."""
    keywords: frozenset[str] = frozenset()
    number: int | None = None
    """The size of a batch or buffer, where the source tells it."""
    validation_number: int | None = None
    """The batch size of its validation, where the source tells it."""
    has_labels: bool = False
    """It is given arrays, since a data set has the labels in it."""
    is_in_loop: bool = False
    is_in_function: bool = False

    @property
    def may_take_batches(self) -> bool:
        """Whether it may be given a data set, whose batches have their own size."""
        return not self.has_labels and "batch_size" not in self.keywords


@dataclass(frozen=True, slots=True)
class Loop:
    """The lines of a loop, and what it counts with."""

    first_line: int
    last_line: int
    target: str
    is_outermost: bool
    is_in_a_step: bool = False
    """Within a gradient tape, which keeps what all of its turns compute until the step ends."""


@dataclass(frozen=True, slots=True)
class Clues:
    """All that one source says."""

    all: tuple[Clue, ...] = ()
    loops: tuple[Loop, ...] = ()
    comprehensions: tuple[range, ...] = ()
    """Their lines."""
    names_used: frozenset[str] = frozenset()
    names_replaced: frozenset[str] = frozenset()
    """Names to which the cell gives a new value before it has used the old one."""

    def of(self, *kinds: ClueKind) -> tuple[Clue, ...]:
        """Give the clues of some kinds."""
        return tuple(clue for clue in self.all if clue.kind in kinds)

    def at(self, line_number: int | None, *kinds: ClueKind) -> Clue | None:
        """Find a clue in the statement of a line; the first kind that is there counts."""
        if line_number is None:
            return None
        here = [clue for clue in self.all if clue.first_line <= line_number <= clue.last_line]
        return next((clue for kind in kinds for clue in here if clue.kind == kind), None)

    def batch_size(self, line_number: int | None) -> int | None:
        """Tell the batch size of a line, or of the cell if there is only one in it."""
        here = self.at(line_number, "fit", "evaluate", "predict")
        if here is not None and (here.number is not None or not here.may_take_batches):
            return here.number
        sizes = {clue.number for clue in self.of("batch", "fit") if clue.number is not None}
        return sizes.pop() if len(sizes) == 1 else None

    def is_in_comprehension(self, line_number: int | None) -> bool:
        """Say whether a line is one of a comprehension's."""
        return any(line_number in lines for lines in self.comprehensions)

    def loop_of(self, line_number: int) -> Loop | None:
        """Find the innermost loop around a line."""
        around = [loop for loop in self.loops if loop.first_line <= line_number <= loop.last_line]
        return max(around, key=lambda loop: loop.first_line, default=None)


def clues_in(source: str, first_line: int = 1) -> Clues:
    """Read a source; one that is not Python says nothing."""
    tree = parse_typed(dedent(source))  # IPython runs an indented cell as well
    if first_line > 1:
        ast.increment_lineno(tree, first_line - 1)
    tree.body += [statement for node in _magic_calls(tree) for statement in _given_to(node)]
    reader = _Reader(tree)
    reader.visit(tree)
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    replaced = frozenset(name for name, is_new in _first_mentions(tree.body).items() if is_new)
    return Clues(
        tuple(reader.clues), tuple(reader.loops), tuple(reader.comprehensions), names, replaced
    )


def _magic_calls(tree: ast.Module) -> list[ast.Call]:
    """Find what IPython has made of magics that run Python: `%time model.fit(x, y)`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        node
        for node in calls
        if _name_called(node) in _RUN_MAGIC and set(_texts(node)[:1]) & _RUNNING_PYTHON
    ]


def _given_to(magic: ast.Call) -> Iterator[ast.stmt]:
    """Yield the statements that a magic was given, as they stand in its line."""
    for text in _texts(magic)[1:]:
        given = parse_typed(dedent(_OPTIONS.sub("", text)))
        for node in ast.walk(given):
            if isinstance(node, ast.stmt | ast.expr):
                node.lineno = magic.lineno
                node.end_lineno = magic.end_lineno
        yield from given.body


def _texts(node: ast.Call) -> list[str]:
    values = [value.value for value in node.args if isinstance(value, ast.Constant)]
    return [value for value in values if isinstance(value, str)]


class _Reader(ast.NodeVisitor):
    """Walks through a source once, and knows in which statement and loop it is."""

    def __init__(self, tree: ast.Module) -> None:
        self.clues: list[Clue] = []
        self.loops: list[Loop] = []
        self.comprehensions: list[range] = []
        self._loops_around = 0
        self._functions_around = 0
        self._tapes_around = 0
        self._statement: ast.stmt | None = None
        self._numbers = dict(_constants(tree))
        self._builders = frozenset(_builders(tree))
        self._added = items_added(tree)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self._visit_function(node)
        elif isinstance(node, _Loop):
            self._visit_loop(node)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            self.comprehensions.append(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            self._visit_inside(node, loops=1)
        elif isinstance(node, ast.With | ast.AsyncWith) and _is_of_a_tape(node):
            self._tapes_around += 1
            self._visit_inside(node)
            self._tapes_around -= 1
        else:
            if isinstance(node, ast.Call):
                self._call(node)
            if isinstance(node, ast.Assign):
                self._put_into(node)
            self._visit_inside(node)

    def _visit_inside(self, node: ast.AST, loops: int = 0) -> None:
        statement_before = self._statement
        if isinstance(node, ast.stmt):
            self._statement = node
        self._loops_around += loops
        self.generic_visit(node)
        self._loops_around -= loops
        self._statement = statement_before

    def _visit_function(self, node: ast.AST) -> None:
        """Go into a function: a loop in which it is defined does not repeat what it does."""
        around, self._loops_around = self._loops_around, 0
        self._functions_around += 1
        self._visit_inside(node)
        self._functions_around -= 1
        self._loops_around = around

    def _visit_loop(self, node: _Loop) -> None:
        target = "" if isinstance(node, ast.While) else ast.unparse(node.target)
        last = node.end_lineno or node.lineno
        is_in_a_step = self._tapes_around > 0
        self.loops.append(Loop(node.lineno, last, target, self._loops_around == 0, is_in_a_step))
        self._visit_inside(node, loops=0 if is_in_a_step else 1)

    def _put_into(self, node: ast.Assign) -> None:
        """Take `kept[step] = loss` for what `kept.append(loss)` is, where that adds an item."""
        for target in node.targets:
            if isinstance(target, ast.Subscript) and target in self._added:
                self.clues.append(
                    Clue(
                        kind="append",
                        first_line=node.lineno,
                        last_line=_head_end(node),
                        text=_shortened(ast.unparse(node)),
                        name=ast.unparse(target.value),
                        arguments=frozenset(_names_in(node.value)),
                        is_in_loop=self._loops_around > 0,
                    )
                )

    def _call(self, node: ast.Call) -> None:
        kind = self._kind(node)
        if kind is None:
            return
        statement = self._statement or node
        self.clues.append(
            Clue(
                kind=kind,
                first_line=statement.lineno,
                last_line=_head_end(statement),
                text=_shortened(ast.unparse(node)),
                name=_called_on(node),
                arguments=frozenset(_names(node)),
                keywords=frozenset(keyword.arg for keyword in node.keywords if keyword.arg),
                number=self._number(node, kind, "batch_size", "buffer_size"),
                validation_number=self._number(node, kind, "validation_batch_size"),
                has_labels=len(node.args) > 1 or any(key.arg == "y" for key in node.keywords),
                is_in_loop=self._loops_around > 0,
                is_in_function=self._functions_around > 0,
            )
        )

    def _kind(self, node: ast.Call) -> ClueKind | None:
        name = _name_called(node)
        if name in self._builders or _BUILDER.fullmatch(name):
            return "model"
        if name == "astype" or any(keyword.arg == "dtype" for keyword in node.keywords):
            types = [*node.args[:1], *(key.value for key in node.keywords if key.arg == "dtype")]
            if any(map(_is_float64, types)):
                return "float64"
        if "applications" in ast.unparse(node.func).split("."):
            return "model"
        kind = _BY_NAME.get(name)
        is_numpys = _called_on(node) in _NUMPY
        return kind if is_numpys == (kind == "array") else None

    def _number(self, node: ast.Call, kind: ClueKind, *keywords: str) -> int | None:
        named = [key.value for key in node.keywords if key.arg in keywords]
        is_placed = kind in {"batch", "shuffle"} and "batch_size" in keywords
        placed = node.args[:1] if is_placed else []
        for value in (*named, *placed):
            if isinstance(value, ast.Constant) and isinstance(value.value, int):
                return value.value
            if isinstance(value, ast.Name):
                return self._numbers.get(value.id)
        return None


def _first_mentions(body: list[ast.stmt]) -> dict[str, bool]:
    """Say of each name whether it is given a value where it is mentioned first."""
    first: dict[str, bool] = {}
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first.setdefault(statement.name, True)
            continue
        blocks: list[ast.stmt] = getattr(statement, "body", [])
        head = [node for node in _outside(statement, blocks) if isinstance(node, ast.Name)]
        head.sort(key=lambda node: isinstance(node.ctx, ast.Store))  # a value comes before its name
        for node in head:
            first.setdefault(node.id, isinstance(node.ctx, ast.Store))
        for name, is_new in _first_mentions(blocks).items():
            first.setdefault(name, is_new)
    return first


def _outside(statement: ast.stmt, blocks: list[ast.stmt]) -> Iterator[ast.AST]:
    """Walk through a statement, but not through the statements in its body."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(each for each in ast.iter_child_nodes(node) if each not in blocks)


def _constants(tree: ast.Module) -> Iterator[tuple[str, int | None]]:
    """Yield names that stand for one number throughout; None for those that may not."""
    numbers: dict[str, set[int | None]] = {}
    of_constants: set[int] = set()
    for node in ast.walk(tree):  # a statement comes before its parts
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            number = node.value.value if type(node.value.value) is int else None
            for target in node.targets:
                if isinstance(target, ast.Name):
                    of_constants.add(id(target))
                    numbers.setdefault(target.id, set()).add(number)
        elif id(node) not in of_constants:
            for given in given_by(node):
                numbers.setdefault(given, set()).add(None)
    for name, values in numbers.items():
        yield name, next(iter(values)) if len(values) == 1 else None


def _builders(tree: ast.Module) -> Iterator[str]:
    """Yield the functions of the source that build a model."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
            if any(_BY_NAME.get(_name_called(call)) == "model" for call in calls):
                yield node.name


def _name_called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _called_on(node: ast.Call) -> str:
    on = node.func.value if isinstance(node.func, ast.Attribute) else None
    return on.id if isinstance(on, ast.Name) else ""


def _names(node: ast.Call) -> Iterator[str]:
    for value in (*node.args, *(keyword.value for keyword in node.keywords)):
        yield from _names_in(value)


def _names_in(value: ast.expr) -> Iterator[str]:
    yield from (inner.id for inner in ast.walk(value) if isinstance(inner, ast.Name))


def _is_of_a_tape(node: ast.With | ast.AsyncWith) -> bool:
    made = (item.context_expr for item in node.items)
    return any(isinstance(each, ast.Call) and _name_called(each) in _TAPES for each in made)


def _is_float64(node: ast.expr) -> bool:
    return ast.unparse(node).rpartition(".")[2].strip("'\"") in {"float64", "float", "double"}


def _head_end(node: ast.stmt | ast.Call) -> int:
    """Give the last line of a statement, without the body of a compound one."""
    body: list[ast.stmt] = getattr(node, "body", [])
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
