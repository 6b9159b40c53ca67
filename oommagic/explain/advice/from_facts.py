"""From all that is known of a run to what rules ask for."""

from collections.abc import Mapping
from dataclasses import replace

from oommagic.explain.account import Account, account_of
from oommagic.explain.advice.batches import batch_sizes
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.facts import Facts, SetLimit
from oommagic.explain.growth import growths
from oommagic.recording import Named
from oommagic.report import HOST, Composition, Failure, Forecast, Verdict

_GRADIENTS = "gradient_tape/"
"""Stands in the names of ops that go back through a step."""
_OF_NOTE = 0.005
"""Of what was held: less may be shapes and constants, which are worked out beforehand."""


def situation_of(  # noqa: PLR0913, PLR0917 (each is a source of its own)
    cell: TypedCell,
    facts: Facts,
    verdict: Verdict | None,
    forecast: Forecast | None,
    names: Mapping[str, Named],
    outputs: Mapping[str, int],
) -> Situation:
    """Sum up a run, as far as it is known."""
    grown = growths(facts)
    here = Situation(
        cause=verdict.cause if verdict is not None and facts.failure is not None else "none",
        place=facts.place,
        line_number=facts.line_number,
        device=_device(facts, forecast),
        lines=facts.lines(),
        forecast=forecast,
        batch=_batch(facts, forecast),
        growths=grown,
        traces={each.name: each.traces for each in facts.traced},
        names=names,
        names_in_functions=facts.names_in_functions,
        outputs=outputs,
    )
    needed_bytes = _needed_bytes(account_of(facts, grown))
    here = _with_device(here, facts, needed_bytes)
    here = _with_host(here, facts, needed_bytes)
    here = _with_limit_set(here, facts)
    return here if here.batch else replace(here, batch=_only_size(cell, here))


def _needed_bytes(account: Account) -> int:
    """Say what the place that ran out would have had to have at the least; 0 where none did."""
    return (account.in_use or 0) + (account.asked or 0)


def _with_device(here: Situation, facts: Facts, needed_bytes: int) -> Situation:
    """Add what the device that trains has shown."""
    figures, gpu = facts.device(here.device), facts.gpu(here.device)
    composition = facts.composition(here.device)
    failure = facts.failure if here.place == here.device else None
    peak_bytes = figures.peak_bytes if figures is not None else 0
    return replace(
        here,
        device_peak_bytes=peak_bytes,
        device_needs_bytes=max(peak_bytes, _device_needs(here, facts, needed_bytes)),
        device_before_bytes=figures.before_bytes if figures is not None else 0,
        device_limit_bytes=figures.limit_bytes if figures is not None else None,
        largest_free_bytes=facts.failure.largest_free_bytes if facts.failure is not None else None,
        asked_bytes=(failure.asked_bytes or 0) if failure is not None else 0,
        asked_shape=failure.shape if failure is not None else None,
        has_all_activations=failure is not None and _went_back(failure, composition),
        holdings=composition.holdings if composition is not None else (),
        device_outputs=_outputs_on(here.device, facts),
        is_on_gpu=here.device.startswith("GPU:"),
        others_bytes=(gpu.used_by_others_bytes or 0) if gpu is not None else 0,
    )


def _went_back(failure: Failure, composition: Composition | None) -> bool:
    """Say whether a step had come to its gradients when it ran out."""
    if _GRADIENTS in failure.op:
        return True
    if composition is None or composition.moment == "recorded":  # of earlier steps
        return False
    gradients = (one.bytes for one in composition.holdings if one.kind == "gradients")
    return sum(gradients) > _OF_NOTE * composition.total_bytes


def _device_needs(here: Situation, facts: Facts, needed_bytes: int) -> int:
    """Say what the device would have had to have; by the plan, too, which knows a whole step."""
    if facts.failure is None or here.place != here.device:
        return 0
    step = here.planned(here.batch) if here.batch else None
    return max(needed_bytes, step.peak_bytes if step is not None else 0)


def _with_host(here: Situation, facts: Facts, needed_bytes: int) -> Situation:
    """Add what the host has shown."""
    host = facts.host
    return replace(
        here,
        host_peak_bytes=host.peak_bytes if host is not None else 0,
        host_needs_bytes=needed_bytes if here.place == HOST else 0,
        host_before_bytes=host.before_bytes if host is not None else 0,
        host_limit_bytes=host.limit_bytes if host is not None else facts.host_limit_bytes,
    )


def _with_limit_set(here: Situation, facts: Facts) -> Situation:
    """Add what holds the place that ran out to less than there is."""
    limit = _limit_set(facts)
    if limit is None:
        return here
    return replace(here, limit_set_by=limit.text, hardware_bytes=limit.hardware_bytes)


def _limit_set(facts: Facts) -> SetLimit | None:
    """Find the limit that someone has set on the place that ran out."""
    device = "" if facts.place == HOST else facts.place
    ours = (each for each in facts.limits if each.device == device)
    return min(ours, key=lambda each: each.bytes, default=None) if facts.place else None


def _device(facts: Facts, forecast: Forecast | None) -> str:
    """Name the device that ran out, or trains, or was the fullest."""
    if facts.place not in {"", HOST}:
        return facts.place
    if forecast is not None:
        return forecast.device
    fullest = max(facts.devices, key=lambda each: each.peak_bytes, default=None)
    return fullest.name if fullest is not None else ""


def _batch(facts: Facts, forecast: Forecast | None) -> int | None:
    if forecast is not None and forecast.ran:
        return max(forecast.ran)
    return facts.clues.batch_size(facts.line_number)


def _only_size(cell: TypedCell, here: Situation) -> int | None:
    """Give the batch size that the cell has by a name of another cell, if it has one alone."""
    sizes = {one.size for one in batch_sizes(cell, here)}
    return sizes.pop() if len(sizes) == 1 else None


def _outputs_on(device: str, facts: Facts) -> dict[str, int]:
    sums: dict[str, int] = {}
    for one in facts.held_after:
        if one.device == device and one.owner.startswith("Out["):
            sums[one.owner] = sums.get(one.owner, 0) + one.bytes
    return sums
