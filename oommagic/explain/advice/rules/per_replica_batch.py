"""Under tf.distribute the batch is shared out, and the weights are not."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.batches import sizes_that_ran
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import TWO_REPLICAS
from oommagic.explain.advice.nodes import called
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.training import strategies
from oommagic.explain.advice.typed import TypedCell
from oommagic.units import format_bytes

_MIRRORED = {"MirroredStrategy", "MultiWorkerMirroredStrategy"}
_SHARED_OUT = ("experimental_distribute_dataset", "distribute_datasets_from_function")


class PerReplicaBatch(Rule):
    """The batch for each device, and what each of them holds."""

    name = "per-replica-batch"
    title = "The batch of each replica"
    what = (
        "Where a step under `MirroredStrategy` does not fit: what each device gets of the batch, "
        "and what it holds whatever the batch is. In a loop of one's own, whether the batch is "
        "shared out at all."
    )
    why = (
        "`fit` and `experimental_distribute_dataset` share each batch out: of 64, each of two "
        "devices gets 32. Weights, slots and gradients are on every device. So a second device "
        "halves the activations and nothing else, and memory does not add up. `strategy.run` with "
        "a batch of a plain data set gives each device the whole batch, for the same work twice."
    )
    example = "ds = ds.batch(64)"
    instead = "ds = ds.batch(16 * strategy.num_replicas_in_sync)"
    safety = "hint"
    fix_safety = "With another batch, training takes another course."
    cost = "more, smaller steps"
    causes = STEP
    speaks = (
        Case("model.fit(x, y, batch_size=128)  # strategy\nstrategy.extended\n", TWO_REPLICAS),
        Case(
            "s = tf.distribute.MirroredStrategy()\nfor batch in ds.batch(128):\n"
            "    s.run(step, args=(batch,))\n",
            STEP_OF_96,
        ),
    )
    is_silent = (
        Case("model.fit(x, y, batch_size=128)\n", STEP_OF_96),
        Case("strategy = tf.distribute.MirroredStrategy()\nmodel.fit(x, y, batch_size=128)\n"),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Speak where a step under a strategy did not fit, or nearly."""
        if here.batch is None or not strategies(cell, here) & _MIRRORED:
            return
        shared = _is_shared_out(cell)
        sizes = sizes_that_ran(cell, here)
        fixed = here.held("weights", "optimizer slots", "variables")
        yield Found(
            title=f"Share the batch of {here.batch} out"
            if not shared
            else "Batches for each device",
            message=_shared(here.batch, fixed) if shared else _whole(here.batch),
            place=here.device,
            line_number=sizes[0].line_number if sizes else None,
        )


def _shared(batch: int, fixed: int) -> str:
    return (
        f"{batch} is the batch of all devices: each gets its share of it, and each holds all "
        f"{format_bytes(fixed)} of weights and slots. Write it as the size that one device takes "
        "times `strategy.num_replicas_in_sync`."
    )


def _whole(batch: int) -> str:
    return (
        f"`run` gives each device the whole batch of {batch}, for the data set is not shared out: "
        "go over `strategy.experimental_distribute_dataset(…)` of it instead."
    )


def _is_shared_out(cell: TypedCell) -> bool:
    """`fit` shares each batch out; a loop of one's own has to say so."""
    runs = [
        call
        for call in cell.calls_of("run")
        if isinstance(call.func, ast.Attribute) and any(one.arg == "args" for one in call.keywords)
    ]
    names = {called(call) for call in cell.calls}
    return not runs or bool(names & set(_SHARED_OUT))
