"""Fewer whole batches that a map works on at once."""

import ast
from collections.abc import Iterator
from itertools import pairwise

from oommagic.explain.advice.arrays import bound_to
from oommagic.explain.advice.data_sets import size_argument
from oommagic.explain.advice.examples import data_set
from oommagic.explain.advice.host_memory import DATA_CAUSES, data_saving, place_of_data
from oommagic.explain.advice.nodes import argument
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import PipelineStep
from oommagic.units import MIB, format_bytes

_AT_ONCE = 1
"""What `AUTOTUNE` was seen to keep, on two cores."""

_BATCHES = data_set(
    PipelineStep("tensorslice", MIB, 4000), PipelineStep("batch", 64 * MIB, 63, 64),
    PipelineStep("map", 256 * MIB, 63),
)  # fmt: skip
_SAMPLES = data_set(
    PipelineStep("tensorslice", MIB, 4000), PipelineStep("map", 4 * MIB, 4000),
    PipelineStep("batch", 256 * MIB, 63, 64),
)  # fmt: skip


class MapInParallel(Rule):
    """`map` before `batch` keeps samples, behind it whole batches."""

    name = "map-in-parallel"
    title = "A map of fewer batches at once"
    what = (
        "Where `map` is told a number of parallel calls and stands behind `batch`, it leaves the "
        "number to TensorFlow: `tf.data.AUTOTUNE`."
    )
    why = (
        "A map of n parallel calls keeps up to n results ready, and behind `batch` each is a whole "
        "batch. The same map before `batch` keeps n samples. Without parallel calls it makes no "
        "difference to memory which of the two comes first; a map of whole batches is called less "
        "often, which saves time where it does little for each sample."
    )
    example = "ds = ds.batch(64).map(prepare, num_parallel_calls=16)"
    instead = "ds = ds.batch(64).map(prepare, num_parallel_calls=tf.data.AUTOTUNE)"
    safety = "same results"
    fix_safety = "The same batches in the same order."
    cost = "time, if the map is slow and there are many cores"
    causes = DATA_CAUSES
    speaks = (
        Case(
            "ds = ds.batch(64).map(f, num_parallel_calls=16)  # fast\n",
            _BATCHES,
            "ds = ds.batch(64).map(f, num_parallel_calls=tf.data.AUTOTUNE)  # fast\n",
        ),
        Case(
            "ds = ds.batch(64)\nds = ds.map(f, 16)\n",
            _BATCHES,
            "ds = ds.batch(64)\nds = ds.map(f, tf.data.AUTOTUNE)\n",
        ),
    )
    is_silent = (
        Case("ds = ds.map(f, num_parallel_calls=16).batch(64)\n", _SAMPLES),
        Case("ds = ds.batch(64).map(f, num_parallel_calls=tf.data.AUTOTUNE)\n", _BATCHES),
        Case("ds = ds.batch(64).map(f)\n", _BATCHES),
        Case("names = pool.map(f, 16)\n", _BATCHES),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find maps of batches with many parallel calls."""
        tensorflow = here.module("tensorflow")
        for call in cell.calls_of("map"):
            written = argument(call, 1, "num_parallel_calls")
            number, step = cell.number(written), _mapped(cell, here, call)
            if written is None or number is None or step is None or tensorflow is None:
                continue
            kept = min(number, step.count or number)
            if kept <= _AT_ONCE:
                continue
            size = (kept - _AT_ONCE) * step.kept_bytes
            yield Found(
                title=f"`num_parallel_calls={tensorflow}.data.AUTOTUNE` instead of {number}",
                message=(
                    f"The map keeps up to {kept} batches of {format_bytes(step.kept_bytes)} each: "
                    f"{format_bytes(kept * step.kept_bytes)}. Before `batch` it would keep as many "
                    "samples."
                ),
                place=place_of_data(here),
                saving=data_saving(here, cell.statement(call).lineno, size, 0.4, 1.2),
                edits=(cell.replace(written, f"{tensorflow}.data.AUTOTUNE"),),
                line_number=call.lineno,
            )


def _mapped(cell: TypedCell, here: Situation, call: ast.Call) -> PipelineStep | None:
    """Tell what a map gives that stands right behind the cell's one `batch`."""
    batches = list(cell.calls_of("batch"))
    if len(batches) != 1 or not _comes_behind(cell, batches[0], call):
        return None
    _, rows = size_argument(cell, here, batches[0])
    found = {
        mapped
        for steps in here.pipelines()
        for batch, mapped in pairwise(steps)
        if (batch.kind, mapped.kind) == ("batch", "map") and rows in {None, batch.number}
    }
    return found.pop() if len(found) == 1 else None


def _comes_behind(cell: TypedCell, batch: ast.Call, call: ast.Call) -> bool:
    """Say whether a method is called on what `batch` gives, or on the name that has it."""
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(on, ast.Name):
        return bound_to(cell, batch) == on.id and batch.lineno < call.lineno
    return on is batch
