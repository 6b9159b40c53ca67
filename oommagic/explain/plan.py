"""The peak of a step at any batch size, from steps at a few: the plan.

Each allocation that was recorded is scaled by its own law, and the whole run is rehearsed on the
replayed allocator. Steps differ, since a model's ops race. What is told is the highest of a few
steps in a row; how far the steps lie apart makes the range.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import comb

from oommagic.errors import PlanError
from oommagic.explain.rehearsal import Device, Fullest, RanOutError, Rehearsal
from oommagic.explain.scaling import Scripts, scripts_of
from oommagic.forecasts import Limit, Rows, planned
from oommagic.recording import StepTapes
from oommagic.report import BatchTrial, Composition, Forecast, Holding, HoldingKind, PlannedBatch
from oommagic.units import GIB, MIB, format_bytes

_RUN_STEPS = 5
"""What is told is the peak of so many steps in a row: the highest of them."""
_LEAST, _EVEN = 0.1, 0.5
"""How likely such a run stays below the low end of the range, and below the peak that is told."""
_BESIDE, _OF_SPREAD, _BESIDE_BYTES = 0.03, 0.25, MIB
"""How far real peaks lie beside rehearsed ones, by `bench/plan`: so much of what a step adds, of
what the steps differ by, and the little that other orders of small ops make."""

_ROWS_EVENTS, _RUN_EVENTS = 1_500_000, 20_000
"""Allocations and frees that are rehearsed for all rows, about two seconds of them, and for one."""
_FEWEST_STEPS = 3
_DOUBLINGS = 20
_FINEST = 3
_LARGEST_PEAK_BYTES = 96 * GIB
"""More than a large card has: rows for more help nobody."""
_RESERVE = 0.02
"""Of the peak: room that a rehearsal under the limit has to leave."""


class Plan:
    """What one step takes of the device, for any batch size."""

    def __init__(self, tapes: StepTapes, limit: Limit | None = None) -> None:
        """Rehearse steps of growing size, and find the largest that fits the limit."""
        self._scripts = _affordable(scripts_of(tapes))
        self._grows = tapes.is_arena
        rows = tuple(self._rows())
        fixed_bytes = next(self._rehearsals(1)).settled_bytes
        forecast = _forecast(tapes, rows, fixed_bytes)
        if limit is not None:
            largest = self._largest(limit.bytes)
            forecast = replace(
                forecast,
                limit_bytes=limit.bytes,
                limit_source=limit.name,
                max_batch=largest,
            )
        self.forecast = forecast

    def peak_bytes(self, batch: int) -> int:
        """Give the peak that steps of that size are expected to reach."""
        return self._row(batch).peak_bytes

    def range_bytes(self, batch: int) -> tuple[int, int]:
        """Give the two figures between which the peak is expected."""
        row = self._row(batch)
        return row.low_bytes, row.high_bytes

    def composition(self, batch: int) -> Composition:
        """Tell who holds what when a step is at its fullest, by layer and kind."""
        _check_batch(batch)
        fullest = next(self._rehearsals(batch)).fullest()
        device, holdings = self.forecast.device, tuple(_holdings(fullest))
        return Composition(device, "peak", fullest.total_bytes, holdings, "plan")

    def max_batch(self, limit_bytes: int | None = None) -> int:
        """Give the largest batch that fits the limit (the device's own by default), or 0."""
        known = self.forecast
        if limit_bytes is not None and limit_bytes != known.limit_bytes:
            return self._largest(limit_bytes)
        if known.max_batch is None:
            raise PlanError(
                "No limit is known for the device of this plan: say one, as in "
                "plan.max_batch(limit_bytes=15 * 10**9)."
            )
        return known.max_batch

    def prove(self, *trials: BatchTrial) -> None:
        """Take up what real steps showed: the largest batch that ran is the one that fits."""
        proven = [trial.batch for trial in trials if trial.outcome == "fits"]
        self.forecast = replace(
            self.forecast, trials=trials, max_batch=max(proven, default=self.forecast.max_batch)
        )

    def __repr__(self) -> str:
        """Say it in a line."""
        known = self.forecast
        fixed, added = format_bytes(known.fixed_bytes), format_bytes(known.sample_bytes)
        return f"<Plan of {known.title}: {fixed}, and {added} for each sample>"

    def _row(self, batch: int) -> PlannedBatch:
        _check_batch(batch)
        row = planned(self.forecast.rows, batch)
        if row is None:
            largest = self.forecast.rows[-1].batch
            raise PlanError(f"Batch {batch} was not looked at: the plan ends at {largest}.")
        return row

    def _rehearsals(self, batch: int) -> Iterator[Rehearsal]:
        """Rehearse steps of each size that ran, those of the nearest first."""
        device = Device(grows=self._grows)
        for steps in self._scripts.runs(batch):
            yield Rehearsal(self._scripts, steps, batch, device)

    def _rows(self) -> Iterator[PlannedBatch]:
        for batch in _batches(_fineness(self._scripts)):
            row = self._rehearsed_row(batch)
            yield row
            if row.low_bytes > _LARGEST_PEAK_BYTES:
                return

    def _rehearsed_row(self, batch: int) -> PlannedBatch:
        rehearsals = list(self._rehearsals(batch))
        low, peak, high = _expected(rehearsals)
        return PlannedBatch(batch, low, peak, high, kinds=_kinds(rehearsals[0].fullest(), peak))

    def _largest(self, limit_bytes: int) -> int:
        """Search for the largest batch that fits: by its peak, and rehearsed under the limit."""
        fitting, too_large = 0, 1
        while too_large <= 1 << _DOUBLINGS and self._fits(too_large, limit_bytes):
            fitting, too_large = too_large, 2 * too_large
        while too_large - fitting > 1:
            middle = (fitting + too_large) // 2
            if self._fits(middle, limit_bytes):
                fitting = middle
            else:
                too_large = middle
        return fitting

    def _fits(self, batch: int, limit_bytes: int) -> bool:
        """Say whether it fits with room to spare, and finds its large blocks in what there is."""
        _, peak, high = _expected(list(self._rehearsals(batch)))
        if high > limit_bytes:
            return False
        device = Device(limit_bytes - round(_RESERVE * peak), grows=self._grows)
        try:
            Rehearsal(self._scripts, self._scripts.runs(batch)[0], batch, device)
        except RanOutError:
            return False
        return True


def _affordable(scripts: Scripts) -> Scripts:
    """Leave steps out where each has very many allocations."""
    affordable = _RUN_EVENTS - len(scripts.first.events)
    longest = max(len(step.events) for steps in scripts.others.values() for step in steps)
    most = max(affordable // longest, _FEWEST_STEPS)
    return replace(scripts, others={size: steps[:most] for size, steps in scripts.others.items()})


def _fineness(scripts: Scripts) -> int:
    """Choose how many rows there are to a doubling, as a power of two."""
    events = sum(len(script.events) for run in scripts.runs(1) for script in run)
    affordable = _ROWS_EVENTS // (_DOUBLINGS * events)
    return min(max(affordable, 1).bit_length() - 1, _FINEST)


def _batches(fineness: int) -> Iterator[int]:
    """Yield sizes that people choose: all small ones, and then round ones, as computers count."""
    yield from range(1, 1 << fineness)
    for doubling in range(_DOUBLINGS - fineness + 1):
        yield from (size << doubling for size in range(1 << fineness, 2 << fineness))


def _expected(rehearsals: list[Rehearsal]) -> tuple[int, int, int]:
    """Tell low, peak and high; the peak is likely even of the less demanding of the runs.

    Small steps race in ways of their own, some of which take more, and seldom less.
    """
    nearest, runs = rehearsals[0], [rehearsal.peaks for rehearsal in rehearsals]
    lowest = min(_of_a_run(peaks, _LEAST) for peaks in runs)
    peak = min(_of_a_run(peaks, _EVEN) for peaks in runs)
    highest, spread_bytes = max(nearest.peaks), max(nearest.peaks) - min(nearest.peaks)
    added_bytes = peak - nearest.settled_bytes
    beside_bytes = round(_BESIDE * added_bytes + _OF_SPREAD * spread_bytes) + _BESIDE_BYTES
    return max(lowest - beside_bytes, 0), peak, highest + beside_bytes


def _of_a_run(peaks: list[int], likely: float) -> int:
    """Give what a run stays below, so likely: the first step, and a few of the others, any ones."""
    first, *others = peaks
    steps = min(_RUN_STEPS - 1, len(others))
    runs = comb(len(others), steps)
    below = (
        peak for n, peak in enumerate(sorted(others), start=1) if comb(n, steps) >= likely * runs
    )
    return max(first, next(below, first))


def _forecast(tapes: StepTapes, rows: Rows, fixed_bytes: int) -> Forecast:
    ran = tuple(sorted({step.batch for step in tapes.steps}))
    before, last = rows[-2:]
    sample = max((last.peak_bytes - before.peak_bytes) // (last.batch - before.batch), 0)
    return Forecast(
        title=tapes.title,
        task=tapes.task,
        device=tapes.device,
        rows=tuple(rows),
        ran=ran,
        fixed_bytes=fixed_bytes,
        sample_bytes=sample,
        how=_how(tapes, ran),
        notes=tapes.notes,
    )


def _how(tapes: StepTapes, ran: tuple[int, ...]) -> str:
    sizes = " and ".join(filter(None, (", ".join(map(str, ran[:-1])), str(ran[-1]))))
    return (
        f"From every allocation of {len(tapes.steps)} real steps at batch {sizes}, each scaled to "
        "the batch, and TensorFlow's allocator replayed."
    )


def _check_batch(batch: int) -> None:
    if batch < 1:
        raise PlanError(f"A batch has at least one sample; {batch} was asked for.")


def _holdings(fullest: Fullest) -> Iterator[Holding]:
    """Sum up the chunks by layer, op and kind; what was not asked for is the rounding."""
    asked: dict[tuple[HoldingKind, str, str], list[int]] = defaultdict(list)
    for held in fullest.held:
        role = held.allocation.role
        asked[role.kind, role.layer, held.allocation.op].append(held.bytes)
    for (kind, layer, op), sizes in asked.items():
        yield Holding(kind, sum(sizes), layer, op, count=len(sizes))
    rounding = fullest.total_bytes - sum(held.bytes for held in fullest.held)
    if rounding:
        yield Holding("rounding", rounding)


def _kinds(fullest: Fullest, total_bytes: int) -> Mapping[HoldingKind, int]:
    """Sum up by kind, stretched to a peak that other runs reach; adds up to it."""
    by_kind: dict[HoldingKind, int] = defaultdict(int)
    for holding in _holdings(fullest):
        by_kind[holding.kind] += holding.bytes
    stretch = total_bytes / fullest.total_bytes
    kinds = {kind: int(size * stretch) for kind, size in by_kind.items()}
    kinds["rounding"] = kinds.get("rounding", 0) + total_bytes - sum(kinds.values())
    return kinds
