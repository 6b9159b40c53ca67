"""Which batch fits, and what a step takes: by the plan, or by what the first step had."""

from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.training import slot_bytes
from oommagic.report import Holding, HoldingKind, PlannedBatch, Saving

_STEP_OVER_SO_FAR = (1.0, 2.0)
"""What a step may take at its fullest, by what it had when its first run ran out: it had all of the
activations at the worst, and then their gradients were still to come."""
_LASTING: tuple[HoldingKind, ...] = ("weights", "variables", "optimizer slots")
_DATA: tuple[HoldingKind, ...] = ("data", "tensors")
_EVEN = 8
"""Sizes from twice this on are rounded down to a multiple of it."""


def batch_to_try(here: Situation) -> int | None:
    """Give the largest batch that is expected to fit; 0 if none is, None if nothing tells.

    By the plan. Where the first step of all ran out there is none: then by what it had so far.
    """
    if here.batch_that_fits is not None or not here.batch:
        return here.batch_that_fits
    each = _bytes_of_a_sample(here)
    if here.device_limit_bytes is None or not each or here.place != here.device:
        return None
    most = int((here.device_limit_bytes - _fixed_bytes(here)) / (each * _STEP_OVER_SO_FAR[1]))
    rounded = most - most % _EVEN if most >= 2 * _EVEN else most
    return max(0, min(rounded, here.batch))


def step_at(here: Situation, batch: int) -> PlannedBatch | None:
    """Say what a step of that size is expected to take, by the plan or by what the step had."""
    plan, each = here.planned(batch), _bytes_of_a_sample(here)
    if plan is not None or not each:
        return plan
    low, high = (int(_fixed_bytes(here) + batch * each * factor) for factor in _STEP_OVER_SO_FAR)
    return PlannedBatch(batch, low, (low + high) // 2, high, {})


def is_guess(here: Situation) -> bool:
    """Say whether what a step takes in all is guessed from one that ran out on its way forward."""
    is_known = here.has_all_activations or here.planned(here.batch or 0) is not None
    return here.ran_out and here.place == here.device and not is_known


def is_planned(here: Situation, *steps: PlannedBatch) -> bool:
    """Say whether the plan tells of these steps; else they are guessed from one that ran out."""
    return all(here.planned(step.batch) is not None for step in steps)


def saving_between(place: str, now: PlannedBatch, then: PlannedBatch) -> Saving:
    """Say how much lower the peak of one size is than that of another."""
    less = now.peak_bytes - then.peak_bytes
    spread = (then.high_bytes - then.low_bytes + now.high_bytes - now.low_bytes) // 2
    return Saving(place, max(0, less - spread), less, less + spread)


def _fixed_bytes(here: Situation) -> int:
    """Say what a step needs whatever its batch: what lasts, slots to come, gradients of weights."""
    slots = sum(slot_bytes(model) for _, model in here.models())
    # What was asked for may be such a slot.
    to_come = max(0, slots - here.held("optimizer slots"), _asked_for_weights(here))
    gradients = max((model.trainable_bytes for _, model in here.models()), default=0)
    return _lasting_bytes(here) + to_come + max(gradients, _as_large_as_weights(here))


def _bytes_of_a_sample(here: Situation) -> float:
    """Share what a step had when it ran out among its samples; 0 where that is not known."""
    of_weights = _as_large_as_weights(here) + _asked_for_weights(here)
    grown = here.device_needs_bytes - _lasting_bytes(here) - of_weights
    return max(0, grown) / here.batch if here.batch and here.ran_out else 0.0


def _as_large_as_weights(here: Situation) -> int:
    """Add up what passes and has the shape of a weight: its gradient, and what updates it.

    With it goes the rounding of its layers: whose of them it is is not known.
    """
    weights = here.shapes(*_LASTING)
    passing = [one for one in here.holdings if _updates(one, here) and one.shape in weights]
    makers = {one.layer for one in passing if one.layer}
    rounding = (one for one in here.holdings if one.kind == "rounding" and not one.owner)
    beside = sum(one.bytes for one in rounding if one.layer in makers)
    return sum(one.bytes for one in passing) + beside


def _updates(one: Holding, here: Situation) -> bool:
    """Say whether it may be a gradient or work on one: activations have such shapes by chance."""
    return one.kind != "activations" and not _lasts(one, here)


def _asked_for_weights(here: Situation) -> int:
    """Give what was asked for when it ran out, if that has the shape of a weight."""
    return here.asked_bytes if here.asked_shape in here.shapes(*_LASTING) else 0


def _lasting_bytes(here: Situation) -> int:
    """Add up what was there for longer than a step: weights, slots, data as a whole."""
    held = sum(one.bytes for one in here.holdings if _lasts(one, here))
    return max(held, here.device_before_bytes)


def _lasts(one: Holding, here: Situation) -> bool:
    is_owned_rounding = one.kind == "rounding" and bool(one.owner)
    return one.kind in _LASTING or is_owned_rounding or _is_whole_data(one, here)


def _is_whole_data(one: Holding, here: Situation) -> bool:
    """Say whether it is a data set, or a copy of an array, rather than one batch."""
    is_larger = bool(one.shape) and (one.shape or (0,))[0] > (here.batch or 0)
    return one.kind in _DATA and (bool(one.owner) or is_larger)
