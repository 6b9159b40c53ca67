"""The peak at any size between those of a forecast's rows, and whether it fits.

`planner.js` does the same sums, in the same order, so that a slider without a kernel says what
Python says: to the byte, up to the 2**53 bytes that its numbers hold.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from oommagic.report import BatchTrial, Forecast, PlannedBatch

Fit = Literal["fits", "may not fit", "does not fit"]

Rows = Sequence[PlannedBatch]


@dataclass(frozen=True, slots=True)
class Limit:
    """What a step has to fit into."""

    name: str
    bytes: int
    max_batch: int | None = None
    """The largest batch that fits, if more is known of it than the rows' peaks."""


def rows_of(forecast: Forecast) -> Rows:
    """Give a forecast's rows by size, each size once: a saved one may say anything."""
    by_batch = {row.batch: row for row in forecast.rows if row.batch > 0}
    return tuple(by_batch[batch] for batch in sorted(by_batch))


def planned(rows: Rows, batch: int) -> PlannedBatch | None:
    """Say what a step of that size takes: on a line between the rows, nothing outside them."""
    place = bisect_left(rows, batch, key=_batch)
    if place == len(rows):
        return None
    above = rows[place]
    if above.batch == batch:
        return above
    return _mixed(rows[place - 1], above, batch) if place else None


def fit_of(row: PlannedBatch, limit: Limit, trials: Sequence[BatchTrial] = ()) -> Fit:
    """Say whether a step fits: real steps count for more than what was predicted."""
    expected = _expected_fit(row, limit)
    trial = trial_of(row.batch, limit, trials)
    if trial is None:
        return expected
    if trial.outcome == "fits":
        return "fits"
    if trial.outcome == "ran out":
        return "does not fit"
    # Nothing was proven, and it was no success.
    return "may not fit" if expected == "fits" else expected


def trial_of(batch: int, limit: Limit, trials: Sequence[BatchTrial]) -> BatchTrial | None:
    """Find the real steps of that size that tell something about that limit."""
    told = (trial for trial in trials if trial.batch == batch and _tells(trial, limit))
    return next(told, None)


def largest(rows: Rows, limit: Limit) -> int:
    """Give the largest batch that is known to fit, or expected to; 0 if none is."""
    if limit.max_batch is not None:
        return max(0, limit.max_batch)
    fitting = fitting_rows(rows, limit.bytes)
    if not fitting:
        return 0
    if fitting == len(rows):
        return rows[-1].batch
    return _last_below(rows[fitting - 1], rows[fitting], limit.bytes)


def fitting_rows(rows: Rows, most_bytes: int) -> int:
    """Count the rows up to the first that may take more; a larger one may fit by luck."""
    return next((n for n, row in enumerate(rows) if row.high_bytes > most_bytes), len(rows))


def _batch(row: PlannedBatch) -> int:
    return row.batch


def _mixed(below: PlannedBatch, above: PlannedBatch, batch: int) -> PlannedBatch:
    share = (batch - below.batch) / (above.batch - below.batch)

    def mixed(low: int, high: int) -> int:
        return math.floor(low + (high - low) * share + 0.5)

    kinds = {**below.kinds, **above.kinds}
    return PlannedBatch(
        batch,
        mixed(below.low_bytes, above.low_bytes),
        mixed(below.peak_bytes, above.peak_bytes),
        mixed(below.high_bytes, above.high_bytes),
        {kind: mixed(below.kinds.get(kind, 0), above.kinds.get(kind, 0)) for kind in kinds},
    )


def _expected_fit(row: PlannedBatch, limit: Limit) -> Fit:
    if row.batch == limit.max_batch:
        return "fits"
    # Beyond the largest known to fit the sum may still fit, and one large block find no place.
    is_known_not_to = limit.max_batch is not None and row.batch > limit.max_batch
    if row.high_bytes <= limit.bytes and not is_known_not_to:
        return "fits"
    return "does not fit" if row.low_bytes > limit.bytes else "may not fit"


def _tells(trial: BatchTrial, limit: Limit) -> bool:
    if trial.outcome == "fits":
        return trial.limit_bytes <= limit.bytes
    if trial.outcome == "ran out":
        return trial.limit_bytes >= limit.bytes
    return trial.limit_bytes == limit.bytes


def _last_below(below: PlannedBatch, above: PlannedBatch, most_bytes: int) -> int:
    """Search between a row that fits and the next one, which does not."""
    fitting, too_large = below.batch, above.batch
    while too_large - fitting > 1:
        middle = (fitting + too_large) // 2
        if _mixed(below, above, middle).high_bytes <= most_bytes:
            fitting = middle
        else:
            too_large = middle
    return fitting
