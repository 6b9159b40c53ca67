"""Where a loop puts one item after another into a dictionary that was empty before.

What is put in place of something else takes no more memory: `state["h"] = h`, `ring[step % 4] = x`.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from oommagic.explain.names_given import given_by

_Loop = ast.For | ast.AsyncFor | ast.While
_Loops = tuple[_Loop, ...]
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_MAKERS = frozenset({"dict", "defaultdict", "OrderedDict"})


def items_added(tree: ast.AST) -> frozenset[ast.Subscript]:
    """Find what grows: `kept[step]` where that is given a value, with another key each time."""
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, _SCOPES))]
    return frozenset(item for scope in scopes for item in _added_in(scope))


def _added_in(scope: ast.AST) -> Iterator[ast.Subscript]:
    inside = list(_with_loops(scope, ()))
    emptied = _emptied(inside)
    for node, loops in inside:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            since = emptied.get(ast.unparse(node.value), [])
            depth = max((_shared(loops, each) for each in since), default=len(loops))
            if _is_always_new(node.slice, loops[depth:]):
                yield node


def _with_loops(node: ast.AST, loops: _Loops) -> Iterator[tuple[ast.AST, _Loops]]:
    """Yield what is inside, with the loops around it, but not what a function has inside."""
    for child in ast.iter_child_nodes(node):
        yield child, loops
        if not isinstance(child, _SCOPES):
            yield from _with_loops(child, (*loops, child) if isinstance(child, _Loop) else loops)


def _emptied(inside: list[tuple[ast.AST, _Loops]]) -> dict[str, list[_Loops]]:
    """Tell the loops around each `kept = {}`, for names that are given nothing else."""
    emptied: dict[str, list[_Loops]] = {}
    for node, loops in inside:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_empty(node.value):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                emptied.setdefault(ast.unparse(target), []).append(loops)
    times = _times_given(node for node, _ in inside)
    return {name: where for name, where in emptied.items() if times[name] == len(where)}


def _is_empty(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        made = ast.unparse(value.func).rpartition(".")[2]
        return made == "defaultdict" or (made in _MAKERS and not (value.args or value.keywords))
    return isinstance(value, ast.Dict) and not value.keys


def _shared(loops: _Loops, others: _Loops) -> int:
    """Count the loops that are around both."""
    return sum(one is other for one, other in zip(loops, others, strict=False))


def _is_always_new(key: ast.expr, loops: _Loops) -> bool:
    """Say whether every turn of every loop has a key of its own."""
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
