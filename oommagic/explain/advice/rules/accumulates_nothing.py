"""A loop that means to accumulate gradients, and does not."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.nodes import dotted, keyword, names_in
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.training import only_optimizer, strategies
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit

_ARGUMENT = "gradient_accumulation_steps"
_COUNT = re.compile(r"accum", re.IGNORECASE)
_IN_THE_LOOP = """\
opt = keras.optimizers.Adam()
for a, b in ds:
    with tf.GradientTape() as tape:
        loss = loss_fn(b, model(a))
    grads = tape.gradient(loss, model.trainable_variables)
    grads = [g / accum_steps for g in grads]  # the mean
    opt.apply_gradients(zip(grads, model.trainable_variables))
"""
_CORRECTED = """\
opt = keras.optimizers.Adam(gradient_accumulation_steps=accum_steps)
for a, b in ds:
    with tf.GradientTape() as tape:
        loss = loss_fn(b, model(a))
    grads = tape.gradient(loss, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))
"""


@dataclass(frozen=True, slots=True)
class _Division:
    """`[g / accumulation_steps for g in gradients]`."""

    written: ast.ListComp
    gradients: ast.Name
    count: ast.expr


class AccumulatesNothing(Rule):
    """Gradients that are divided by a number of steps, and applied in each of them."""

    name = "accumulates-nothing"
    title = "An accumulation that accumulates nothing"
    what = (
        "Where a loop divides gradients by a number of accumulation steps and applies them in "
        "every step all the same, it takes the division away and gives the number to the "
        f"optimizer, as its `{_ARGUMENT}`."
    )
    why = (
        "Nothing is kept from one step to the next, so nothing is accumulated: with plain SGD it "
        "is a smaller learning rate, and Adam, which divides by the gradients' size, does the same "
        "as without it. The batch is the small one."
    )
    example = _IN_THE_LOOP
    instead = _CORRECTED
    safety = "changes results"
    fix_safety = (
        "Weights change every so many steps, by the mean of their gradients, rather than in each "
        "step: as with the large batch, which was meant. What is left over at the end of an epoch "
        "counts for the next one's first update, after the last epoch for none."
    )
    cost = "one more copy of the weights"
    causes = STEP
    is_a_defect = True
    speaks = (
        Case(
            _IN_THE_LOOP,
            STEP_OF_96,
            _CORRECTED.replace("    opt.apply", "    # the mean\n    opt.apply"),
        ),
        Case(
            _IN_THE_LOOP.replace(
                "    grads = [g / accum_steps for g in grads]  # the mean\n", ""
            ).replace("zip(grads,", "zip([g / accum_steps for g in grads],"),
            STEP_OF_96,
            _CORRECTED,
        ),
        Case(_IN_THE_LOOP.removeprefix("opt = keras.optimizers.Adam()\n")),
    )
    is_silent = (
        Case(
            _IN_THE_LOOP.replace(
                "    opt.apply", "    if step % accum_steps == 0:\n        opt.apply"
            )
        ),
        Case(_IN_THE_LOOP.replace("g / accum_steps", "g / scale")),
        Case(_IN_THE_LOOP.replace("[g /", "[tf.clip_by_norm(g, 1.0) /")),
        Case(_IN_THE_LOOP.replace("in grads]", "in grads if g is not None]")),
        Case(
            "def apply():\n    grads = [g / accum_steps for g in sums]\n"
            "    opt.apply_gradients(zip(grads, model.trainable_variables))\n"
        ),
        Case(_CORRECTED),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find a loop's `apply_gradients`, and what was done to what it applies."""
        if strategies(cell, here):
            return
        for applied in cell.calls_of("apply_gradients"):
            divided = _divided(cell, applied)
            if divided is not None and not cell.is_conditional(applied):
                yield _nothing(cell, here, applied, divided)


def _nothing(cell: TypedCell, here: Situation, applied: ast.Call, divided: _Division) -> Found:
    count = cell.text_of(divided.count)
    return Found(
        title="Accumulate the gradients that are only divided",
        message=(
            f"Line {divided.written.lineno} divides the gradients by `{count}`, and line "
            f"{applied.lineno} applies them in every step: nothing is accumulated, and the "
            f"batch is the small one. Give the optimizer `{_ARGUMENT}={count}` "
            "instead, and it adds them up and divides them."
        ),
        place=here.device,
        edits=_edits(cell, divided),
        line_number=divided.written.lineno,
    )


def _divided(cell: TypedCell, applied: ast.Call) -> _Division | None:
    """Find `[g / accumulation_steps for g in …]` of one step's gradients, applied in that step."""
    block = cell.block_of(cell.statement(applied))
    names = set(names_in(applied))
    own = {_given(one) for one in block if isinstance(one, ast.Assign) and _is_gradient(one.value)}
    for statement in block:
        if statement is cell.statement(applied) or _given(statement) in names:
            for node in ast.walk(statement):
                division = _division(cell, node)
                if division is not None and division.gradients.id in own:
                    return division
    return None


def _given(statement: ast.stmt) -> str:
    """Give the name that a statement gives a value."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else ""


def _is_gradient(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and dotted(value.func).endswith(".gradient")


def _division(cell: TypedCell, node: ast.AST) -> _Division | None:
    if not isinstance(node, ast.ListComp) or not isinstance(node.elt, ast.BinOp):
        return None
    gradients, count = node.generators[0].iter, node.elt.right
    is_by_steps = _COUNT.search(cell.text_of(count)) is not None
    if is_by_steps and _only_divides(node, node.elt) and isinstance(gradients, ast.Name):
        return _Division(node, gradients, count)
    return None


def _only_divides(each: ast.ListComp, value: ast.BinOp) -> bool:
    """Say whether each gradient is divided, and nothing else is done with it: no clipping."""
    of, target = value.left, each.generators[0].target
    is_itself = isinstance(of, ast.Name) and isinstance(target, ast.Name) and of.id == target.id
    is_of_all = len(each.generators) == 1 and not each.generators[0].ifs
    return isinstance(value.op, ast.Div) and is_itself and is_of_all


def _edits(cell: TypedCell, divided: _Division) -> tuple[Edit, ...]:
    """Let the optimizer of this cell accumulate, and take the division away."""
    written = only_optimizer(cell)
    call = None if written is None else written.call
    if call is None or keyword(call, _ARGUMENT) is not None:
        return ()
    count = _count(cell, call, divided.count)
    accumulating = None if count is None else cell.set_keyword(call, _ARGUMENT, count)
    return () if accumulating is None else (accumulating, _undivided(cell, divided))


def _count(cell: TypedCell, call: ast.Call, divisor: ast.expr) -> str | None:
    """Say the number as one can where the optimizer is made: its name may come later."""
    given = cell.assignments(divisor.id) if isinstance(divisor, ast.Name) else ()
    is_there = all(one in cell.tree.body and one.lineno < call.lineno for one in given)
    if isinstance(divisor, ast.Name) and is_there:
        return divisor.id
    number = cell.number(divisor)
    return None if number is None else str(number)


def _undivided(cell: TypedCell, divided: _Division) -> Edit:
    gradients = cell.text_of(divided.gradients)
    statement = cell.statement(divided.written)
    is_alone = isinstance(statement, ast.Assign) and statement.value is divided.written
    if is_alone and cell.text_of(statement).partition("=")[0].strip() == gradients:
        return cell.remove(statement)
    return cell.replace(divided.written, gradients)
