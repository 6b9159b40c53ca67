"""What the data sets of a cell give and keep, from the objects themselves and from the source."""

import ast
from dataclasses import dataclass, replace
from itertools import pairwise

from oommagic.explain.advice.nodes import argument, dotted
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import ROW_ALIGNMENT, PipelineStep
from oommagic.report import Edit

_SAME_SIZE = frozenset({"shuffle", "prefetch", "cache", "repeat", "take", "skip"})
_SAME_COUNT = frozenset({"shuffle", "prefetch", "cache", "map"})
_WITH_NUMBER = frozenset({"shuffle", "prefetch", "batch"})


def given_by(cell: TypedCell, here: Situation, value: ast.expr) -> PipelineStep | None:
    """Tell what an expression that gives a data set gives; None if that is not known."""
    if isinstance(value, ast.Name):
        known = here.known(value)
        return known.pipeline[-1] if known is not None and known.pipeline else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    if value.func.attr == "from_tensor_slices":
        return _of_slices(here, value)
    return _seen(cell, here, value, value.func.attr) or _worked_out(cell, here, value, value.func)


def size_argument(
    cell: TypedCell, here: Situation, call: ast.Call
) -> tuple[ast.expr | None, int | None]:
    """Give the size of a batch or buffer as it is written, and as a number if it is known."""
    value = argument(
        call, 0, "batch_size" if dotted(call.func).endswith("batch") else "buffer_size"
    )
    known = here.known(value)
    if known is not None and known.number is not None:
        return value, int(known.number)
    return value, cell.number(value)


def _seen(cell: TypedCell, here: Situation, call: ast.Call, kind: str) -> PipelineStep | None:
    """Find the step among those of the cell's data sets, by its kind and number."""
    if kind not in _WITH_NUMBER | {"cache"} or not _may_be_a_data_set(here, call):
        return None
    _, number = size_argument(cell, here, call)
    same = [step for steps in here.pipelines() for step in steps if step.kind == kind]
    alike = {step for step in same if kind == "cache" or number in {None, step.number}}
    return alike.pop() if len(alike) == 1 else None


def _may_be_a_data_set(here: Situation, call: ast.Call) -> bool:
    """Say whether what a method is called on may be a data set: others shuffle and cache too."""
    on: ast.AST = call.func
    while isinstance(on, ast.Attribute | ast.Call):
        if dotted(on).endswith((".Dataset", "_dataset_from_directory")):
            return True
        on = on.value if isinstance(on, ast.Attribute) else on.func
    known = here.known(on)
    return known is not None and known.kind == "dataset"


def _worked_out(
    cell: TypedCell, here: Situation, call: ast.Call, method: ast.Attribute
) -> PipelineStep | None:
    """Go on from what the method is called on."""
    before, kind = given_by(cell, here, method.value), method.attr
    if before is None:
        return None
    _, number = size_argument(cell, here, call) if kind in _WITH_NUMBER else (None, None)
    if kind == "batch" and number:
        count = None if before.count is None else -(-before.count // number)
        return PipelineStep(kind, before.element_bytes * number, count, number)
    if kind not in _SAME_SIZE:
        return None
    count = before.count if kind in _SAME_COUNT else None
    return replace(before, kind=kind, count=count, number=number)


def _of_slices(here: Situation, call: ast.Call) -> PipelineStep | None:
    given = call.args[0] if call.args else None
    names = given.elts if isinstance(given, ast.Tuple) else [given]
    arrays = [here.array(one.id) if isinstance(one, ast.Name) else None for one in names]
    known = [one for one in arrays if one is not None and one.shape]
    if not known or len(known) < len(names) or not known[0].shape:
        return None
    rows = known[0].shape[0]
    sizes = [one.bytes // max(1, rows) for one in known]
    shared = sum(size for size in sizes if size % ROW_ALIGNMENT == 0)
    return PipelineStep("tensorslice", sum(sizes), rows, shared_bytes=shared)


@dataclass(frozen=True, slots=True)
class AfterAMap:
    """A step that comes right after one that makes the elements larger, and how to swap them."""

    call: ast.Call
    small: PipelineStep
    large: PipelineStep
    step: PipelineStep
    edits: tuple[Edit, Edit]


def after_a_map(cell: TypedCell, here: Situation, call: ast.Call) -> AfterAMap | None:
    """Tell whether a step works on what a `map` before it gives, in the same or the last line."""
    mapped = _call_before(cell, call)
    step = given_by(cell, here, call)
    if mapped is None or step is None:
        return None
    for steps in here.pipelines():
        for small, (large, after) in zip(steps, pairwise(steps[1:]), strict=False):
            if large.kind == "map" and after == step:
                return AfterAMap(call, small, large, step, swapped(cell, mapped, call))
    return None


def _call_before(cell: TypedCell, call: ast.Call) -> ast.Call | None:
    """Give the `.map(…)` on which a method is called, or that gave the name its value just now."""
    before = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(before, ast.Name):
        before = _value_just_before(cell, call, before.id)
    if isinstance(before, ast.Call) and isinstance(before.func, ast.Attribute):
        return before if before.func.attr == "map" else None
    return None


def _value_just_before(cell: TypedCell, call: ast.Call, name: str) -> ast.expr | None:
    statement = cell.statement(call)
    block = cell.block_of(statement)
    at = block.index(statement)
    last = block[at - 1] if at else None
    if not isinstance(last, ast.Assign) or not isinstance(statement, ast.Assign):
        return None
    for one in (last, statement):
        target = one.targets[0]
        if len(one.targets) > 1 or not isinstance(target, ast.Name) or target.id != name:
            return None
    return last.value


def swapped(cell: TypedCell, first: ast.Call, second: ast.Call) -> tuple[Edit, Edit]:
    """Let two methods of a data set change places, with all that is written around them."""
    (start, end), (others_start, others_end) = _method(cell, first), _method(cell, second)
    return (
        Edit(start, end, cell.text[others_start:others_end]),
        Edit(others_start, others_end, cell.text[start:end]),
    )


def _method(cell: TypedCell, call: ast.Call) -> tuple[int, int]:
    """Give where `.map(…)` begins and ends, without what it is called on."""
    on: ast.expr = call.func.value  # type: ignore[attr-defined]  # a method's call
    return cell.end(on), cell.end(call)
