"""A forecast in words: the batch that fits, a table of sizes, and where the figures come from.

Text, HTML and the widget say the same because all say what stands here.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from oommagic.forecasts import (
    Fit,
    Limit,
    Rows,
    fit_of,
    largest,
    planned,
    rows_of,
    trial_of,
)
from oommagic.report import BatchTrial, Forecast, HoldingKind, PlannedBatch
from oommagic.show.characters import cut, label, visible
from oommagic.show.facts import Fact
from oommagic.show.holdings import Part, kind_parts
from oommagic.units import format_bytes, format_range, format_seconds

KINDS: tuple[HoldingKind, ...] = get_args(HoldingKind)
"""In the order in which bars show them, what stays first: no stretch jumps as the batch changes."""

_MOST_SIZES = 10
_MOST_TITLE = 60
_MOST_MESSAGE = 300
_AROUND_IN_EIGHTHS = (2, 4, 6, 8, 10, 12, 16)
_BRIEFLY_IN_EIGHTHS = (4, 8, 12)
BRIEF_TITLE = "Which batch fits?"
_SIZES_WHERE_NONE_FITS = 4
_MOST_RAN_IN_BRIEF = 3

_TASKS = {"training": "Training", "prediction": "Prediction with", "step": "A step of"}
_OUTCOMES = {
    "fits": "fits",
    "ran out": "ran out of memory",
    "failed": "failed for another reason than the device's memory, so nothing is proven",
    "died": "the child process died, so nothing is proven",
    "timed out": "did not end in time, so nothing is proven",
}


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One batch size in the table; fractions are of the longest bar there could be."""

    batch: int
    peak_text: str
    range_text: str
    fit: Fit | None
    said: str
    """Whether it fits, and whether it ran."""
    low: float
    peak: float
    high: float
    is_answer: bool


@dataclass(frozen=True, slots=True)
class PlanView:
    """What a page about a forecast says, in the order in which it says it."""

    headline: str
    is_failure: bool
    title: str
    rows: tuple[SizeRow, ...]
    limit_text: str
    limit: float | None
    """Where the limit stands beside the bars."""
    parts_title: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...]
    facts: tuple[Fact, ...]


def plan_in_brief(forecast: Forecast) -> PlanView | None:
    """Put a forecast into a few words, if it answers which batch fits."""
    rows, limit = rows_of(forecast), own_limit(forecast)
    if limit is None or not rows:
        return None
    answer = largest(rows, limit)
    sizes = [max(answer * eighths // 8, rows[0].batch) for eighths in _BRIEFLY_IN_EIGHTHS]
    return plan_view(forecast, {*sizes, *forecast.ran[:_MOST_RAN_IN_BRIEF]})


def plan_view(forecast: Forecast, sizes: Collection[int] = ()) -> PlanView:
    """Put a forecast into words; without sizes to tell of, they are chosen around the answer."""
    rows, limit = rows_of(forecast), own_limit(forecast)
    chosen = first_choice(rows, limit)
    row = planned(rows, chosen)
    table = _planned(rows, sizes) if sizes else _table(forecast, rows, limit)
    scale = _scale([row.high_bytes for row in table], limit)
    return PlanView(
        headline=_headline(forecast, rows, limit),
        is_failure=limit is not None and largest(rows, limit) == 0,
        title=title_of(forecast),
        rows=tuple(_size_row(row, forecast, limit, scale, chosen) for row in table),
        limit_text="" if limit is None else f"{limit.name} {format_bytes(limit.bytes)}",
        limit=None if limit is None else _share(limit.bytes, scale),
        parts_title="" if row is None else _parts_title(forecast, row),
        parts=() if row is None else _parts(row),
        notes=tuple(map(visible, forecast.notes)),
        facts=tuple(replace(fact, text=visible(fact.text)) for fact in _facts(forecast)),
    )


def own_limit(forecast: Forecast) -> Limit | None:
    """Give the limit that the forecast was made for."""
    if forecast.limit_bytes is None:
        return None
    name = label(forecast.limit_source or forecast.device)
    return Limit(name, forecast.limit_bytes, forecast.max_batch)


def first_choice(rows: Rows, limit: Limit | None) -> int:
    """Choose the batch to begin with: the answer where there is one."""
    answer = 0 if limit is None else largest(rows, limit)
    if planned(rows, answer) is not None or not rows:
        return answer
    return rows[len(rows) // 2].batch if limit is None else rows[0].batch


def title_of(forecast: Forecast) -> str:
    """Say what the forecast is for."""
    what = cut(visible(forecast.title), _MOST_TITLE)
    return f"{_TASKS[forecast.task]} {what} on {label(forecast.device)}"


def reading(
    row: PlannedBatch, limit: Limit | None, ran: Sequence[int], trials: Sequence[BatchTrial] = ()
) -> str:
    """Say what one size takes, whether it fits, and how that is known."""
    if limit is None:
        return f"Batch {row.batch} takes {_figures(row)}. {_origin(row.batch, ran)}"
    fit = fit_of(row, limit, trials)
    sentence = _sentence(row, limit, fit)
    trial = trial_of(row.batch, limit, trials)
    if trial is not None:
        return f"{sentence} Tried {trial_words(trial)}"
    return " ".join(filter(None, (sentence, _doubt(row, limit, fit), _origin(row.batch, ran))))


def trial_words(trial: BatchTrial) -> str:
    """Say on what device real steps were tried, and what they showed."""
    parts = [_OUTCOMES[trial.outcome]]
    if trial.peak_bytes is not None:
        parts.append(f"peak {format_bytes(trial.peak_bytes)}")
    if trial.steps > 0:
        steps = "1 real step" if trial.steps == 1 else f"{trial.steps} real steps"
        parts.append(f"{steps} in {format_seconds(trial.elapsed_s)}")
    message = cut(visible(trial.message).strip(), _MOST_MESSAGE)
    device = f"on a device of {format_bytes(trial.limit_bytes)}"
    return f"{device}: {', '.join(parts)}. {message}".strip()


def _range(row: PlannedBatch, to: str = " to ") -> str:
    return format_range(row.low_bytes, row.high_bytes, to)


def _figures(row: PlannedBatch) -> str:
    peak, around = format_bytes(row.peak_bytes), _range(row)
    return peak if around == peak else f"{peak} ({around})"


def _sentence(row: PlannedBatch, limit: Limit, fit: Fit) -> str:
    whole = format_bytes(limit.bytes)
    return f"Batch {row.batch} {fit} {limit.name}: {_figures(row)} of {whole}."


def _doubt(row: PlannedBatch, limit: Limit, fit: Fit) -> str:
    if fit != "may not fit":
        return ""
    if row.high_bytes > limit.bytes:
        return "The limit lies inside the range."
    return "The sum fits, but a large block may find no room in one piece."


def _origin(batch: int, ran: Sequence[int]) -> str:
    return "This size really ran." if batch in ran else "Predicted."


def _headline(forecast: Forecast, rows: Rows, limit: Limit | None) -> str:
    if not rows:
        return f"Nothing was predicted for {cut(visible(forecast.title), _MOST_TITLE)}."
    if limit is None:
        return f"No limit is known for {label(forecast.device)}: {_ends(rows)}."
    answer = largest(rows, limit)
    return _answer(forecast, rows, limit, answer) if answer else _no_batch(forecast, rows, limit)


def _ends(rows: Rows) -> str:
    """Say the peak of the smallest and of the largest batch, which may be the same."""
    ends = dict.fromkeys(row.batch for row in (rows[0], rows[-1]))
    figures = (planned(rows, batch) for batch in ends)
    return "; ".join(f"batch {row.batch} takes {_figures(row)}" for row in figures if row)


def _answer(forecast: Forecast, rows: Rows, limit: Limit, answer: int) -> str:
    row = planned(rows, answer)
    if row is None:
        return f"Batch {answer} fits {limit.name} ({format_bytes(limit.bytes)})."
    sentence = _sentence(row, limit, fit_of(row, limit, forecast.trials))
    trial = trial_of(answer, limit, forecast.trials)
    proven = "Real steps fit." if trial is not None and trial.outcome == "fits" else ""
    beyond = "Larger ones were not looked at." if answer == rows[-1].batch else ""
    return " ".join(filter(None, (sentence, proven, beyond)))


def _no_batch(forecast: Forecast, rows: Rows, limit: Limit) -> str:
    smallest, whole = rows[0], format_bytes(limit.bytes)
    weights = smallest.kinds.get("weights", 0)
    if weights > limit.bytes:
        reason = f"the weights alone take {format_bytes(weights)}"
    elif forecast.fixed_bytes > limit.bytes:
        reason = f"what stays from step to step takes {format_bytes(forecast.fixed_bytes)}"
    else:
        reason = f"batch {smallest.batch} takes {_figures(smallest)}"
    return f"No batch fits {limit.name} ({whole}): {reason}."


def _table(forecast: Forecast, rows: Rows, limit: Limit | None) -> list[PlannedBatch]:
    answer = None if limit is None else largest(rows, limit)
    tried = (trial.batch for trial in forecast.trials[:_MOST_SIZES])
    return _planned(rows, {*_sizes(rows, answer), *tried})


def _planned(rows: Rows, sizes: Collection[int]) -> list[PlannedBatch]:
    return [row for batch in sorted(sizes) if (row := planned(rows, batch)) is not None]


def _sizes(rows: Rows, answer: int | None) -> Sequence[int]:
    """Choose sizes around the answer; without one, from the smallest on, each twice the last."""
    if not rows:
        return ()
    first, last = rows[0].batch, rows[-1].batch
    if answer:
        return (first, *(answer * eighths // 8 for eighths in _AROUND_IN_EIGHTHS))
    doublings = [first << power for power in range((last // first).bit_length())]
    if answer == 0:
        return doublings[:_SIZES_WHERE_NONE_FITS]
    stride = -(-len(doublings) // (_MOST_SIZES - 1))
    return (*doublings[::stride], last)


def _scale(highs: Sequence[int], limit: Limit | None) -> int:
    return max(1, *highs, 0 if limit is None else limit.bytes)


def _share(size: int, scale: int) -> float:
    return min(1.0, max(0.0, size / scale))


def _size_row(
    row: PlannedBatch, forecast: Forecast, limit: Limit | None, scale: int, chosen: int
) -> SizeRow:
    fit = None if limit is None else fit_of(row, limit, forecast.trials)
    how = ""
    if limit is not None and trial_of(row.batch, limit, forecast.trials):
        how = "tried"
    elif row.batch in forecast.ran:
        how = "really ran"
    return SizeRow(
        batch=row.batch,
        peak_text=format_bytes(row.peak_bytes),
        range_text=_range(row, "–"),
        fit=fit,
        said=", ".join(filter(None, (fit, how))),
        low=_share(row.low_bytes, scale),
        peak=_share(row.peak_bytes, scale),
        high=_share(row.high_bytes, scale),
        is_answer=limit is not None and row.batch == chosen and fit == "fits",
    )


def _parts_title(forecast: Forecast, row: PlannedBatch) -> str:
    size = format_bytes(row.peak_bytes)
    return f"What fills {label(forecast.device)} at batch {row.batch}: {size}"


def _parts(row: PlannedBatch) -> tuple[Part, ...]:
    return tuple(sorted(kind_parts(row.kinds), key=lambda part: KINDS.index(part.kind)))


def _facts(forecast: Forecast) -> Iterator[Fact]:
    fixed, sample = format_bytes(forecast.fixed_bytes), format_bytes(forecast.sample_bytes)
    words = f"{fixed} stay from step to step; each further sample adds about {sample}."
    yield Fact("Takes", words)
    took = f"It took {format_seconds(forecast.elapsed_s)}."
    yield Fact("Predicted", f"{forecast.how} {took}".lstrip())
    if forecast.ran:
        yield Fact("Really ran", _ran_words(forecast.ran))
    for trial in forecast.trials[:_MOST_SIZES]:
        yield Fact("Tried", f"batch {trial.batch} {trial_words(trial)}")


def _ran_words(ran: Sequence[int]) -> str:
    sizes = [str(batch) for batch in sorted(set(ran))]
    if len(sizes) == 1:
        return f"batch {sizes[0]}; what other sizes take is predicted from it."
    listed = f"{', '.join(sizes[:-1])} and {sizes[-1]}"
    return f"batches {listed}; what other sizes take is predicted from them."
