"""A limit that someone has set, and that holds a cell back which the hardware would not."""

from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import HELD_TO_LESS
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import HOST
from oommagic.units import format_bytes


class RaisedLimit(Rule):
    """Raise or remove a limit."""

    name = "raised-limit"
    title = "A higher limit"
    what = (
        "Where memory ran out at a limit that someone has set, and the hardware has more: which "
        "limit that is, and what there would be without it."
    )
    why = (
        "`memory_limit` of a logical device, a ulimit or a container's limit make no step smaller. "
        "They only decide where it fails."
    )
    example = (
        "tf.config.set_logical_device_configuration(\n"
        "    gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=2048)])"
    )
    instead = "tf.config.experimental.set_memory_growth(gpu, True)"
    safety = "hint"
    fix_safety = "Results stay the same."
    cost = "a restart, where TensorFlow has opened its devices"
    causes = frozenset({"a limit"})
    speaks = (
        Case("model.fit(x, y, batch_size=128)\n", HELD_TO_LESS),
        Case("step(x)\n", HELD_TO_LESS),
    )
    is_silent = (
        Case("model.fit(x, y, batch_size=128)\n", STEP_OF_96),
        Case("tf.config.LogicalDeviceConfiguration(memory_limit=2048)\n"),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Speak where the verdict blames a limit."""
        limit, hardware = here.limit(here.place), here.hardware_bytes
        if here.cause != "a limit" or not here.limit_set_by or hardware is None or limit is None:
            return
        place = "the host" if here.place == HOST else here.place
        needs = here.peak(here.place)
        at_least = f", and the cell needs at least {format_bytes(needs)}" if needs else ""
        yield Found(
            title=f"Let {place} have more than {format_bytes(limit)}",
            message=(
                f"{here.limit_set_by[0].upper()}{here.limit_set_by[1:]} holds {place} to "
                f"{format_bytes(limit)}; there are {format_bytes(hardware)}{at_least}."
            ),
            place=here.place,
            runs_then=0 < needs <= hardware,
        )
