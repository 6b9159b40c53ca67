"""Memory growth, where several processes share a card."""

from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import OTHERS_ON_THE_CARD
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.units import format_bytes


class MemoryGrowth(Rule):
    """Take of a card what is needed, where others want some of it."""

    name = "memory-growth"
    title = "Memory growth on a card that is shared"
    what = (
        "Where another process holds the card's memory, it says how to let the processes share: "
        "`set_memory_growth`, in each of them, before its first tensor. It is a hint: in a kernel "
        "where a cell has run, TensorFlow has opened its devices already, and refuses."
    )
    why = (
        "TensorFlow takes nearly all of a card at once. With memory growth it takes what it needs, "
        "and keeps it. It does not lower what a step needs: where no other process is on the card, "
        "it changes nothing, and costs a little in pieces that do not join."
    )
    example = "import tensorflow as tf"
    instead = (
        "import tensorflow as tf\nfor gpu in tf.config.list_physical_devices('GPU'):\n"
        "    tf.config.experimental.set_memory_growth(gpu, True)"
    )
    safety = "hint"
    fix_safety = "Results stay the same."
    cost = "a restart of each process"
    causes = frozenset({"another process"})
    speaks = (
        Case("model.fit(x, y, batch_size=128)\n", OTHERS_ON_THE_CARD),
        Case("for batch in ds:\n    step(batch)\n", OTHERS_ON_THE_CARD),
    )
    is_silent = (
        Case("model.fit(x, y, batch_size=128)\n", STEP_OF_96),
        Case("tf.config.experimental.set_memory_growth(gpu, True)\n", OTHERS_ON_THE_CARD),
        Case("model.fit(x, y)\n"),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Speak where others hold the card."""
        if here.cause != "another process" or any(cell.calls_of("set_memory_growth")):
            return
        tensorflow = here.module("tensorflow") or "tf"
        yield Found(
            title="Share the card: memory growth in each process",
            message=(
                f"Other processes hold {format_bytes(here.others_bytes)} of {here.place}. End "
                f"them, or restart each with `{tensorflow}.config.experimental.set_memory_growth"
                f"(gpu, True)` for each `gpu` of `{tensorflow}.config.list_physical_devices"
                f"('GPU')` before its first tensor. What this cell needs stays the same: "
                f"{format_bytes(here.device_needs_bytes)}."
            ),
            place=here.place,
        )
