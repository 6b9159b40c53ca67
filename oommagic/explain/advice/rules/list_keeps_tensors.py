"""A list that keeps the tensors of each step on the device."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import LOSSES_GROW, OUTPUTS_GROW
from oommagic.explain.advice.graphs import is_in_graph
from oommagic.explain.advice.nodes import names_in
from oommagic.explain.advice.rule import Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.facts import root_of
from oommagic.explain.growth import Growth
from oommagic.report import HOST, Edit
from oommagic.units import format_bytes

_OF_A_NUMBER = 1024
"""A tensor of one number takes no more than this, with what the allocator adds."""
_LOW, _HIGH = 0.7, 1.5
"""What grew until memory ran out, or a tape ended, may have been seen in part."""
_OTHERS = ("models", "graphs", "buffer")
_PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_SEVERAL = (ast.Tuple, ast.List, ast.Dict, ast.Starred)


class ListKeepsTensors(Rule):
    """Numbers and arrays in a list, instead of tensors."""

    name = "list-keeps-tensors"
    title = "Arrays in the list, not tensors"
    what = (
        "Where a list was seen to grow on the device, it appends the tensor's values instead: "
        "`float(loss)` of a number, `.numpy()` of anything larger."
    )
    why = (
        "A tensor stays on the device for as long as anything refers to it. A list that gets one "
        "in each step fills any device sooner or later; its values are as good, and lie in the "
        "host's memory."
    )
    example = "outs.append(out)"
    instead = "outs.append(out.numpy())"
    safety = "same results"
    fix_safety = (
        "The list holds the same values. What still expects tensors in it takes arrays as well, "
        "but for `.numpy()`: where the cell calls that on them, there is no edit."
    )
    cost = "each step waits for its values"
    causes = frozenset({"growth"})
    is_a_defect = True
    speaks = (
        Case(
            "outs = []\nfor x in ds:\n    outs.append(step(x))  # keep\n",
            OUTPUTS_GROW,
            "outs = []\nfor x in ds:\n    outs.append(step(x).numpy())  # keep\n",
        ),
        Case(
            "losses = {'a': []}\nfor x in ds: losses['a'].append(-step(x)); n += 1\n",
            LOSSES_GROW,
            "losses = {'a': []}\nfor x in ds: losses['a'].append(float(-step(x))); n += 1\n",
        ),
        Case("for x in ds:\n    outs.append((x, step(x)))\n", OUTPUTS_GROW),
        Case("outs += [step(x) for x in ds]\n", OUTPUTS_GROW),
    )
    is_silent = (
        Case("for x in ds:\n    losses.append(step(x))\n", STEP_OF_96),
        Case(
            "@tf.function\ndef step(x):\n    out = model(x)\n    return out\n"
            "for x in ds:\n    step(x)\n",
            STEP_OF_96,
        ),
        Case("for x in ds:\n    names.append(step(x))\n", OUTPUTS_GROW),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the list that grew, and what the cell appends to it."""
        for grown in here.growths:
            owner = grown.owner or _holder(here, grown)
            if owner in cell.names and grown.what not in _OTHERS and grown.place != HOST:
                yield _found(cell, grown, owner)


def _holder(here: Situation, grown: Growth) -> str:
    """Find the name that holds most of what grew."""
    sums: dict[str, int] = {}
    for one in here.holdings:
        if one.kind == "tensors" and one.owner and grown.place == here.device:
            sums[root_of(one.owner)] = sums.get(root_of(one.owner), 0) + one.bytes
    most = max(sums, key=lambda name: sums[name], default="")
    return most if most and sums[most] * 2 >= grown.total_bytes else ""


def _found(cell: TypedCell, grown: Growth, owner: str) -> Found:
    appends = [one for one in cell.calls_of("append") if _list_of(one) == owner]
    edits = [_values(cell, call, grown.rate_bytes) for call in appends]
    can_be_made = bool(edits) and all(edits) and not _asks_for_values(cell, owner)
    return Found(
        title=f"Keep values in `{owner}`, not tensors",
        message=(
            f"`{owner}` keeps tensors on {grown.place}: {format_bytes(grown.rate_bytes)} "
            f"each {grown.per}, {format_bytes(grown.total_bytes)} so far. Their values, by "
            "`.numpy()` or `float()`, lie in the host's memory."
        ),
        place=grown.place,
        saving=expected(grown.place, grown.total_bytes, low=_LOW, high=_HIGH),
        edits=tuple(edit for edit in edits if edit is not None) if can_be_made else (),
        line_number=appends[0].lineno if appends else grown.line_number,
    )


def _list_of(call: ast.Call) -> str:
    """Give the name of what is appended to: `losses` for `losses["train"]`."""
    on = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    while isinstance(on, ast.Subscript | ast.Attribute):
        on = on.value
    return on.id if isinstance(on, ast.Name) else ""


def _values(cell: TypedCell, call: ast.Call, size: int) -> Edit | None:
    """Append the values; None where that is not one tensor, or not now."""
    if len(call.args) != 1 or isinstance(call.args[0], _SEVERAL) or is_in_graph(cell, call):
        return None
    value = call.args[0]
    text = cell.text_of(value)
    if size <= _OF_A_NUMBER:
        return cell.replace(value, f"float({text})")
    return cell.replace(value, f"{text if isinstance(value, _PLAIN) else f'({text})'}.numpy()")


def _asks_for_values(cell: TypedCell, owner: str) -> bool:
    """Say whether the cell calls `.numpy()` on what the list holds."""
    for call in cell.calls_of("numpy"):
        around = [cell.statement(call), *(a for a in cell.around(call) if isinstance(a, ast.For))]
        heads = [one.iter if isinstance(one, ast.For) else one for one in around]
        if any(owner in names_in(head) for head in heads):
            return True
    return False
