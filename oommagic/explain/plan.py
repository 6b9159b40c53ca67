"""The peak of a step at any batch size, from steps at a few: the plan.

Each allocation that was recorded is scaled by its own law, and the whole run is rehearsed on the
replayed allocator. Steps differ, since a model's ops race. What is told is the highest of a few
steps in a row; how far the steps lie apart makes the range.

What fits a device is rehearsed on one of that size. There ops wait for each other's memory, and
take less than they would take elsewhere: up to the largest batch that fits, the plan for a device
tells what they take on it.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from math import ceil, log2
from statistics import median

from oommagic.errors import PlanError
from oommagic.explain.compiled_piece import CompiledPiece, Owner
from oommagic.explain.fitting import FitOfOnePiece, FitOfRacing, Room, size_to_tell
from oommagic.explain.orders import Orders
from oommagic.explain.rehearsal import Device, Fullest, RanOutError, Rehearsal
from oommagic.explain.scaling import Scripts, at_edge, scripts_of
from oommagic.forecasts import Limit, Rows, fitting_rows, planned
from oommagic.recording import CompiledSize, StepTapes
from oommagic.report import BatchTrial, Composition, Forecast, Holding, HoldingKind, PlannedBatch
from oommagic.units import GIB, MIB, format_bytes

_RUN_STEPS = 5
"""What is told is the peak of so many steps in a row: the highest of them."""
_EVEN = 0.5
"""How likely such a run stays below the peak that is told."""
_BELOW, _ABOVE = 0.03, 0.02
_MORE_BELOW, _MORE_ABOVE = 0.1, 0.3
_BESIDE_BYTES, _EACH_EVENT_BYTES = MIB // 4, 400
"""How far real peaks lie beside rehearsed ones, by `bench/plan`: so much of what a step adds, more
below all sizes that ran, where ops are so quick that they come in any order; and what other orders
of small ops make, which is more where there are more of them."""
_OF_SPREAD = 0.5
"""Of what rehearsed runs differ by, for those that were not rehearsed."""
_BESIDE_COMPILED, _OF_ONE_PIECE, _BESIDE_COMPILED_BYTES = 0.01, 0.01, MIB // 2
"""The same for a step that XLA compiled: of what stays in use, and of its peak, since a piece may
be handed out larger than it was asked for."""

_ONE_SIZE, _EACH_DOUBLING = 0.09, 0.04
"""What is added to that where only one size ran: there, and for each doubling away from it."""

_LOW_PEAK_AND_HIGH = 3
"""Rehearsals for one row of a step that XLA compiled."""
_DOUBLINGS = 20
_FINEST = 3
_SPARE = 0.025
"""Of what the limit leaves to steps: room that a rehearsal under it has to leave, beside what small
ops take."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is rehearsed, which is what a plan takes its time for."""

    rows_events: int = 800_000
    """Allocations and frees for all rows, with steps as they ran; so many take about a second."""
    run_events: int = 20_000
    """For one row."""
    fewest_steps: int = 3
    orders: int = 6
    """For one row, so many runs of steps of the nearest size in other orders, and of all sizes."""
    orders_events: int = 1_200_000
    """For all of these: fewer runs where steps have very many."""
    runs: int = 4
    """So many have to fit, each with steps in another order."""
    most_bytes: int = 96 * GIB
    """More than a large card has: rows for more help nobody."""
    precision: float = 0.01
    """How far below the largest batch that fits the one may lie that is told, as a share of it."""


_THOROUGH = Effort()

MoreTold = Callable[[StepTapes, int], Iterable[CompiledSize]]
"""Has XLA tell more of a step that it compiled, near what fits a limit."""


class Plan:
    """What one step takes of the device, for any batch size."""

    def __init__(
        self,
        tapes: StepTapes,
        limit: Limit | None = None,
        effort: Effort = _THOROUGH,
        more_told: MoreTold | None = None,
    ) -> None:
        """Rehearse steps of growing size, and find the largest that fits the limit.

        The tapes of a step that XLA compiled know enough of that limit; `more_told` of others.
        """
        self._effort = effort
        self._scripts = _affordable(scripts_of(tapes), effort)
        self._otherwise = self._scripts.begun_otherwise()
        self._fineness = _fineness(self._scripts, effort)
        self._orders_of_a_row = _orders_of_a_row(self._scripts, effort, self._fineness)
        self._near = self._scripts
        """By what XLA has told since the rows were made, near limits of which it was asked."""
        self._more_told = more_told if self._scripts.compiled_law is not None else None
        self._tapes = tapes if self._more_told is not None else None
        self._asked: set[int] = set()
        self._edges = [at_edge(self._scripts, is_most=is_most) for is_most in (False, True)]
        self._orders = Orders(tapes.needs, tapes.processors)
        self._piece = CompiledPiece(tapes.compiled)
        self._grows = tapes.is_arena
        self._ran = {step.batch for step in tapes.steps}
        self._told = {size.batch for size in tapes.compiled}
        self._small_ops_bytes = _EACH_EVENT_BYTES * _events_of_a_step(tapes)
        self._here, self._tight_here = Device(grows=self._grows), range(0)
        fixed_bytes = self._rehearsed(1, self._scripts).settled_bytes
        rows: Rows = tuple(self._rows())
        if len(self._ran) > 1 and self._scripts.compiled_law is None:
            rows = _unsure_of_quick_ones(rows, min(self._ran), fixed_bytes)
        self.forecast = _forecast(tapes, rows, fixed_bytes)
        if limit is not None:
            self._fit_into(limit)

    def _fit_into(self, limit: Limit) -> None:
        """Find the largest batch that fits, and tell what all up to it take on that device."""
        rows = {row.batch: row for row in self.forecast.rows}
        largest = self._largest(limit.bytes)
        roomy = list(rows)[: fitting_rows(self.forecast.rows, limit.bytes)]
        self._here = Device(limit.bytes, grows=self._grows)
        self._tight_here = range(min(max(roomy, default=0), largest - 1) + 1, largest + 1)
        tight = [batch for batch in rows if batch in self._tight_here]
        rows |= {batch: self._rehearsed_row(batch) for batch in {*tight, largest} if batch}
        self.forecast = replace(
            self.forecast,
            rows=tuple(rows[batch] for batch in sorted(rows)),
            limit_bytes=limit.bytes,
            limit_source=limit.name,
            max_batch=largest,
        )

    def peak_bytes(self, batch: int) -> int:
        """Give the peak that steps of that size are expected to reach."""
        return self._row(batch).peak_bytes

    def range_bytes(self, batch: int) -> tuple[int, int]:
        """Give the two figures between which the peak is expected."""
        row = self._row(batch)
        return row.low_bytes, row.high_bytes

    def composition(self, batch: int) -> Composition:
        """Tell who holds what when a step is at its fullest, by layer and kind."""
        self._row(batch)  # of sizes beyond the plan nothing is told
        fullest = self._rehearsed(batch, self._scripts).fullest()
        device, holdings = self.forecast.device, tuple(self._holdings(fullest, batch))
        return Composition(device, "peak", fullest.total_bytes, holdings, "plan")

    def max_batch(self, limit_bytes: int | None = None) -> int:
        """Give the largest batch that fits the limit (the device's own by default), or 0."""
        known = self.forecast
        if limit_bytes is not None and limit_bytes != known.limit_bytes:
            self._learn_of(limit_bytes)
            return self._largest(limit_bytes)
        if known.max_batch is None:
            raise PlanError(
                "No limit is known for the device of this plan: say one, as in "
                "plan.max_batch(limit_bytes=15 * 10**9)."
            )
        return known.max_batch

    def prove(self, *trials: BatchTrial) -> None:
        """Take up what real steps showed: what ran fits, and what ran out does not."""
        proven = [trial.batch for trial in trials if trial.outcome == "fits"]
        too_large = [trial.batch for trial in trials if trial.outcome == "ran out"]
        expected = min([self.max_batch(), *(batch - 1 for batch in too_large)])
        self.forecast = replace(
            self.forecast, trials=trials, max_batch=max(proven, default=expected)
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

    def _rehearsed(self, batch: int, scripts: Scripts) -> Rehearsal:
        if batch in self._tight_here:
            with suppress(RanOutError):
                return Rehearsal(scripts, batch, self._here, self._orders)
        return Rehearsal(scripts, batch, Device(grows=self._grows))

    def _rows(self) -> Iterator[PlannedBatch]:
        usual = _batches(self._fineness)
        for batch in sorted({*usual, *self._ran, *self._told}):
            row = self._rehearsed_row(batch)
            yield row
            if batch > max(1, *self._ran) and row.low_bytes > self._effort.most_bytes:
                return

    def _rehearsed_row(self, batch: int) -> PlannedBatch:
        rehearsal = self._rehearsed(batch, self._scripts)
        told = self._expected(batch, rehearsal)
        most_bytes = self._here.limit_bytes if batch in self._tight_here else sys.maxsize
        low, peak, high = (min(size, most_bytes) for size in told)
        kinds = _kinds(self._holdings(rehearsal.fullest(), batch), peak)
        return PlannedBatch(batch, low, peak, high, kinds)

    def _holdings(self, fullest: Fullest, batch: int) -> Iterator[Holding]:
        """Sum up by layer, op and kind; what was not asked for is the rounding."""
        asked: dict[Owner, list[int]] = defaultdict(list)
        for owner, size in self._owned(fullest, batch):
            asked[owner].append(size)
        rounding = fullest.total_bytes - sum(map(sum, asked.values()))
        if rounding:
            asked["rounding", "", ""].append(rounding)
        for (kind, layer, op), sizes in asked.items():
            yield Holding(kind, sum(sizes), layer, op, count=len(sizes))

    def _owned(self, fullest: Fullest, batch: int) -> Iterator[tuple[Owner, int]]:
        """Give the chunks with their owners; a compiled step's piece by what lies in it."""
        opened = self._scripts.compiled_law if self._piece.is_known else None
        for held in fullest.held:
            law, role = held.allocation.law, held.allocation.role
            if opened is not None and law is opened:
                yield from self._piece.held_at(batch, held.bytes)
            else:
                yield (role.kind, role.layer, held.allocation.op), held.bytes

    def _expected(self, batch: int, rehearsal: Rehearsal) -> tuple[int, int, int]:
        """Tell low, peak and high."""
        if self._scripts.compiled_law is not None:
            peak, settled_bytes = max(rehearsal.peaks), rehearsal.settled_bytes
            low, high = (max(self._rehearsed(batch, scripts).peaks) for scripts in self._edges)
            beside_bytes = round(_BESIDE_COMPILED * settled_bytes + _OF_ONE_PIECE * peak)
            beside_bytes += _BESIDE_COMPILED_BYTES
            return max(low - beside_bytes, 0), peak, high + beside_bytes
        low, peak, high = self._of_racing_steps(batch, rehearsal)
        less_bytes, more_bytes = self._scripts.doubtful_workspace(batch)
        return max(low - less_bytes, 0), peak, high + more_bytes

    def _unsure(self, batch: int) -> float:
        """Say how unsure it is how things grow: less where several sizes have shown it."""
        if len(self._ran) > 1:
            return 0.0
        return _ONE_SIZE + _EACH_DOUBLING * abs(log2(batch / max(self._ran)))

    def _of_racing_steps(self, batch: int, rehearsal: Rehearsal) -> tuple[int, int, int]:
        """Tell low, peak and high by steps of one size, whose ops race."""
        first, *peaks = rehearsal.peaks
        least = first if self._scripts.is_first_alike(batch) or not peaks else 0
        as_ran = _of_a_run([*peaks, least] if least else peaks, _EVEN)
        begun = rehearsal, self._rehearsed(batch, self._otherwise)
        near = self._in_orders(begun, self._scripts.nearest(batch), least)
        # The order that really came about counts for two.
        peak, reached = int(median([as_ran, as_ran, *near])), [as_ran, *near]
        alike = self._scripts.alike(batch)
        if len(alike.others) > 1:  # else these runs are those of the nearest size
            reached += self._in_orders(begun, alike, least)
        added_bytes = peak - rehearsal.settled_bytes
        beside_bytes = self._beside_bytes(batch, added_bytes, max(reached) - min(reached))
        low = min(reached) - _BELOW * added_bytes - beside_bytes
        high = max(reached) + _ABOVE * added_bytes + beside_bytes
        return max(round(low), 0), peak, round(high)

    def _in_orders(
        self, begun: tuple[Rehearsal, Rehearsal], scripts: Scripts, least: int
    ) -> list[int]:
        """Give the peaks of runs with steps in other orders, none of which is below the least."""
        count = self._orders_of_a_row
        runs = scripts.in_runs(count, _RUN_STEPS - 1) if count else ()
        return [max(self._highest(one, run), least) for one, run in zip(cycle(begun), runs)]

    def _highest(self, rehearsal: Rehearsal, run: Scripts) -> int:
        """Give the peak of a run; one that does not fit takes all that there is."""
        try:
            return rehearsal.highest_with(run)
        except RanOutError:
            return self._here.limit_bytes

    def _beside_bytes(self, batch: int, added_bytes: int, spread_bytes: int) -> float:
        """Tell how far real runs may lie beside all that were rehearsed."""
        unsure_bytes = self._unsure(batch) * added_bytes + _OF_SPREAD * spread_bytes
        return self._small_ops_bytes + _BESIDE_BYTES + unsure_bytes

    def _learn_of(self, limit_bytes: int) -> None:
        """Have XLA tell what it takes to find the largest of that limit, if it was not told yet."""
        tapes, more_told = self._tapes, self._more_told
        if tapes is None or more_told is None or limit_bytes in self._asked:
            return
        self._asked.add(limit_bytes)
        if size_to_tell(tapes, limit_bytes):
            told = {size.batch: size for size in tapes.compiled}
            told |= {size.batch: size for size in more_told(tapes, limit_bytes)}
            self._tapes = replace(tapes, compiled=tuple(told.values()))
            self._near = _affordable(scripts_of(self._tapes), self._effort)

    def _largest(self, limit_bytes: int) -> int:
        room = Room(self._orders, grows=self._grows)
        law = self._near.compiled_law
        if law is not None:
            return FitOfOnePiece(self._near, law, room).largest(limit_bytes)
        every, usual = map(self._in_runs, (self._scripts, self._scripts.of_usual_sizes()))
        first = self._scripts.first.batch
        fit = FitOfRacing(
            lambda batch: usual if batch >= first else every,
            room,
            self._spare_bytes,
            self._effort.precision,
        )
        return fit.largest(limit_bytes, self.forecast.rows)

    def _in_runs(self, scripts: Scripts) -> tuple[Scripts, ...]:
        """Make runs of steps in other orders, of which every other one begins otherwise, too."""
        runs = scripts.in_runs(self._effort.runs, _RUN_STEPS)
        otherwise = scripts.begun_otherwise().in_runs(self._effort.runs, _RUN_STEPS)
        return tuple(pair[n % 2] for n, pair in enumerate(zip(runs, otherwise, strict=True)))

    def _spare_bytes(self, batch: int, limit_bytes: int) -> int:
        """Leave more where ops are many and small: near the limit they wait in ever new orders."""
        spare = _SPARE + self._unsure(batch) / 4
        for_steps_bytes = max(limit_bytes - self.forecast.fixed_bytes, 0)
        return round(spare * for_steps_bytes) + 2 * self._small_ops_bytes


def _affordable(scripts: Scripts, effort: Effort) -> Scripts:
    """Leave steps out where each has very many allocations, or is the same as the others."""
    affordable = effort.run_events - len(scripts.first.events)
    lengths = (len(step.events) for steps in scripts.others.values() for step in steps)
    most = max(affordable // max([1, *lengths]), effort.fewest_steps)
    if scripts.compiled_law is not None:
        most = 1
    return replace(scripts, others={size: steps[:most] for size, steps in scripts.others.items()})


def _fineness(scripts: Scripts, effort: Effort) -> int:
    """Choose how many rows there are to a doubling, as a power of two; -1 is every other one."""
    events = sum(len(script.events) for script in scripts.run(1 << _DOUBLINGS))
    if scripts.compiled_law is not None:
        events *= _LOW_PEAK_AND_HIGH
    affordable = effort.rows_events // (_DOUBLINGS * max(events, 1))
    return min(affordable.bit_length() - 1, _FINEST)


def _orders_of_a_row(scripts: Scripts, effort: Effort, fineness: int) -> int:
    """Choose in how many other orders steps are rehearsed for one row."""
    if scripts.compiled_law is not None or not scripts.others or not effort.orders:
        return 0
    longest = max(len(step.events) for steps in scripts.others.values() for step in steps)
    events = 2 * (_RUN_STEPS - 1) * longest * _DOUBLINGS * 2**fineness
    return min(max(int(effort.orders_events / max(events, 1)), 1), effort.orders)


def _batches(fineness: int) -> Iterator[int]:
    """Yield sizes that people choose: all small ones, and then round ones, as computers count."""
    if fineness < 0:
        yield from (1 << doubling for doubling in range(0, _DOUBLINGS + 1, 2))
        return
    yield from range(1, 1 << fineness)
    for doubling in range(_DOUBLINGS - fineness + 1):
        yield from (size << doubling for size in range(1 << fineness, 2 << fineness))


def _events_of_a_step(tapes: StepTapes) -> int:
    """Count what a step allocates and frees, small pieces too; the first of a size does more."""
    return min(len(step.tape.bytes) for step in tapes.steps)


def _of_a_run(peaks: list[int], likely: float) -> int:
    """Give what a run stays below, so likely, if each of its steps may be any of these."""
    share: float = likely ** (1 / _RUN_STEPS)
    return sorted(peaks)[ceil(share * len(peaks)) - 1]


def _unsure_of_quick_ones(rows: Rows, least_ran: int, fixed_bytes: int) -> Rows:
    """Widen ranges below the sizes that ran, but not above that of the smallest of these."""
    most_bytes = next(row.high_bytes for row in rows if row.batch == least_ran)

    def widened(row: PlannedBatch) -> PlannedBatch:
        added_bytes = max(row.peak_bytes - fixed_bytes, 0)
        low = max(round(row.low_bytes - _MORE_BELOW * added_bytes), 0)
        high = min(round(row.high_bytes + _MORE_ABOVE * added_bytes), most_bytes)
        return replace(row, low_bytes=low, high_bytes=max(row.high_bytes, high))

    return tuple(widened(row) if row.batch < least_ran else row for row in rows)


def _forecast(tapes: StepTapes, rows: Rows, fixed_bytes: int) -> Forecast:
    ran = tuple(sorted({step.batch for step in tapes.steps}))
    last = rows[-1]
    half = next((row for row in reversed(rows) if 2 * row.batch <= last.batch), rows[0])
    added = last.peak_bytes - half.peak_bytes
    sample = max(added // max(last.batch - half.batch, 1), 0)
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
    told = sorted(size.batch for size in tapes.compiled)
    by_xla = f" what XLA asks for at batch {_listed(told)}," if len(told) > 1 else ""
    return (
        f"From every allocation of {len(tapes.steps)} real steps at batch {_listed(ran)}, each "
        f"scaled to the batch,{by_xla} and TensorFlow's allocator replayed."
    )


def _listed(sizes: Sequence[int]) -> str:
    *others, last = map(str, sizes)
    return f"{', '.join(others)} and {last}" if others else last


def _check_batch(batch: int) -> None:
    if batch < 1:
        raise PlanError(f"A batch has at least one sample; {batch} was asked for.")


def _kinds(holdings: Iterable[Holding], total_bytes: int) -> Mapping[HoldingKind, int]:
    """Sum up by kind, stretched to a peak that other runs reach; adds up to it."""
    by_kind: dict[HoldingKind, int] = defaultdict(int)
    for holding in holdings:
        by_kind[holding.kind] += holding.bytes
    stretch = total_bytes / max(sum(by_kind.values()), 1)
    kinds = {kind: int(size * stretch) for kind, size in by_kind.items()}
    kinds["rounding"] = kinds.get("rounding", 0) + total_bytes - sum(kinds.values())
    return kinds
