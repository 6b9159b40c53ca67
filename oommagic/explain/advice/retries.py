"""How a cell tries again with a smaller batch where memory ran out."""

import ast
from dataclasses import dataclass

from oommagic.explain.advice.nodes import dotted, has_long_text, keyword
from oommagic.explain.advice.typed import TypedCell

_ERROR = "ResourceExhaustedError"


@dataclass(frozen=True, slots=True)
class Retry:
    """A fit, and what is done where it fails."""

    attempt: ast.Try
    loop: ast.While | None
    """The loop that repeats it, if there is one."""
    model: str
    size: str
    fit: ast.stmt
    halving: ast.stmt
    again: ast.stmt | None
    """The second fit, in the handler."""

    @property
    def halved(self) -> ast.expr | None:
        """What the size becomes, where that is written as a value."""
        return self.halving.value if isinstance(self.halving, ast.Assign) else None

    @property
    def has_bound(self) -> bool:
        """Whether the handler gives up by itself."""
        return any(isinstance(one, ast.Raise) for one in ast.walk(self.attempt.handlers[0]))

    @property
    def outer(self) -> ast.While | ast.Try:
        """The whole of it."""
        return self.loop or self.attempt


def retry_of(cell: TypedCell, attempt: ast.Try) -> Retry | None:
    """Read the attempt: what is fitted there, and with what it is tried again."""
    handlers = [one for one in attempt.handlers if one.type is not None]
    catching = [one for one in handlers if _ERROR in ast.dump(one.type or one)]
    fits = [(one, call) for one in attempt.body if (call := _fit(one)) is not None]
    if len(catching) != 1 or len(attempt.handlers) != 1 or len(fits) != 1:
        return None
    if attempt.orelse or attempt.finalbody:
        return None
    statement, call = fits[0]
    size = keyword(call, "batch_size")
    if not isinstance(size, ast.Name) or not isinstance(call.func, ast.Attribute):
        return None
    body = catching[0].body
    halving = next((one for one in body if _is_halving(one, size.id)), None)
    again = next((one for one in body if _fit(one) is not None), None)
    above = cell.parents.get(attempt)
    is_loop = isinstance(above, ast.While) and above.body == [attempt]
    loop = above if is_loop and isinstance(above, ast.While) else None
    model = dotted(call.func.value)
    if halving is None or not model or (loop is None) != (again is not None):
        return None
    return Retry(attempt, loop, model, size.id, statement, halving, again)


def _fit(statement: ast.stmt) -> ast.Call | None:
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    is_fit = isinstance(value, ast.Call) and dotted(value.func).endswith(".fit")
    return value if is_fit and isinstance(value, ast.Call) else None


def _is_halving(statement: ast.stmt, name: str) -> bool:
    """Say whether the batch size is made smaller there, in whichever way."""
    target: ast.expr
    if isinstance(statement, ast.AugAssign):
        target, is_less = statement.target, isinstance(statement.op, ast.FloorDiv)
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, is_less = statement.targets[0], "FloorDiv()" in ast.dump(statement.value)
    else:
        return False
    return is_less and isinstance(target, ast.Name) and target.id == name


def halves_alone(retry: Retry) -> bool:
    """Say whether the size becomes its half and nothing else: `size //= 2`, `size = size // 2`."""
    if isinstance(retry.halving, ast.AugAssign):
        return True
    halved = retry.halved
    is_half = isinstance(halved, ast.BinOp) and isinstance(halved.op, ast.FloorDiv)
    return is_half and isinstance(halved.left, ast.Name) and halved.left.id == retry.size  # type: ignore[union-attr]  # just seen


def tries_the_same(retry: Retry) -> bool:
    """Say whether the second fit is like the first, and nothing behind it needs what it gives."""
    if retry.again is None:
        return True
    is_last = retry.attempt.handlers[0].body[-1] is retry.again
    return is_last and ast.dump(retry.again) == ast.dump(retry.fit)


def has_room(cell: TypedCell, retry: Retry) -> bool:
    """Say whether its lines can be moved: none is shared, none begins with a tab."""
    handler = retry.attempt.handlers[0]
    statements = [*retry.attempt.body, *handler.body]
    starts = [one.lineno for one in statements]
    heads = {retry.attempt.lineno, handler.lineno}
    outer = retry.outer
    lines = range(outer.lineno, (outer.end_lineno or outer.lineno) + 1)
    has_tabs = any("\t" in cell.line(number)[:1] for number in lines)
    is_shared = len(set(starts)) < len(starts) or bool(heads & set(starts))
    return not (has_tabs or is_shared or has_long_text(outer))


def ends_where_it_fits(retry: Retry) -> bool:
    """Say whether what is put behind the handler runs after a failure alone."""
    jumps = [one for one in ast.walk(retry.attempt) if isinstance(one, ast.Break | ast.Continue)]
    if retry.loop is None:
        return not jumps
    leaves = any(isinstance(one, ast.Break | ast.Return) for one in retry.attempt.body)
    return leaves and not any(isinstance(one, ast.Continue) for one in jumps)
