"""Which names of the notebook a cell needs from before it, and which of them it changes."""

import ast
import symtable
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

from oommagic.cell import parse_quietly

_Loop = ast.For | ast.AsyncFor
_With = ast.With | ast.AsyncWith
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Methods that change the array or list that they are called on.
_IN_PLACE = frozenset({"sort", "fill", "resize", "partition", "put", "shuffle", "itemset"})


def names_needed(source: str) -> frozenset[str]:
    """Name what a cell reads before it has surely given it a value, in its functions too."""
    return frozenset(_needed(parse_quietly(source).body, set()))


def names_changed(source: str) -> frozenset[str]:
    """Name what a cell deletes, gives another value or writes into, at any place."""
    changed: set[str] = set()
    for node in ast.walk(parse_quietly(source)):
        changed.update(_changed_by(node))
    return frozenset(changed)


def submodules_used(source: str, namespace: Mapping[str, object]) -> frozenset[str]:
    """Name the modules that a cell reaches by the packages around them: `urllib.request`.

    A package is sent by its name, and does not import them by itself.
    """
    found: set[str] = set()
    for node in ast.walk(parse_quietly(source)):
        if isinstance(node, ast.Attribute):
            found.update(_modules_in(node, namespace))
    return frozenset(found)


def _modules_in(chain: ast.expr, namespace: Mapping[str, object]) -> Iterator[str]:
    parts: list[str] = []
    while isinstance(chain, ast.Attribute):
        parts.append(chain.attr)
        chain = chain.value
    package = namespace.get(chain.id) if isinstance(chain, ast.Name) else None
    name = package.__name__ if isinstance(package, ModuleType) else ""
    while name and parts and f"{name}.{parts[-1]}" in sys.modules:
        name = f"{name}.{parts.pop()}"
        yield name


def _changed_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            if method in _IN_PLACE:
                yield name
            yield from _given_to(node)
        case ast.Call():
            yield from _given_to(node)


def _given_to(call: ast.Call) -> Iterator[str]:
    """Name what a call writes its result into: `np.divide(x, 255, out=x)`."""
    for keyword in call.keywords:
        if keyword.arg == "out" and isinstance(keyword.value, ast.Name):
            yield keyword.value.id
    if getattr(call.func, "attr", "") in _IN_PLACE:
        yield from (one.id for one in call.args if isinstance(one, ast.Name))


def _needed(statements: Iterable[ast.stmt], known: set[str]) -> Iterator[str]:
    """Yield names in the order of the statements; `known` grows by what is surely given."""
    for statement in statements:
        match statement:
            case ast.For() | ast.AsyncFor():
                yield from _needed_by_loop(statement, known)
            case ast.With() | ast.AsyncWith():
                yield from _needed_by_with(statement, known)
            case ast.If(test=test) | ast.While(test=test):
                yield from _read(test) - known
                yield from _needed(statement.body, set(known))
                yield from _needed(statement.orelse, set(known))
            case ast.Try() | ast.TryStar():
                yield from _needed_by_try(statement, known)
            case ast.Delete():
                yield from _bound(statement, ast.Del) - known
            case _:
                yield from _read(statement) - known
                known |= _given_by(statement)


def _needed_by_loop(loop: _Loop, known: set[str]) -> Iterator[str]:
    yield from _read(loop.iter) - known
    inside = known | _bound(loop.target, ast.Store)
    yield from _read(loop.target) - inside
    yield from _needed(loop.body, set(inside))
    yield from _needed(loop.orelse, set(known))


def _needed_by_with(block: _With, known: set[str]) -> Iterator[str]:
    for item in block.items:
        yield from _read(item.context_expr) - known
        if item.optional_vars is not None:
            known |= _bound(item.optional_vars, ast.Store)
    yield from _needed(block.body, known)


def _needed_by_try(block: ast.Try | ast.TryStar, known: set[str]) -> Iterator[str]:
    yield from _needed(block.body, set(known))
    for handler in block.handlers:
        if handler.type is not None:
            yield from _read(handler.type) - known
        yield from _needed(handler.body, known | {handler.name or ""})
    yield from _needed(block.orelse, set(known))
    yield from _needed(block.finalbody, known)


def _given_by(statement: ast.stmt) -> set[str]:
    """Name what a statement gives a value whenever it runs to its end."""
    match statement:
        case ast.Assign() | ast.AnnAssign(value=ast.expr()):
            return _bound(statement, ast.Store)
        case ast.Import() | ast.ImportFrom():
            return {one.asname or one.name.partition(".")[0] for one in statement.names}
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
    return set()


def _bound(node: ast.AST, how: type[ast.expr_context]) -> set[str]:
    return {
        one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, how)
    }


def _read(node: ast.AST) -> set[str]:
    """Name what a statement or an expression reads of the notebook's names."""
    own = set(map(_augmented, ast.walk(node))) - {""}
    try:
        table = symtable.symtable(ast.unparse(node), "the cell", "exec")
    except (SyntaxError, ValueError, RecursionError):  # `await` outside of a function, perhaps
        return own | _bound(node, ast.Load)
    top = {one.get_name() for one in table.get_symbols() if one.is_referenced()}
    return own | top | set(_global_in(table))


def _augmented(node: ast.AST) -> str:
    """Give the name that `name += …` reads before it changes it."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return ""


def _global_in(table: symtable.SymbolTable) -> Iterator[str]:
    for inner in table.get_children():
        for symbol in inner.get_symbols():
            if symbol.is_global() and symbol.is_referenced():
                yield symbol.get_name()
        yield from _global_in(inner)
