"""The peak of a step at any batch size, from steps at a few: the plan.

Each allocation that was recorded is scaled by its own law, and each step is rehearsed on the
replayed allocator. Steps differ, since a model's ops race. The peak of several steps lies between
what most of them come to and what the highest does; how far they lie apart goes into the range.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median

from oommagic.errors import PlanError
from oommagic.explain.rehearsal import Device, Fullest, RanOutError, Rehearsals
from oommagic.explain.scaling import Scripts, scripts_of
from oommagic.forecasts import Limit, Rows, planned
from oommagic.recording import StepTapes
from oommagic.report import BatchTrial, Composition, Forecast, Holding, HoldingKind, PlannedBatch
from oommagic.units import GIB, format_bytes

_MOST_STEPS, _FEWEST_STEPS = 8, 2
_EVENTS_A_ROW = 25_000
"""A row takes about a tenth of a second, and longer only where two steps have more."""

_FINE, _FAIR, _COARSE = 2**0.25, 2**0.5, 2.0
"""From one row's batch to the next: as fine as a second or two allows, and coarse far out."""
_COARSE_FROM = 512
_LARGEST_BATCH = 1 << 20
_LARGEST_PEAK_BYTES = 96 * GIB
"""More than a large card has: rows for more help nobody."""

_BELOW, _ABOVE = 0.03, 0.05
"""How far real peaks lie from rehearsed ones, of what a step adds: see `bench/plan`."""
_RESERVE = 0.02
"""Of the peak: room that a rehearsal under the limit has to leave."""


class Plan:
    """What one step takes of the device, for any batch size."""

    def __init__(self, tapes: StepTapes, limit: Limit | None = None) -> None:
        """Rehearse steps of growing size, and find the largest that fits the limit."""
        self._scripts = scripts_of(tapes)
        self._grows = tapes.is_arena
        self._most = _most_steps(self._scripts)
        self._stride = _FINE if self._most == _MOST_STEPS else _FAIR
        rows = tuple(self._rows())
        fixed_bytes = self._rehearsals(1).settled_bytes
        forecast = _forecast(tapes, rows, fixed_bytes)
        if limit is not None:
            largest = self._largest(rows, limit.bytes)
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
        fullest = self._rehearsals(batch).fullest()
        device, holdings = self.forecast.device, tuple(_holdings(fullest))
        return Composition(device, "peak", fullest.total_bytes, holdings, "plan")

    def max_batch(self, limit_bytes: int | None = None) -> int:
        """Give the largest batch that fits the limit (the device's own by default), or 0."""
        known = self.forecast
        if limit_bytes is not None and limit_bytes != known.limit_bytes:
            return self._largest(known.rows, limit_bytes)
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

    def _rehearsals(self, batch: int, limit_bytes: int | None = None) -> Rehearsals:
        device = Device(grows=self._grows)
        if limit_bytes is not None:
            device = replace(device, limit_bytes=limit_bytes)
        return Rehearsals(self._scripts, batch, device)

    def _rows(self) -> Iterator[PlannedBatch]:
        batch = 1
        while batch <= _LARGEST_BATCH:
            row = self._rehearsed_row(batch)
            yield row
            if row.low_bytes > _LARGEST_PEAK_BYTES:
                return
            stride = self._stride if batch < _COARSE_FROM else _COARSE
            batch = max(batch + 1, round(batch * stride))

    def _rehearsed_row(self, batch: int) -> PlannedBatch:
        rehearsals = self._rehearsals(batch)
        peaks, settled = rehearsals.peaks(self._most), rehearsals.settled_bytes
        lowest, highest = min(peaks), max(peaks)
        peak = round((median(peaks) + highest) / 2)
        return PlannedBatch(
            batch,
            low_bytes=settled + round((lowest - settled) * (1 - _BELOW)),
            peak_bytes=peak,
            high_bytes=settled + round((highest - settled) * (1 + _ABOVE)),
            kinds=_kinds(rehearsals.fullest(), peak),
        )

    def _largest(self, rows: Rows, limit_bytes: int) -> int:
        """Search for the largest batch that fits: by its peak, and rehearsed under the limit."""
        fitting = 0
        too_large = next((row.batch for row in rows if row.low_bytes > limit_bytes), 0)
        too_large = too_large or rows[-1].batch + 1
        while too_large - fitting > 1:
            middle = (fitting + too_large) // 2
            if self._fits(rows, middle, limit_bytes):
                fitting = middle
            else:
                too_large = middle
        return fitting

    def _fits(self, rows: Rows, batch: int, limit_bytes: int) -> bool:
        """Say whether it fits with room to spare, and finds its large blocks in what there is."""
        row = planned(rows, batch)
        if row is None or row.high_bytes > limit_bytes:
            return False
        try:
            rehearsals = self._rehearsals(batch, limit_bytes - round(_RESERVE * row.peak_bytes))
            rehearsals.peaks(self._most)
        except RanOutError:
            return False
        return True


def _most_steps(scripts: Scripts) -> int:
    """Rehearse fewer steps where each has many allocations."""
    longest = max(len(script.events) for script in scripts.steps)
    return min(max(_EVENTS_A_ROW // longest, _FEWEST_STEPS), _MOST_STEPS)


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
