"""What IPython keeps of what earlier cells gave."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from oommagic.explain.advice.examples import HOST_RAN_OUT, STEP_OF_96
from oommagic.explain.advice.examples_of_causes import LEFT_IN_OUT
from oommagic.explain.advice.rule import HOST_CAUSES, STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import HOST, Saving
from oommagic.units import MIB, format_bytes

_NAMED_AT_MOST = 3
_LAST_KEPT = 3


class OutputsKept(Rule):
    """`%reset -f out` gives back what `Out` holds."""

    name = "outputs-kept"
    title = "What Out keeps"
    what = (
        "Where IPython keeps large arrays or tensors as the values of earlier cells: how to let "
        "go of them, and how not to keep them."
    )
    why = (
        "The value of a cell's last line stays in `Out`, in `_3` and in `_` for as long as the "
        "kernel lives, with no name of yours. `%reset -f out` lets go of all but the last three, "
        "which IPython keeps as `_`, `__` and `___`: show three small values before. On IPython 7, "
        "which Colab has, `_3` stays even then; `%xdel _3` lets go of that value on any version. "
        "`Out.clear()` lets go of nothing: `_3` and `_` stay. A `;` at the end of the line keeps "
        "the value out of `Out`, and so does giving it a name."
    )
    example = "model.predict(x)"
    instead = "predictions = model.predict(x)"
    safety = "hint"
    fix_safety = "Earlier cells' values can't be reached by `Out` any more."
    cost = ""
    causes = STEP | HOST_CAUSES | {"left behind", "growth"}
    speaks = (
        Case("model.fit(x, y)\n", LEFT_IN_OUT),
        Case("z = x * 2\n", replace(HOST_RAN_OUT, outputs={"Out[7]": 800 * MIB})),
    )
    is_silent = (
        Case("model.fit(x, y)\n", STEP_OF_96),
        Case("z = x * 2\n", replace(HOST_RAN_OUT, outputs={"Out[7]": MIB // 2})),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Speak where outputs hold much of a place that is short."""
        for place, held in ((here.device, here.device_outputs), (HOST, here.outputs)):
            size = sum(held.values())
            sure = size - sum(sorted(held.values())[-_LAST_KEPT:])
            if place and here.is_worth(size, place):
                yield Found(
                    title=f"Let go of {format_bytes(size)} in `Out`: `%reset -f out`",
                    message=(
                        f"IPython keeps {_largest(held)} of what earlier cells gave. `%reset -f "
                        "out` in a cell of its own lets go of all but the last three values. A `;` "
                        "at the end of a cell's last line keeps its value out of `Out`."
                    ),
                    place=place,
                    saving=Saving(place, sure, size, int(1.1 * size)),
                )


def _largest(held: Mapping[str, int]) -> str:
    by_size = sorted(held.items(), key=lambda item: -item[1])
    named = [f"`{name}` ({format_bytes(size)})" for name, size in by_size[:_NAMED_AT_MOST]]
    return ", ".join(named) + (" and more" if len(by_size) > _NAMED_AT_MOST else "")
