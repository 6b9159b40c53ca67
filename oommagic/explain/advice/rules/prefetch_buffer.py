"""Prefetch a batch or two, not hundreds."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.data_sets import given_by, size_argument
from oommagic.explain.advice.examples import data_set
from oommagic.explain.advice.host_memory import DATA_CAUSES, data_saving, place_of_data
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import PipelineStep
from oommagic.units import GIB, MIB, format_bytes

_BATCHES = data_set(
    PipelineStep("tensorslice", 4 * MIB, 4000), PipelineStep("batch", 256 * MIB, 63, 64),
    PipelineStep("prefetch", 256 * MIB, 63, 32),
)  # fmt: skip
_SAMPLES = data_set(
    PipelineStep("tensorslice", 4 * MIB, 4000), PipelineStep("prefetch", 4 * MIB, 4000, 2000),
    PipelineStep("batch", 256 * MIB, 63, 64),
)  # fmt: skip


class PrefetchBuffer(Rule):
    """A buffer of as many batches as keep the device busy."""

    name = "prefetch-buffer"
    title = "A smaller prefetch"
    what = (
        "Where `prefetch` is told a number of elements that takes much memory, it leaves it "
        "to TensorFlow: `tf.data.AUTOTUNE`. Where that stands before `batch` or `map`, it says so: "
        "then it counts something else."
    )
    why = (
        "A prefetch of n keeps up to n elements ready, and behind `batch` an element is a whole "
        "batch. It saves time, never memory: without it there is one batch fewer in memory. "
        "`AUTOTUNE` began with one and kept to it where batches came fast enough. In front of "
        "`batch` it counts samples, in front of `map` what is not yet worked on, and then no batch "
        "is ready when the step wants it: its place is the end. A `prefetch` that is missing costs "
        "time alone, so none is ever suggested here."
    )
    example = "ds = ds.batch(64).prefetch(1000)"
    instead = "ds = ds.batch(64).prefetch(tf.data.AUTOTUNE)"
    safety = "same results"
    fix_safety = "The same batches in the same order."
    cost = "time, if batches come unevenly"
    causes = DATA_CAUSES
    speaks = (
        Case(
            "ds = ds.batch(64).prefetch(32)  # ahead\n",
            _BATCHES,
            "ds = ds.batch(64).prefetch(tf.data.AUTOTUNE)  # ahead\n",
        ),
        Case(
            "ds = (ds.batch(64)\n        .prefetch(buffer_size=32))\n",
            _BATCHES,
            "ds = (ds.batch(64)\n        .prefetch(buffer_size=tf.data.AUTOTUNE))\n",
        ),
        Case(
            "ds = ds.prefetch(2_000).batch(64)\n",
            _SAMPLES,
            "ds = ds.prefetch(tf.data.AUTOTUNE).batch(64)\n",
        ),
    )
    is_silent = (
        Case("ds = ds.batch(64).prefetch(tf.data.AUTOTUNE)\n", _BATCHES),
        Case("ds = ds.batch(64).prefetch(1)\n", _BATCHES),
        Case("page.prefetch(32)\n", data_set(PipelineStep("range", 8, GIB))),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find buffers of many large elements."""
        for call in cell.calls_of("prefetch"):
            value, number = size_argument(cell, here, call)
            step = given_by(cell, here, call)
            if value is None or number is None or number < 2 or step is None:  # noqa: PLR2004 (one is what AUTOTUNE takes)
                continue
            kept = min(number, step.count or number)
            size = (kept - 1) * step.kept_bytes
            tensorflow = here.module("tensorflow")
            few = f"{tensorflow}.data.AUTOTUNE" if tensorflow else "1"
            yield Found(
                title=f"`prefetch({few})` instead of {number}",
                message=(
                    f"Up to {kept} elements of {format_bytes(step.kept_bytes)} each are kept "
                    f"ready: {format_bytes(kept * step.kept_bytes)}. One is enough where the "
                    f"step takes longer than reading the next batch.{_before(cell, call)}"
                ),
                place=place_of_data(here),
                saving=data_saving(here, cell.statement(call).lineno, size, 0.5, 1.15),
                edits=(cell.replace(value, few),),
                line_number=call.lineno,
            )


def _before(cell: TypedCell, call: ast.Call) -> str:
    """Say what a prefetch counts that does not stand at the end of its line."""
    above = cell.parents[call]
    method = above.attr if isinstance(above, ast.Attribute) else ""
    if method == "batch":
        return " Before `batch` an element is a sample: put it behind, for a whole batch."
    if method == "map":
        return " Before `map` it readies what is still to be worked on: put it at the end."
    return ""
