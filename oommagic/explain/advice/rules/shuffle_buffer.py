"""A shuffle buffer counted in bytes."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from oommagic.explain.advice.data_sets import given_by, size_argument, swapped
from oommagic.explain.advice.examples import HOST_RAN_OUT, data_set
from oommagic.explain.advice.host_memory import DATA_CAUSES, data_saving, place_of_data
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import Named, PipelineStep
from oommagic.report import Saving
from oommagic.units import MIB, format_bytes

_SHARE_OF_LIMIT = 20
"""What a buffer may take: one part of so many of the limit."""

_IMAGES = data_set(
    PipelineStep("map", MIB, 50_000), PipelineStep("shuffle", MIB, 50_000, 10_000),
)  # fmt: skip
_BATCHES = data_set(
    PipelineStep("map", MIB, 50_000), PipelineStep("batch", 32 * MIB, 1563, 32),
    PipelineStep("shuffle", 32 * MIB, 1563, 200),
)  # fmt: skip

_ROWS = replace(
    HOST_RAN_OUT,
    names={"x": Named("array", 10_000 * 224 * 224 * 8, "float64", (10_000, 224, 224))},
)


class ShuffleBuffer(Rule):
    """A buffer that is as large as its elements allow."""

    name = "shuffle-buffer"
    title = "A smaller shuffle buffer"
    what = (
        "Where the buffer of `shuffle` takes much memory, it makes it smaller; where whole batches "
        "are shuffled, it shuffles the samples before they are batched."
    )
    why = (
        "`shuffle(10_000)` keeps 10,000 elements as they are at that place: decoded images of "
        "600 KB are 6 GB. Behind `batch` each element is a batch. Shuffled before they are read "
        "(file names, indices), the same number takes next to nothing; so do the rows of an array "
        "right behind `from_tensor_slices`, which are not copied if they are of 64 bytes or a "
        "multiple."
    )
    example = "ds = ds.shuffle(10_000).batch(32)"
    instead = "ds = ds.shuffle(600).batch(32)"
    safety = "changes results"
    fix_safety = (
        "Samples come in another order: less random with a smaller buffer, more so where samples "
        "are shuffled instead of batches."
    )
    cost = "a less random order"
    causes = DATA_CAUSES
    speaks = (
        Case(
            "ds = ds.shuffle(10_000, seed=1).batch(32)\n",
            _IMAGES,
            "ds = ds.shuffle(610, seed=1).batch(32)\n",
        ),
        Case(
            "ds = (\n    ds.batch(32)  # samples\n    .shuffle(200)\n    .prefetch(1)\n)\n",
            _BATCHES,
            "ds = (\n    ds  # samples\n    .shuffle(200).batch(32)\n    .prefetch(1)\n)\n",
        ),
    )
    is_silent = (
        Case("rng.shuffle(x)\n", _IMAGES),
        Case("ds = tf.data.Dataset.from_tensor_slices(x).shuffle(10_000)\n", _ROWS),
        Case("ds = ds.shuffle(100)\n", data_set(PipelineStep("shuffle", MIB, 50_000, 100))),
        Case("ds = ds.shuffle(10_000)\n", data_set(PipelineStep("shuffle", 8, 50_000, 10_000))),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find buffers that take many bytes."""
        for call in cell.calls_of("shuffle"):
            value, number = size_argument(cell, here, call)
            step = given_by(cell, here, call)
            if step is None or value is None or not step.kept_bytes:
                continue
            number = number or step.number or 0
            buffer = _Buffer(call, value, min(number, step.count or number), step.kept_bytes)
            batched, fewer = _batch_before(call), _fewer(here, step.kept_bytes)
            if batched is not None:
                yield _samples_first(cell, here, buffer, batched)
            elif fewer < buffer.elements:
                yield _smaller(cell, here, buffer, fewer)


@dataclass(frozen=True, slots=True)
class _Buffer:
    """A shuffle, and what it keeps."""

    call: ast.Call
    written: ast.expr
    elements: int
    element_bytes: int

    @property
    def bytes(self) -> int:
        """What it keeps in all."""
        return self.elements * self.element_bytes


def _smaller(cell: TypedCell, here: Situation, buffer: _Buffer, fewer: int) -> Found:
    then = fewer * buffer.element_bytes
    return Found(
        title=f"A shuffle buffer of {fewer} instead of {buffer.elements}",
        message=_message(buffer, "elements", then),
        place=place_of_data(here),
        saving=_saving(cell, here, buffer, then),
        edits=(cell.replace(buffer.written, str(fewer)),),
        line_number=buffer.call.lineno,
    )


def _samples_first(cell: TypedCell, here: Situation, buffer: _Buffer, batched: ast.Call) -> Found:
    _, rows = size_argument(cell, here, batched)
    then = buffer.bytes // (rows or 1)
    return Found(
        title="Shuffle samples before they are batched",
        message=_message(buffer, "batches", then),
        place=place_of_data(here),
        saving=_saving(cell, here, buffer, then),
        edits=swapped(cell, batched, buffer.call),
        line_number=buffer.call.lineno,
    )


def _message(buffer: _Buffer, what: str, then: int) -> str:
    each = format_bytes(buffer.element_bytes)
    return (
        f"The buffer keeps {buffer.elements} {what} of {each} each: {format_bytes(buffer.bytes)}. "
        f"With the change it keeps {format_bytes(then)}."
    )


def _saving(cell: TypedCell, here: Situation, buffer: _Buffer, then: int) -> Saving:
    line_number = cell.statement(buffer.call).lineno
    return data_saving(here, line_number, buffer.bytes - then, 0.8, 1.15)


def _batch_before(call: ast.Call) -> ast.Call | None:
    """Give the `.batch(…)` on which `.shuffle(…)` is called."""
    before = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(before, ast.Call) or not isinstance(before.func, ast.Attribute):
        return None
    return before if before.func.attr == "batch" else None


def _fewer(here: Situation, element_bytes: int) -> int:
    """Give a number of elements that is easy on memory, in two digits."""
    limit = here.limit(place_of_data(here)) or here.peak(place_of_data(here))
    most = max(1, limit // _SHARE_OF_LIMIT // element_bytes)
    digits = int(10 ** max(0, len(str(most)) - 2))
    return most // digits * digits
