"""All that the slider needs of a forecast, as plain values that a notebook can save."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oommagic.devices import Card
from oommagic.forecasts import Limit, rows_of
from oommagic.report import Forecast, HoldingKind, PlannedBatch
from oommagic.show.characters import label
from oommagic.show.holdings import kind_name
from oommagic.show.plan_view import (
    KINDS,
    first_choice,
    own_limit,
    plan_view,
    trial_words,
)


@dataclass(frozen=True, slots=True)
class PlannerState:
    """What the widget is made from."""

    plan: dict[str, object]
    batch: int
    """The size to begin with."""


def planner_state(forecast: Forecast, cards: Sequence[Card] = ()) -> PlannerState:
    """Put a forecast into what `planner.js` reads; cards are other limits to choose from."""
    rows, limits = rows_of(forecast), limits_of(forecast, cards)
    kinds = [kind for kind in KINDS if any(row.kinds.get(kind, 0) > 0 for row in rows)]
    plan: dict[str, object] = {
        "headline": plan_view(forecast).headline,
        "kinds": [{"kind": kind, "name": kind_name(kind)} for kind in kinds],
        "rows": [_row(row, kinds) for row in rows],
        "limits": [_limit(limit) for limit in limits],
        "ran": list(forecast.ran),
        "trials": list(_trials(forecast)),
    }
    return PlannerState(plan, first_choice(rows, own_limit(forecast)))


def limits_of(forecast: Forecast, cards: Sequence[Card]) -> list[Limit]:
    """List what the peak can be held against, the forecast's own limit first."""
    own = own_limit(forecast)
    others = (Limit(label(card.name), card.usable_bytes) for card in cards)
    if own is None:
        return list(others)
    return [own, *(limit for limit in others if limit.name != own.name)]


def _row(row: PlannedBatch, kinds: Sequence[HoldingKind]) -> dict[str, object]:
    return {
        "batch": row.batch,
        "low": row.low_bytes,
        "peak": row.peak_bytes,
        "high": row.high_bytes,
        "kinds": [row.kinds.get(kind, 0) for kind in kinds],
    }


def _limit(limit: Limit) -> dict[str, object]:
    return {"name": limit.name, "bytes": limit.bytes, "max_batch": limit.max_batch}


def _trials(forecast: Forecast) -> Iterator[dict[str, object]]:
    for trial in forecast.trials:
        yield {
            "batch": trial.batch,
            "limit": trial.limit_bytes,
            "outcome": trial.outcome,
            "words": trial_words(trial),
        }
