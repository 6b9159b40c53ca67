"""Keep elements while they are small: `cache` and `shuffle` before the map that expands them."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.data_sets import AfterAMap, after_a_map
from oommagic.explain.advice.examples import data_set
from oommagic.explain.advice.host_memory import DATA_CAUSES, data_saving, place_of_data
from oommagic.explain.advice.nodes import called
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import PipelineStep
from oommagic.units import MIB, format_bytes

_EXPANDS = 1.5

_SHUFFLED = data_set(
    PipelineStep("tensorslice", MIB // 4, 8_000), PipelineStep("map", MIB, 8_000),
    PipelineStep("shuffle", MIB, 8_000, 5_000), PipelineStep("batch", 32 * MIB, 250, 32),
)  # fmt: skip
_CACHED = data_set(
    PipelineStep("tensorslice", MIB // 4, 8_000), PipelineStep("map", MIB, 8_000),
    PipelineStep("cache", MIB, 8_000),
)  # fmt: skip
_NARROWED = data_set(
    PipelineStep("tensorslice", MIB, 8_000), PipelineStep("map", MIB, 8_000),
    PipelineStep("shuffle", MIB, 8_000, 5_000),
)  # fmt: skip


class MapOrder(Rule):
    """Buffers hold bytes instead of floats."""

    name = "map-order"
    title = "`cache` and `shuffle` before the map"
    what = (
        "Where `cache` or `shuffle` keeps what a `map` before it has made larger, the two change "
        "places."
    )
    why = (
        "Bytes of an image become floats of four times the size. A buffer in front of that step "
        "keeps the small ones, and each is converted when its turn comes."
    )
    example = "ds = ds.map(to_float).shuffle(5000).batch(32)"
    instead = "ds = ds.shuffle(5000).map(to_float).batch(32)"
    safety = "changes results"
    fix_safety = (
        "The same samples as before, unless the map draws random numbers: it draws them in another "
        "order, and behind a cache anew in each epoch instead of once."
    )
    cost = "behind `cache`, the map runs in each epoch"
    causes = DATA_CAUSES
    speaks = (
        Case(
            "ds = ds.map(to_float).shuffle(5_000).batch(32)\n",
            _SHUFFLED,
            "ds = ds.shuffle(5_000).map(to_float).batch(32)\n",
        ),
        Case(
            "ds = ds.map(\n    to_float,  # 0 to 1\n)\nds = ds.cache()\n",
            _CACHED,
            "ds = ds.cache()\nds = ds.map(\n    to_float,  # 0 to 1\n)\n",
        ),
    )
    is_silent = (
        Case("ds = ds.map(to_float).shuffle(5_000)\n", _NARROWED),
        Case("ds = ds.shuffle(5_000).map(to_float)\n", _SHUFFLED),
        Case("ds = ds.map(to_float).cache('train.cache')\n", _CACHED),
        Case("frame = frame.map(str).cache()\n"),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find buffers right behind a map that expands."""
        for call in cell.calls_of("shuffle", "cache"):
            found = after_a_map(cell, here, call) if _can_change_place(call) else None
            if found is not None and found.large.kept_bytes > _EXPANDS * found.small.kept_bytes:
                yield from _found(cell, here, found)


def _can_change_place(call: ast.Call) -> bool:
    """Say whether its size is seen; a cache's file, which another run may have left, stays."""
    if called(call) == "cache":
        return not call.args and not call.keywords
    return bool(call.args) or not call.keywords


def _found(cell: TypedCell, here: Situation, found: AfterAMap) -> Iterator[Found]:
    small, step = found.small, found.step
    kept = step.count if step.kind == "cache" else step.number
    if kept is None or not small.element_bytes:
        return
    kept = min(kept, step.count or kept)
    size = kept * (step.kept_bytes - small.kept_bytes)
    yield Found(
        title=f"`{step.kind}` before the map, not after it",
        message=(
            f"{kept} elements are kept at {format_bytes(step.kept_bytes)} each, and would be at "
            f"{format_bytes(small.kept_bytes)} before the map: "
            f"{format_bytes(kept * small.kept_bytes)} instead of "
            f"{format_bytes(kept * step.kept_bytes)}."
        ),
        place=place_of_data(here),
        saving=data_saving(here, cell.statement(found.call).lineno, size, 0.8, 1.2),
        edits=found.edits,
        line_number=found.call.lineno,
    )
