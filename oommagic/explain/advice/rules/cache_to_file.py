"""A cache on the disk instead of in memory."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.data_sets import given_by
from oommagic.explain.advice.examples import data_set
from oommagic.explain.advice.host_memory import DATA_CAUSES, data_saving, place_of_data
from oommagic.explain.advice.iterated import may_be_iterated_twice
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import PipelineStep
from oommagic.report import Edit
from oommagic.units import MIB, format_bytes

_OVERHEAD_BYTES = 1024
"""What each element takes beside its numbers."""

_ONE_WRITER = (
    " But two iterators may go over it at once here, and where one of them is still writing the "
    "file, the other fails: let a loop go over it once before."
)
_CACHED = data_set(
    PipelineStep("map", MIB, 8_000), PipelineStep("cache", MIB, 8_000),
)  # fmt: skip


class CacheToFile(Rule):
    """What the pipeline has worked out lies in a file."""

    name = "cache-to-file"
    title = "`cache` into a file"
    what = (
        "Where `cache()` keeps a whole data set in memory, it writes it to a new temporary folder, "
        "and says how much that is. Where two iterators may go over the data set at once, it is a "
        "hint: a file is written by one of them, and the other fails."
    )
    why = (
        "`cache()` keeps every element that has passed, as large as it is at that place. In a file "
        "it takes none of the process's memory. The file is of this run alone: a cache that an "
        "earlier run has left would be taken as it is, whatever the steps before it do now."
    )
    example = "ds = ds.map(decode).cache().batch(32)"
    instead = 'ds = ds.map(decode).cache(tempfile.mkdtemp() + "/data").batch(32)'
    safety = "same results"
    fix_safety = (
        "The same elements in the same order. While one iterator writes the file, no other may go "
        "over the data set: where it is zipped with itself, a loop goes over it within another, "
        "one call is given it twice, a function or class goes over it as well as what is outside, "
        "or a name holds an iterator, there is no edit; one that another cell holds fails with "
        "`AlreadyExistsError`."
    )
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
            "import tempfile\n\nds = ds.map(decode)\nds = (ds.cache  # (all)\n())  # once\n",
            _CACHED,
            "import tempfile\n\nds = ds.map(decode)\n"
            'ds = (ds.cache  # (all)\n(tempfile.mkdtemp() + "/data"))  # once\n',
        ),
        Case(
            "ds = tf.data.Dataset.zip((ds, ds)).cache()\n",
            _CACHED,
            "import tempfile\n"
            'ds = tf.data.Dataset.zip((ds, ds)).cache(tempfile.mkdtemp() + "/data")\n',
        ),
        Case("ds = ds.cache()\npairs = tf.data.Dataset.zip((ds, ds))\n", _CACHED),
        Case("ds = ds.cache()\nmodel.fit(tf.data.Dataset.zip(ds, ds.skip(1)))\n", _CACHED),
        Case("ds = ds.cache()\nrows = iter(ds)\nmodel.fit(ds)\n", _CACHED),
        Case("ds = ds.cache()\nfor a in ds:\n    for b in ds:\n        f(a, b)\n", _CACHED),
        Case("ds = ds.cache()\npairs = [f(a, b) for a in ds for b in ds]\n", _CACHED),
        Case("ds = ds.cache()\nfor a in ds:\n    f(a, model.evaluate(ds))\n", _CACHED),
        Case(
            "ds = ds.cache()\nmodel.fit(ds.repeat(), steps_per_epoch=9, validation_data=ds)\n",
            _CACHED,
        ),
        Case(
            "ds = ds.cache().batch(8)\ntrain = ds.skip(9)\nval = ds.take(9)\n"
            "model.fit(train, validation_data=val)\n",
            _CACHED,
        ),
        Case(
            "def pairs():\n    return tf.data.Dataset.zip((ds, ds))\n"
            "ds = ds.cache()\nmodel.fit(pairs())\n",
            _CACHED,
        ),
        Case(
            "ds = ds.cache()\nfor epoch in range(9):\n    for a in ds:\n        f(a, len(ds))\n"
            "model.fit(ds, steps_per_epoch=len(ds), validation_data=val)\nmodel.evaluate(ds)\n",
            _CACHED,
            "import tempfile\n"
            'ds = ds.cache(tempfile.mkdtemp() + "/data")\n'
            "for epoch in range(9):\n    for a in ds:\n        f(a, len(ds))\n"
            "model.fit(ds, steps_per_epoch=len(ds), validation_data=val)\nmodel.evaluate(ds)\n",
        ),
        Case(
            "ds = ds.cache()\nfirst = next(iter(ds))\n",
            _CACHED,
            "import tempfile\n"
            'ds = ds.cache(tempfile.mkdtemp() + "/data")\nfirst = next(iter(ds))\n',
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
            is_twice = may_be_iterated_twice(cell, here, call)
            high = 1.05 + _OVERHEAD_BYTES / step.kept_bytes
            yield Found(
                title="Cache into a file instead of memory",
                message=(
                    f"{step.count} elements of {format_bytes(step.kept_bytes)} each stay in "
                    f"memory: {format_bytes(total)}, which would be written to a new temporary "
                    "folder." + (_ONE_WRITER if is_twice else "")
                ),
                place=place_of_data(here),
                saving=data_saving(here, cell.statement(call).lineno, total, 0.85, high),
                edits=() if is_twice else _into_file(cell, call),
                line_number=call.lineno,
            )


def _into_file(cell: TypedCell, call: ast.Call) -> tuple[Edit, ...]:
    at = cell.end(call) - 1
    added = cell.add_import("import tempfile")
    folder = Edit(at, at, 'tempfile.mkdtemp() + "/data"')
    return (folder,) if added is None else (folder, added)
