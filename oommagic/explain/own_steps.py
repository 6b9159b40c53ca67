"""The plan that a profiled cell's own tape is enough for: no step runs for it.

The steps have the batch that the cell gave them, mostly one size alone, which is read from the
shapes of what the layers computed. So each allocation's law comes from its shape, and what cannot
be known from a shape, as the one piece of memory of a step that XLA compiled, makes no plan.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from oommagic.explain.ownership import LASTING
from oommagic.explain.plan import Effort, Plan
from oommagic.explain.replay import failing_event
from oommagic.forecasts import Limit
from oommagic.recording import Held, StepTapes, Tape, TapedStep
from oommagic.report import Forecast, HoldingKind

_OF_KERAS = re.compile(r"(?:one|multi)_step_on_(?:data|iterator)|train_function")
"""What Keras calls the functions in which it trains."""
_OF_LAYERS: frozenset[HoldingKind] = frozenset({"activations", "gradients", "loss and metrics"})

_OFTEN, _COVERED = 0.1, 0.6
"""Of what the layers computed, so much has the batch as its first side, and so much a multiple."""
_DARK = 0.1
"""Of a step's peak: where more has no op or no shape, nobody knows how it grows."""
_WAIT_S = 2.0
"""An allocator that has no room waits longer than that."""
_WORTH_FEARING = 0.02
"""Of a step's peak: a weight of that size whose first side is the batch can be mistaken."""
_BEYOND_LIMIT = 2
_MOST_BEFORE = 1_500
"""Events: what came before the steps is rehearsed too, if it is no more than that."""
_QUICK = Effort(
    rows_events=40_000, run_events=1_500, fewest_steps=0, orders=0, runs=1, precision=0.03
)

_Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class CellSteps:
    """What there is of a cell's steps on one device."""

    tape: Tape
    held: Sequence[Held]
    """What names held when the tape began."""
    limit: Limit | None
    is_arena: bool
    has_failed: bool
    """Whether the cell ended by an error."""


def forecast_of_cell(cell: CellSteps) -> Forecast | None:
    """Predict other batch sizes from a cell's own steps; None where they do not tell enough."""
    tapes = _step_tapes(cell)
    if tapes is None:
        return None
    most_bytes = _QUICK.most_bytes if cell.limit is None else _BEYOND_LIMIT * cell.limit.bytes
    forecast = Plan(tapes, cell.limit, replace(_QUICK, most_bytes=most_bytes)).forecast
    # What ran has fit. Where something else has filled the device, that hides what would.
    is_hidden = forecast.max_batch is not None and forecast.max_batch < max(forecast.ran)
    return None if is_hidden else forecast


def _step_tapes(cell: CellSteps) -> StepTapes | None:
    name, spans = _training(cell)
    held = tuple(one for one in cell.held if one.device == cell.tape.device)
    steps = tuple(_known(cell.tape, spans, held))
    if not steps:
        return None
    is_keras = _OF_KERAS.fullmatch(name) is not None
    model = _model(steps[0].tape, held) if is_keras else ""
    return StepTapes(
        title=(model or "the model") if is_keras else name,
        task="training" if is_keras else "step",
        device=cell.tape.device,
        limit_bytes=None if cell.limit is None else cell.limit.bytes,
        is_arena=cell.is_arena,
        made=_before(cell.tape, spans[0][0], steps),
        steps=steps,
        held=held,
        notes=(_note(steps, f"%oombatch {model}".rstrip() if is_keras else "oommagic.plan"),),
        is_of_a_cell=True,
    )


def _before(tape: Tape, began_s: float, steps: Iterable[TapedStep]) -> Tape | None:
    """Give what came before the steps if they follow from it; not where a larger one was tried."""
    before = _cut(tape, -inf, began_s)
    highest = max(max(step.tape.in_use_bytes) for step in steps)
    is_short = 0 < len(before.bytes) <= _MOST_BEFORE
    return before if is_short and max(before.in_use_bytes) <= highest else None


def _note(steps: Iterable[TapedStep], ask: str) -> str:
    sizes = sorted({step.batch for step in steps})
    seen = f"the cell's own batch ({sizes[0]})" if len(sizes) == 1 else "the cell's own batches"
    return f"Only {seen} was seen, hence the wide range: `{ask}` runs other sizes and knows more."


def _model(step: Tape, held: Iterable[Held]) -> str:
    """Name the model whose layers ran; nothing where that is not plain."""
    roles = {step.roles[op] for op in step.op_numbers}
    ran = {role.layer for role in roles if role.kind in _OF_LAYERS and role.layer}
    layers: dict[str, set[str]] = {}
    for one in held:
        if one.kind == "weights":
            layers.setdefault(one.owner, set()).add(one.layer)
    most = max((len(own & ran) for own in layers.values()), default=0)
    owners = [owner for owner, own in layers.items() if len(own & ran) == most]
    return owners[0] if most and len(owners) == 1 else ""


def _training(cell: CellSteps) -> tuple[str, list[_Span]]:
    """Find the function that trains, and from when to when each whole call of it counts.

    What a call leaves is freed before the next one begins. The last one ends with itself.
    """
    by_name: dict[str, list[_Span]] = {}
    ends = [began_s for began_s, _, _ in cell.tape.steps[1:]]
    ends += [ended_s for _, ended_s, _ in cell.tape.steps[-1:]]
    for (began_s, ended_s, name), next_s in zip(cell.tape.steps, ends, strict=True):
        # Before the next one, constants of its gradients may be folded: that trains nothing. A
        # call within another one ends first, and stands before it.
        trains = _trains(_cut(cell.tape, began_s, min(ended_s, next_s)))
        if trains and _is_whole(cell, began_s, next_s):
            by_name.setdefault(name, []).append((began_s, next_s))
    name = max(by_name, key=lambda one: _highest(cell.tape, by_name[one]), default="")
    return name, by_name.get(name, [])


def _is_whole(cell: CellSteps, began_s: float, ended_s: float) -> bool:
    """Tell whether all of a step is on the tape, and that it did not run out."""
    tape = cell.tape
    if not tape.times_s or began_s < tape.times_s[0]:
        return False
    if cell.has_failed and tape.is_whole and ended_s >= tape.steps[-1][1]:
        return False
    return not _stood_still(_cut(tape, began_s, ended_s), ended_s)


def _trains(step: Tape) -> bool:
    return any(
        size > 0 and step.roles[op].kind == "gradients"
        for size, op in zip(step.bytes, step.op_numbers, strict=True)
    )


def _stood_still(step: Tape, ended_s: float) -> bool:
    """Tell whether an allocation may have failed: the allocator waits before it gives up."""
    return failing_event(step, None) is not None or ended_s - step.times_s[-1] > _WAIT_S


def _highest(tape: Tape, spans: Sequence[_Span]) -> int:
    return max(max(_cut(tape, *span).in_use_bytes) for span in spans)


def _cut(tape: Tape, began_s: float, ended_s: float) -> Tape:
    """Give the part of a tape between two times."""
    first, end = bisect_left(tape.times_s, began_s), bisect_left(tape.times_s, ended_s)
    return replace(
        tape,
        before_bytes=tape.in_use_bytes[first - 1] if first else tape.before_bytes,
        times_s=tape.times_s[first:end],
        addresses=tape.addresses[first:end],
        bytes=tape.bytes[first:end],
        requested_bytes=tape.requested_bytes[first:end],
        in_use_bytes=tape.in_use_bytes[first:end],
        op_numbers=tape.op_numbers[first:end],
        tensor_numbers=tape.tensor_numbers[first:end],
        temporary=tape.temporary[first:end],
        steps=(),
    )


def _known(tape: Tape, spans: Iterable[_Span], held: Sequence[Held]) -> Iterator[TapedStep]:
    """Give the steps whose batch is plain, and of which shapes tell how they grow."""
    weights = [one for one in held if one.kind in LASTING - {"data"} and one.shape]
    for span in spans:
        step = _cut(tape, *span)
        batch = _batch_of(step, {one.shape for one in weights})
        most = _WORTH_FEARING * max(step.in_use_bytes)
        alike = (one.bytes for one in weights if one.shape and one.shape[0] == batch)
        if batch and weights and max(alike, default=0) <= most and not _is_dark(step):
            yield TapedStep(batch, step, 0.0)


def _batch_of(step: Tape, weights: Collection[object]) -> int | None:
    """Read the batch from what the layers computed; None where it is not plain.

    Layers fold other sides into the first one, so that most may have multiples of it.
    """
    sides: Counter[int] = Counter()
    for event, size in enumerate(step.bytes):
        shape, _ = step.tensors[step.tensor_numbers[event]]
        kind = step.roles[step.op_numbers[event]].kind
        if size > 0 and shape and kind in _OF_LAYERS and shape not in weights:
            sides[shape[0]] += size
    total = sides.total()
    often = [side for side, size in sides.items() if side > 0 and size >= _OFTEN * total]
    covered = {side: _multiples(sides, side) / total for side in often}
    plain = [side for side in often if covered[side] >= _COVERED]
    return max(plain, key=lambda side: (round(covered[side], 1), side), default=None)


def _multiples(sides: Counter[int], of: int) -> int:
    return sum(size for side, size in sides.items() if side % of == 0)


def _is_dark(step: Tape) -> bool:
    """Tell whether much of the step's memory has no op or no shape, as what XLA compiled has."""
    live: dict[int, int] = {}
    dark = most = 0
    for event, (address, size) in enumerate(zip(step.addresses, step.bytes, strict=True)):
        dark -= live.pop(address, 0)
        shape, _ = step.tensors[step.tensor_numbers[event]]
        role = step.roles[step.op_numbers[event]]
        if size > 0 and (shape is None or role.kind == "unknown"):
            live[address] = size
            dark += size
            most = max(most, dark)
    return most > _DARK * max(step.in_use_bytes)
