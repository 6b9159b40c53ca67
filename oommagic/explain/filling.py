"""Where a loop puts one item after another into a dictionary that was empty before.

What is put in place of something else takes no more memory: `state["h"] = h`, `ring[step % 4] = x`.
Nor does what takes another item out of it each time.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeGuard

from oommagic.explain.names_given import given_by

_Loop = ast.For | ast.AsyncFor | ast.While
_Loops = tuple[_Loop, ...]
_Inside = tuple[ast.AST, _Loops]
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_MAKERS = frozenset({"dict", "defaultdict", "OrderedDict"})


def items_added(tree: ast.AST) -> frozenset[ast.Subscript]:
    """Find what grows: `kept[step]` where that is given a value, with another key each time."""
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, _SCOPES))]
    not_empty = _not_empty(node for node in ast.walk(tree) if not isinstance(node, ast.arg))
    return frozenset(item for scope in scopes for item in _added_in(scope, not_empty))


def _added_in(scope: ast.AST, not_empty: set[str]) -> Iterator[ast.Subscript]:
    """Yield it from one scope; what a name stands for may be made outside, or by another cell."""
    inside = list(_with_loops(scope, ()))
    nodes = [node for node, _ in inside]
    others = _not_empty(nodes) | (not_empty - _times_given(nodes).keys())
    for name, item, loops in _items_put(inside):
        if name not in others and _is_always_new(name, item.slice, loops):
            yield item


def _items_put(inside: list[_Inside]) -> Iterator[tuple[str, ast.Subscript, _Loops]]:
    """Yield what is put into a name, and the loops around it in which that is never emptied.

    Not where each turn takes something out, too.
    """
    emptied, taken_out = _loops_around(inside, _emptied_by), _loops_around(inside, _taken_out_by)
    for node, loops in inside:
        name = _named(node, ast.Store)
        is_kept = all(_shared(loops, each) < len(loops) for each in taken_out[name or ""])
        if isinstance(node, ast.Subscript) and name is not None and is_kept:
            depth = max((_shared(loops, each) for each in emptied[name]), default=0)
            yield name, node, loops[depth:]


def _with_loops(node: ast.AST, loops: _Loops) -> Iterator[_Inside]:
    """Yield what is inside, with the loops around it, but not what a function has inside."""
    for child in ast.iter_child_nodes(node):
        yield child, loops
        if not isinstance(child, _SCOPES):
            yield from _with_loops(child, (*loops, child) if isinstance(child, _Loop) else loops)


def _loops_around(
    inside: list[_Inside], names_by: Callable[[ast.AST], Iterable[str]]
) -> Mapping[str, list[_Loops]]:
    """Tell the loops around each node of a sort, by the names of which it is."""
    found: dict[str, list[_Loops]] = defaultdict(list)
    for node, loops in inside:
        for name in names_by(node):
            found[name].append(loops)
    return found


def _not_empty(nodes: Iterable[ast.AST]) -> set[str]:
    """Name what is given something else than an empty dictionary."""
    nodes = list(nodes)
    made_empty = Counter(name for node in nodes for name in _made_empty_by(node))
    return {name for name, times in _times_given(nodes).items() if times != made_empty[name]}


def _emptied_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that have nothing in them after that: `kept = {}`, `kept.clear()`."""
    yield from _made_empty_by(node)
    yield from _called_on(node, "clear")


def _made_empty_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign | ast.AnnAssign) and _is_empty(node.value):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _taken_out_by(node: ast.AST) -> Iterator[str]:
    """Yield the name out of which something is taken: `kept.pop(step - 4)`, `del kept[0]`."""
    yield from _called_on(node, "pop", "popitem")
    name = _named(node, ast.Del)
    if name is not None:
        yield name


def _called_on(node: ast.AST, *methods: str) -> Iterator[str]:
    method = node.func if isinstance(node, ast.Call) else None
    if isinstance(method, ast.Attribute) and method.attr in methods:
        yield from [method.value.id] if isinstance(method.value, ast.Name) else []


def _named(node: ast.AST, context: type[ast.expr_context]) -> str | None:
    """Give the name of what has an item that is written or deleted there."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, context):
        return node.value.id if isinstance(node.value, ast.Name) else None
    return None


def _is_empty(value: ast.expr | None) -> bool:
    """Say whether nothing is in it yet; a list may have its places already: `[None] * 9`."""
    if isinstance(value, ast.Call):
        made = ast.unparse(value.func).rpartition(".")[2]
        return made == "defaultdict" or (made in _MAKERS and not (value.args or value.keywords))
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Mult) and "[None]" in map(
            ast.unparse, (value.left, value.right)
        )
    return isinstance(value, ast.Dict) and not value.keys


def _shared(loops: _Loops, others: _Loops) -> int:
    """Count the loops that are around both."""
    return sum(one is other for one, other in zip(loops, others, strict=False))


def _is_always_new(name: str, key: ast.expr, loops: _Loops) -> bool:
    """Say whether every turn of every loop has a key of its own."""
    if ast.unparse(key) == f"len({name})":
        return bool(loops)
    parts = key.elts if isinstance(key, ast.Tuple) else [key]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return bool(loops) and all(names & _turning(loop) for loop in loops)


def _turning(loop: _Loop) -> set[str]:
    """Name what is another one in each turn: a loop's own target, or a count that it adds to.

    Not where the loop gives it a value in another way, too: `step = step % 4`.
    """
    targets = Counter() if isinstance(loop, ast.While) else _times_given(ast.walk(loop.target))
    body = [node for statement in loop.body for node in ast.walk(statement)]
    added = _times_given(node.target for node in body if _adds(node))
    given = _times_given(body)
    return {name for name in targets + added if given[name] == added[name]}


def _times_given(nodes: Iterable[ast.AST]) -> Counter[str]:
    """Count how often each name is given a value."""
    return Counter(name for node in nodes for name in given_by(node))


def _adds(node: ast.AST) -> TypeGuard[ast.AugAssign]:
    return isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
