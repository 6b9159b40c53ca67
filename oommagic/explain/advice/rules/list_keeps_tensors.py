"""A list that keeps the tensors of each step on the device."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.arrays import names_given, numpys, reads
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.examples_of_causes import LOSSES_GROW, OUTPUTS_GROW
from oommagic.explain.advice.graphs import is_in_graph
from oommagic.explain.advice.nodes import called, names_in, root_name
from oommagic.explain.advice.rule import Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.facts import root_of
from oommagic.explain.growth import Growth
from oommagic.recording import Named
from oommagic.report import HOST, Edit
from oommagic.units import format_bytes

_LOW, _HIGH = 0.7, 1.5
"""What grew until memory ran out, or a tape ended, may have been seen in part."""
_OTHERS = ("models", "graphs", "buffer")
_TENSORS = ("tensor", "variable")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_SEVERAL = (ast.Tuple, ast.List, ast.Dict, ast.Starred, ast.ListComp, ast.DictComp)
_GIVING_VALUES = frozenset({
    "float", "int", "bool", "str", "len", "numpy", "item", "tolist",
    "predict", "predict_on_batch", "evaluate", "train_on_batch", "test_on_batch",
})  # fmt: skip
_GIVING_SEVERAL = frozenset({
    "gradient", "jacobian", "split", "unstack", "top_k", "moments", "meshgrid", "unique",
})  # fmt: skip
_OF_ONE_NUMBER = replace(
    LOSSES_GROW, names={**LOSSES_GROW.names, "loss": Named("tensor", 4, "float32", ())}
)
_OF_PAIRS = replace(
    OUTPUTS_GROW,
    growths=tuple(replace(one, count_after=800) for one in OUTPUTS_GROW.growths),
    names={**OUTPUTS_GROW.names, "outs": Named("list", count=400)},
)


class ListKeepsTensors(Rule):
    """Numbers and arrays in a list, instead of tensors."""

    name = "list-keeps-tensors"
    title = "Arrays in the list, not tensors"
    what = (
        "Where a list was seen to grow on the device, it appends the tensor's values instead: "
        "`float(loss)` of what is known as one number, `.numpy()` of anything else. Where several "
        "lists grow under one name, the list has another name, too, an item is several tensors or "
        "none, or a gradient may go through the list, it is a hint."
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
            "losses = {'a': []}\nfor x in ds: losses['a'].append((-step(x)).numpy()); n += 1\n",
        ),
        Case(
            "for x in ds:\n    loss = step(x)\n    losses.append(loss)\n",
            _OF_ONE_NUMBER,
            "for x in ds:\n    loss = step(x)\n    losses.append(float(loss))\n",
        ),
        Case(
            "for n, x in enumerate(ds):\n    losses['a'].append(step(x)); losses['n'].append(n)\n",
            LOSSES_GROW,
        ),
        Case("for n, x in enumerate(ds):\n    losses.append(n)\n", LOSSES_GROW),
        Case("for x in ds:\n    losses.append(float(step(x)))\n", LOSSES_GROW),
        Case("for x in ds:\n    outs.append((x, step(x)))\n", OUTPUTS_GROW),
        Case("outs += [step(x) for x in ds]\n", OUTPUTS_GROW),
        Case(
            "def step(x):\n    both = model(x), x\n    return both\n"
            "for x in ds:\n    outs.append(step(x))\n",
            OUTPUTS_GROW,
        ),
        Case(
            "step = lambda x: (model(x), x)\n"
            "for x in ds:\n    out = step(x)\n    outs.append(out)\n",
            OUTPUTS_GROW,
        ),
        Case("for x in ds:\n    outs.append(step(x))\n", _OF_PAIRS),
        Case("for x in ds:\n    outs.append(tape.gradient(loss, weights))\n", OUTPUTS_GROW),
        Case("for x in ds:\n    outs.append(np.mean(step(x)))\n", OUTPUTS_GROW),
        Case(
            "with tf.GradientTape() as tape:\n    for x in ds:\n        outs.append(cell(x))\n"
            "    loss = tf.reduce_mean(tf.stack(outs))\n",
            OUTPUTS_GROW,
        ),
        Case(
            "def loss_of_all(): return tf.add_n(outs)\n"
            "with tf.GradientTape() as tape:\n    for x in ds:\n        outs.append(cell(x))\n"
            "    loss = loss_of_all()\n",
            OUTPUTS_GROW,
        ),
        Case(
            "for x in ds:\n    with tf.GradientTape() as tape:\n        loss = step(x)\n"
            "        outs.append(loss)\nmean = tf.reduce_mean(outs)\n",
            OUTPUTS_GROW,
            "for x in ds:\n    with tf.GradientTape() as tape:\n        loss = step(x)\n"
            "        outs.append(loss.numpy())\nmean = tf.reduce_mean(outs)\n",
        ),
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
                yield _found(cell, here, grown, owner)


def _holder(here: Situation, grown: Growth) -> str:
    """Find the name that holds most of what grew."""
    sums: dict[str, int] = {}
    for one in here.holdings:
        if one.kind == "tensors" and one.owner and grown.place == here.device:
            sums[root_of(one.owner)] = sums.get(root_of(one.owner), 0) + one.bytes
    most = max(sums, key=lambda name: sums[name], default="")
    return most if most and sums[most] * 2 >= grown.total_bytes else ""


def _found(cell: TypedCell, here: Situation, grown: Growth, owner: str) -> Found:
    appends = [one for one in cell.calls_of("append") if root_name(one.func) == owner]
    edits = [_values(cell, here, call) for call in appends]
    is_one_list = len({ast.dump(call.func) for call in appends}) == 1
    are_single = not _holds_several(here, grown, owner)
    is_read_elsewhere = _asks_for_values(cell, owner) or _has_another_name(cell, owner)
    can_be_made = is_one_list and are_single and all(edits) and not is_read_elsewhere
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


def _holds_several(here: Situation, grown: Growth, owner: str) -> bool:
    """Say whether there are more tensors in a list than it has items: each has several."""
    known = here.names.get(owner)
    return known is not None and 0 < known.count < grown.count_after


def _values(cell: TypedCell, here: Situation, call: ast.Call) -> Edit | None:
    """Append the values; None where that is not one tensor, or not now."""
    value = call.args[0] if len(call.args) == 1 else None
    if value is None or _is_no_tensor(cell, here, value) or is_in_graph(cell, call):
        return None
    if _is_recorded(cell, call):
        return None
    text, known = cell.text_of(value), here.known(value)
    if known is not None and known.shape == ():
        return cell.replace(value, f"float({text})")
    return cell.replace(value, f"{text if isinstance(value, _PLAIN) else f'({text})'}.numpy()")


def _is_no_tensor(cell: TypedCell, here: Situation, value: ast.expr) -> bool:
    """Say whether it is several things, or a number of Python's or NumPy's."""
    known = here.known(value)
    if known is not None:
        return known.kind not in _TENSORS
    if isinstance(value, ast.Name) and value.id in cell.counters:
        return True
    return any(_is_plain(here, one) or _is_several(cell, one) for one in _may_be(cell, value))


def _may_be(
    cell: TypedCell, value: ast.expr, within: tuple[ast.expr, ...] = ()
) -> Iterator[ast.expr]:
    """Yield what a value may be, as far as the cell tells: one or the other of `a if b else c`."""
    meant = cell.resolved(value)
    if isinstance(meant, ast.IfExp):
        parts = [meant.body, meant.orelse]
    elif isinstance(meant, ast.BoolOp):
        parts = meant.values
    else:
        parts = [meant.value] if isinstance(meant, ast.Await | ast.NamedExpr) else []
    if not parts:
        yield meant
    elif meant not in within:
        for part in parts:
            yield from _may_be(cell, part, (*within, meant))


def _is_plain(here: Situation, value: ast.expr) -> bool:
    """Say whether it is a value of Python's or NumPy's."""
    known = here.known(value)
    if known is not None and known.kind not in _TENSORS:
        return True
    is_given = isinstance(value, ast.Call) and called(value) in _GIVING_VALUES
    return is_given or isinstance(value, ast.Constant | ast.JoinedStr) or bool(numpys(here, value))


def _is_several(cell: TypedCell, value: ast.expr, within: tuple[ast.AST, ...] = ()) -> bool:
    """Say whether a value is a tuple, a list or the like, as far as the cell tells."""
    if not isinstance(value, ast.Call):
        return isinstance(value, _SEVERAL)
    return called(value) in _GIVING_SEVERAL or any(
        _is_several(cell, one, (*within, function))
        for function, returned in _returned_by(cell, value)
        if function not in within
        for one in _may_be(cell, returned)
    )


def _returned_by(cell: TypedCell, call: ast.Call) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield what a function of the cell may give, and the function."""
    function = cell.resolved(call.func)
    if isinstance(function, ast.Lambda):
        yield function, function.body
    for one in cell.assignments(called(call)):
        if isinstance(one, _FUNCTIONS) and one.name == called(call):
            for node in ast.walk(one):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield one, node.value


def _is_recorded(cell: TypedCell, append: ast.Call) -> bool:
    """Say whether a gradient may go through the list: its tape is open where the list is read."""
    tapes = _tapes_open(cell, append)
    others = (one for one in reads(cell, root_name(append.func)) if append not in cell.around(one))
    return bool(tapes) and any(
        not tapes.isdisjoint(cell.around(one)) or cell.function_of(one) for one in others
    )


def _tapes_open(cell: TypedCell, append: ast.Call) -> set[ast.AST]:
    """Give the tapes that may be open there: in a function, those under which it may be called."""
    function = cell.function_of(append)
    inside = {above for above in cell.around(append) if _opens_tape(above)}
    if function is None or any(function in cell.around(one) for one in inside):
        return inside
    is_called_by_name = _is_called_by_name(cell, function)
    return {
        one
        for one in cell.nodes
        if _opens_tape(one) and not (is_called_by_name and function.name not in _words(cell, one))
    }


def _is_called_by_name(cell: TypedCell, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether a function is called by its own name alone: no method, and given to nobody."""
    above = [(cell.parents[one], one) for one in reads(cell, function.name)]
    is_method = isinstance(cell.parents[function], ast.ClassDef)
    return not is_method and all(
        isinstance(one, ast.Call) and one.func is name for one, name in above
    )


def _words(cell: TypedCell, node: ast.AST) -> set[str]:
    """Give what a piece names, methods too, and what is named where the cell makes those."""
    reached: set[str] = set()
    waiting = [node]
    while waiting:
        inside = list(ast.walk(waiting.pop()))
        words = {one.id for one in inside if isinstance(one, ast.Name)}
        words |= {one.attr for one in inside if isinstance(one, ast.Attribute)}
        waiting += (maker for word in words - reached for maker in cell.makers(word))
        reached |= words
    return reached


def _has_another_name(cell: TypedCell, owner: str) -> bool:
    """Say whether the cell calls the list something else, too: `kept = outs`."""
    made = [one for one in cell.assignments(owner) if isinstance(one, ast.Assign)]
    return any(len(one.targets) > 1 or isinstance(one.value, ast.Name) for one in made) or any(
        _is_named(cell, one) for one in reads(cell, owner)
    )


def _is_named(cell: TypedCell, read: ast.Name) -> bool:
    """Say whether an assignment gives a name to a list, or to one that is an item."""
    value: ast.expr = read
    while isinstance(above := cell.parents[value], ast.Subscript) and value is above.value:
        value = above
    is_in_head = isinstance(cell.parents[value], ast.For | ast.comprehension)
    return bool(names_given(cell, value)) and not is_in_head


def _opens_tape(node: ast.AST) -> bool:
    opened = [one.context_expr for one in node.items] if isinstance(node, ast.With) else []
    return any(isinstance(one, ast.Call) and called(one) == "GradientTape" for one in opened)


def _asks_for_values(cell: TypedCell, owner: str) -> bool:
    """Say whether the cell calls `.numpy()` on what the list holds."""
    for call in cell.calls_of("numpy"):
        around = [cell.statement(call), *(a for a in cell.around(call) if isinstance(a, ast.For))]
        heads = [one.iter if isinstance(one, ast.For) else one for one in around]
        if any(owner in names_in(head) for head in heads):
            return True
    return False
