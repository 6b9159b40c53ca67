"""Let go of an array after its last use."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.arrays import is_deleted, is_in_a_magic, only_asks_about, reads
from oommagic.explain.advice.examples import HOST_RAN_OUT, host_peaks
from oommagic.explain.advice.host_memory import lower_from
from oommagic.explain.advice.nodes import called, names_in
from oommagic.explain.advice.rule import HOST_CAUSES, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import HOST
from oommagic.units import format_bytes

_COPYING = frozenset({
    "array", "concatenate", "stack", "vstack", "hstack", "to_categorical", "train_test_split",
    "from_tensor_slices", "constant", "convert_to_tensor", "fit", "evaluate", "predict",
    "fit_transform", "transform", "save", "print",
})  # fmt: skip
_GIVING_NEW = frozenset({"astype", "copy", "mean", "std", "var", "sum", "min", "max", "argmax"})

_THEN_FITTED = replace(HOST_RAN_OUT, cause="none", place="", lines=host_peaks(5, 7, 12))


class EarlyDel(Rule):
    """An array that nothing in the cell needs any more is let go of before the peak."""

    name = "early-del"
    title = "`del` after the last use"
    what = (
        "Where a large array that the cell has made is used for the last time well before the "
        "peak, it takes the name away after that use."
    )
    why = (
        "A name of a notebook lives until the kernel ends, and its array with it: beside "
        "what was made of it, and through the training. `del` frees the memory at once if no other "
        "name, list, view or output holds it; `gc.collect()` adds nothing to that."
    )
    example = 'x = raw.astype("float32")\nmodel.fit(x, y)'
    instead = 'x = raw.astype("float32")\ndel raw\nmodel.fit(x, y)'
    safety = "changes results"
    fix_safety = "The name is gone: a later cell that uses it fails until this one is run again."
    cost = "the name, for later cells"
    effort = 1.2
    causes = HOST_CAUSES
    speaks = (
        Case(
            "x = load()\nz = x.astype('float32')  # to compute with\nmodel.fit(z, y)\n",
            _THEN_FITTED,
            "x = load()\nz = x.astype('float32')  # to compute with\ndel x\nmodel.fit(z, y)\n",
        ),
        Case(
            "x = load()\nfor i in range(3): z[i] = x[i] * 2\nmodel.fit(z, y)\n",
            _THEN_FITTED,
            "x = load()\nfor i in range(3): z[i] = x[i] * 2\ndel x\nmodel.fit(z, y)\n",
        ),
    )
    is_silent = (
        Case("x = load()\nz = x.astype('float32')\nmodel.fit(x, y)\n", _THEN_FITTED),
        Case("x = load()\nz = x[:100]\nmodel.fit(z, y)\n", _THEN_FITTED),
        Case("z = x.astype('float32')\n\nmodel.fit(z, y)\n", _THEN_FITTED),
        Case("x = load()\nz = x * 2\n%time model.fit(x, y)\n", _THEN_FITTED),
        Case("x = load()\nz = x * 2\ndef again(): return x.mean()\n", _THEN_FITTED),
        Case(
            "x = load()\nz = x * 2\nfit_on_both()\n",
            replace(_THEN_FITTED, names_in_functions=frozenset({"x", "z"})),
        ),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find large arrays that live on after their last use."""
        for name in sorted(cell.names):
            array = here.array(name)
            if array is None or not array.bytes or name in here.names_in_functions:
                continue
            if not _is_its_own(cell, name):
                continue
            last = _last_use(cell, name)
            if last is None:
                continue
            size = lower_from(here, (last.end_lineno or last.lineno) + 1, array.bytes)
            yield Found(
                title=f"Let go of `{name}` after line {last.end_lineno}",
                message=(
                    f"`{name}` keeps {format_bytes(array.bytes)} though the cell uses it for the "
                    f"last time in line {last.lineno}. If no later cell needs it, it can go."
                ),
                place=HOST,
                saving=expected(HOST, size, 0.85, 1.05),
                edits=(cell.insert_after(last, f"del {name}"),),
                line_number=last.lineno,
            )


def _is_its_own(cell: TypedCell, name: str) -> bool:
    """Say whether the cell makes it by itself, and nothing but this name can hold it then."""
    made = [each for each in cell.assignments(name) if each in cell.tree.body]
    if not made or len(made) < len(cell.assignments(name)):
        return False
    if is_deleted(cell, name) or is_in_a_magic(cell, name):
        return False
    return all(_leaves_nothing_behind(cell, read) for read in reads(cell, name))


def _leaves_nothing_behind(cell: TypedCell, read: ast.Name) -> bool:
    """Say whether what is made of it here is a copy, or a number."""
    if cell.function_of(read) is not None or any(
        isinstance(above, ast.Lambda | ast.ClassDef | ast.GeneratorExp)
        for above in cell.around(read)
    ):
        return False
    value: ast.AST = read
    above = cell.parents[value]
    if isinstance(above, ast.Subscript) and above.value is value:
        value, above = above, cell.parents[above]
    if isinstance(above, ast.BinOp | ast.Compare) or only_asks_about(cell, read):
        return True
    if isinstance(above, ast.Attribute):
        return above.attr in _GIVING_NEW
    return isinstance(above, ast.Call) and called(above) in _COPYING


def _last_use(cell: TypedCell, name: str) -> ast.stmt | None:
    """Give the last of the cell's own statements that mentions it, if others follow below."""
    users = [each for each in cell.tree.body if name in names_in(each)]
    last = users[-1]
    after = [each for each in cell.tree.body if each.lineno > (last.end_lineno or last.lineno)]
    is_alone = after or last is cell.tree.body[-1]
    return last if is_alone and after and last not in cell.assignments(name) else None
