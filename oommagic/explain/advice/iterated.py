"""Whether a cell may go over a data set while it is still going over it."""

import ast
from collections.abc import Iterable, Iterator

from oommagic.explain.advice.arrays import bound_to, reads
from oommagic.explain.advice.nodes import called, dotted, names_in
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.names_given import given_by
from oommagic.recording import Named

_ASKED = ("cardinality", "element_spec")
_WITH_DATA_SETS = ("dataset", "list", "other")
_GOING_OVER = ("fit", "evaluate", "predict")
"""What goes over a data set once, and gives something else."""
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_FOR = (ast.For, ast.AsyncFor, ast.comprehension)


def may_be_iterated_twice(cell: TypedCell, here: Situation, call: ast.Call) -> bool:
    """Say whether two iterators may go at once over what a call gives, or over another data set."""
    known = {name for name, one in here.names.items() if one.kind == "dataset"}
    known.add(bound_to(cell, call))
    groups = (_made_of(cell, here, call), *({name} for name in known))
    return _is_zipped_or_held(cell, call, known) or any(
        _are_at_once(cell, one, other)
        for names in groups
        for uses in [_uses(cell, call, names)]
        for one in uses
        for other in uses
        if one is not other
    )


def _is_zipped_or_held(cell: TypedCell, call: ast.Call, names: set[str]) -> bool:
    held = [one for one in cell.calls_of("iter") if bound_to(cell, one)]
    return any(
        not names.isdisjoint(names_in(given))
        for one in (*cell.calls_of("zip"), *held)
        if _is_after(cell, one, call)
        for given in one.args
    )


def _made_of(cell: TypedCell, here: Situation, call: ast.Call) -> set[str]:
    """Name the data sets that go over what a call gives: `train = ds.skip(9)` goes over `ds`."""
    found: set[str] = set()
    made = [cell.statement(call)]
    while made:
        one = made.pop()
        targets = one.targets if isinstance(one, ast.Assign) and not _goes_over(one.value) else []
        new = {name for target in targets for name in names_in(target)} - found
        new = {name for name in new if _may_have_data_sets(here.names.get(name))}
        found |= new
        made += (cell.statement(read) for name in new for read in reads(cell, name))
    return found


def _goes_over(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and called(value) in _GOING_OVER


def _may_have_data_sets(known: Named | None) -> bool:
    """Say whether a name may stand for a data set, or for something in which one is."""
    return known is None or known.kind in _WITH_DATA_SETS


def _uses(cell: TypedCell, call: ast.Call, names: Iterable[str]) -> list[ast.Name]:
    """Give the places behind a call that may go over one of these data sets."""
    return [
        read
        for name in names
        for read in reads(cell, name)
        if _is_after(cell, read, call) and not _only_asks(cell, read)
    ]


def _is_after(cell: TypedCell, node: ast.expr, call: ast.Call) -> bool:
    """Say whether it runs after a call; what stands in a function may, wherever that is."""
    is_later = any(isinstance(above, _LATER) for above in cell.around(node))
    return is_later or cell.start(node) > cell.end(call)


def _only_asks(cell: TypedCell, read: ast.Name) -> bool:
    above = cell.parents[read]
    if isinstance(above, ast.Attribute):
        return above.attr in _ASKED
    return isinstance(above, ast.Call) and dotted(above.func) == "len"


def _are_at_once(cell: TypedCell, one: ast.Name, other: ast.Name) -> bool:
    """Say whether one call is given both, or one is in the loop that goes over the other.

    Or in a function or class, which may be what the other's `fit` calls back.
    """
    if not set(_given_to(cell, one)).isdisjoint(_given_to(cell, other)):
        return True
    if _is_later(cell, one, other):
        return True
    around, others = set(cell.around(other)), set(_loops_over(cell, other))
    return any(
        (loop if isinstance(loop, ast.stmt) else cell.parents[loop]) in around
        for loop in _loops_over(cell, one)
        if loop not in others
    )


def _is_later(cell: TypedCell, one: ast.Name, other: ast.Name) -> bool:
    """Say whether one stands in a function or class that has it from outside, and the other not."""
    inside = (*_LATER, ast.ClassDef)
    later = next((above for above in cell.around(one) if isinstance(above, inside)), None)
    if later is None or later in cell.around(other) or _is_its_own(later, one.id):
        return False
    return any(_given_to(cell, other)) or any(_loops_over(cell, other))


def _is_its_own(later: ast.AST, name: str) -> bool:
    """Say whether a name is given its value inside: by a parameter, or by an assignment."""
    return any(
        name in given_by(one) for part in ast.iter_child_nodes(later) for one in ast.walk(part)
    )


def _given_to(cell: TypedCell, read: ast.Name) -> Iterator[ast.Call]:
    """Yield the calls that have it among their arguments."""
    below: ast.AST = read
    for above in cell.around(read):
        if isinstance(above, ast.Call) and below is not above.func:
            yield above
        below = above


def _loops_over(cell: TypedCell, read: ast.Name) -> Iterator[ast.AST]:
    """Yield the loops that go over it, and those of comprehensions."""
    below: ast.AST = read
    for above in cell.around(read):
        if isinstance(above, _FOR) and below is above.iter:
            yield above
        below = above
