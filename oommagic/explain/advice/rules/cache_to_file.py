"""A cache on the disk instead of in memory."""

from collections.abc import Iterator

from oommagic.explain.advice.data_sets import given_by
from oommagic.explain.advice.examples import data_set
from oommagic.explain.advice.host_memory import DATA_CAUSES, data_saving, place_of_data
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import PipelineStep
from oommagic.report import Edit
from oommagic.units import MIB, format_bytes

_OVERHEAD_BYTES = 1024
"""What each element takes beside its numbers."""

_CACHED = data_set(
    PipelineStep("map", MIB, 8_000), PipelineStep("cache", MIB, 8_000),
)  # fmt: skip


class CacheToFile(Rule):
    """What the pipeline has worked out lies in a file."""

    name = "cache-to-file"
    title = "`cache` into a file"
    what = (
        "Where `cache()` keeps a whole data set in memory, it writes it to a new temporary folder, "
        "and says how much that is."
    )
    why = (
        "`cache()` keeps every element that has passed, as large as it is at that place. In a file "
        "it takes none of the process's memory. The file is of this run alone: a cache that an "
        "earlier run has left would be taken as it is, whatever the steps before it do now."
    )
    example = "ds = ds.map(decode).cache().batch(32)"
    instead = 'ds = ds.map(decode).cache(tempfile.mkdtemp() + "/data").batch(32)'
    safety = "same results"
    fix_safety = "The same elements in the same order."
    cost = "space and time on the disk"
    effort = 1.2
    causes = DATA_CAUSES
    speaks = (
        Case(
            "ds = ds.map(decode).cache().batch(32)\n",
            _CACHED,
            'import tempfile\nds = ds.map(decode).cache(tempfile.mkdtemp() + "/data").batch(32)\n',
        ),
        Case(
            "import tempfile\n\nds = ds.map(decode)\nds = ds.cache( )  # once\n",
            _CACHED,
            "import tempfile\n\nds = ds.map(decode)\n"
            'ds = ds.cache(tempfile.mkdtemp() + "/data" )  # once\n',
        ),
    )
    is_silent = (
        Case('ds = ds.cache("images")\n', _CACHED),
        Case("@functools.cache()\ndef f(): pass\n", _CACHED),
        Case("ds = ds.cache()\n", data_set(PipelineStep("cache", 8, 8_000))),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find data sets that are kept whole."""
        for call in cell.calls_of("cache"):
            step = given_by(cell, here, call)
            if step is None or step.kind != "cache" or call.args or call.keywords:
                continue
            if not step.kept_bytes or step.count is None:
                continue
            total = step.kept_bytes * step.count
            at = cell.text.index("(", cell.end(call.func)) + 1
            edits = [
                Edit(at, at, 'tempfile.mkdtemp() + "/data"'),
                cell.add_import("import tempfile"),
            ]
            high = 1.05 + _OVERHEAD_BYTES / step.kept_bytes
            yield Found(
                title="Cache into a file instead of memory",
                message=(
                    f"{step.count} elements of {format_bytes(step.kept_bytes)} each stay in "
                    f"memory: {format_bytes(total)}, which would be written to a new temporary "
                    "folder."
                ),
                place=place_of_data(here),
                saving=data_saving(here, cell.statement(call).lineno, total, 0.85, high),
                edits=tuple(edit for edit in edits if edit is not None),
                line_number=call.lineno,
            )
