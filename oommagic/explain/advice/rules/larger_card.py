"""More memory: the smallest known card that would hold the step."""

from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import SOME_CARDS
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.units import GIB, format_bytes


class LargerCard(Rule):
    """A card that holds the step as it is."""

    name = "larger-card"
    title = "A larger card"
    what = (
        "Where a step is too big for the device, it names the smallest card among those that are "
        "known (`%oomdevice`) whose memory is expected to hold it."
    )
    why = (
        "Sometimes the step is what one wants, and the card is too small. Several devices are no "
        "larger device: each holds all weights, gradients and slots, and only the batch is shared "
        "out."
    )
    example = "%oomdevice --like T4"
    instead = "%oomdevice --like A100-40GB"
    safety = "hint"
    fix_safety = "Results stay the same."
    cost = "another machine"
    effort = 4.0
    causes = frozenset({"step too big", "evaluation"})
    speaks = (
        Case("model.fit(x, y, batch_size=128)\n", SOME_CARDS),
        Case("step(x)\n", replace(SOME_CARDS, device_needs_bytes=5 * GIB, forecast=None)),
    )
    is_silent = (
        Case("model.fit(x, y, batch_size=128)\n", STEP_OF_96),
        Case("step(x)\n", replace(SOME_CARDS, device_needs_bytes=50 * GIB, forecast=None)),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the smallest card that would do."""
        planned = here.planned(here.batch) if here.batch else None
        needs = max(here.device_needs_bytes, planned.high_bytes if planned is not None else 0)
        fitting = sorted((size, name) for name, size in here.cards.items() if size >= needs)
        if not here.ran_out or not fitting or here.place != here.device:
            return
        size, name = fitting[0]
        is_known = planned is not None
        words = "takes up to" if is_known else "takes at least"
        yield Found(
            title=f"A card with more memory: {name}",
            message=(
                f"The step {words} {format_bytes(needs)}; of the cards that are known, {name} is "
                f"the smallest with as much: {format_bytes(size)}. Several small ones do not add "
                "up: each holds all the weights."
            ),
            place=here.device,
            runs_then=False,
        )
