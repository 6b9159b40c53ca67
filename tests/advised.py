"""Suggestions and trials as real runs would give them."""

from dataclasses import replace

from oommagic.cell import diff
from oommagic.explain.advice.engine import findings_of
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.rules.smaller_batch import SmallerBatch
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Finding, Fix, Safety, Saving, Trial, TrialRun
from oommagic.units import GIB, MIB

CELL = """\
# As in the paper.
BATCH = 128

model.compile(optimizer="adam", loss="mse")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).cache().batch(BATCH)
model.fit(dataset, epochs=5)
"""


def suggested() -> tuple[Finding, ...]:
    """Suggest a smaller batch by the rule itself, and seven things more."""
    (batch,) = findings_of(TypedCell(CELL), STEP_OF_96, [SmallerBatch()])
    others = (
        _finding(
            "mixed-precision",
            "Compute in half precision",
            "from tensorflow import keras\nkeras.mixed_precision.set_global_policy("
            '"mixed_float16")\n' + CELL,
            safety="changes results",
            changes="Activations keep 3 digits; weights stay float32.",
            saving=Saving("GPU:0", 500 * MIB, 760 * MIB, 900 * MIB),
            runs_then=True,
        ),
        _finding(
            "recompute",
            "Batches of 96, written into batch()",
            CELL.replace("BATCH)", "96)"),
            instead_of=1,
        ),
        _finding(
            "cache-to-file",
            "cache(file) instead of cache()",
            CELL.replace(".cache()", '.cache("/tmp/cache")'),
            place="host",
            cost="reading the file in each epoch",
            saving=Saving("host", 600 * MIB, 601 * MIB, 602 * MIB),
        ),
        _finding("lighter-optimizer", "SGD instead of Adam", CELL.replace("adam", "sgd")),
        replace(_finding("lora", "Train adapters alone", CELL), safety="hint", fix=None),
        _finding("integer-labels", "Integer labels", CELL.replace("mse", "mae"), place="host"),
        replace(_finding("more-memory", "A larger device", CELL), safety="hint", fix=None),
    )
    return (batch, *others)


def _finding(  # noqa: PLR0913 - a suggestion has that many facts
    rule: str,
    title: str,
    source: str,
    *,
    safety: Safety = "same results",
    place: str = "GPU:0",
    cost: str = "",
    changes: str = "",
    saving: Saving | None = None,
    runs_then: bool = False,
    instead_of: int | None = None,
) -> Finding:
    return Finding(
        rule,
        title,
        message=f"The cell's {place} was at its fullest in line 6, and this lowers it.",
        safety=safety,
        place=place,
        cost=cost,
        changes=changes,
        saving=saving,
        runs_then=runs_then,
        fix=Fix((), source, diff(CELL, source)),
        line_number=5,
        instead_of=instead_of,
    )


def measured(number: int = 2) -> Trial:
    """Measure a suggestion that lowers the device's peak."""
    return Trial(
        (number,),
        ("mixed-precision",),
        TrialRun("finished", "GPU:0", int(1.9 * GIB), 812 * MIB, 4, 0.120, 0.6931),
        TrialRun("finished", "GPU:0", int(1.12 * GIB), 790 * MIB, 4, 0.131, 0.6935),
        2 * GIB,
        ("The dataset was stood in for by one of the same shapes.",),
    )


def rescued(number: int = 1) -> Trial:
    """Measure a suggestion without which the cell runs out of memory."""
    ran_out = TrialRun("ran out", "GPU:0", int(1.99 * GIB), message="OOM when allocating 300 MB.")
    return replace(measured(number), rules=("smaller-batch",), before=ran_out)


def in_vain(number: int = 2) -> Trial:
    """Measure a suggestion with which the cell runs out as before."""
    return replace(rescued(number), after=rescued().before)
