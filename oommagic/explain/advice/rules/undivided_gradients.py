"""Gradients that are accumulated, and applied without being divided."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.nodes import called, names_in
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.training import strategies
from oommagic.explain.advice.typed import TypedCell

_ARGUMENT = "gradient_accumulation_steps"
_SUMMED = """\
for step, (a, b) in enumerate(ds):
    with tf.GradientTape() as tape:
        loss = loss_fn(b, model(a))
    grads = tape.gradient(loss, model.trainable_variables)
    if total is None:
        total = grads
    else:
        total = [tf.add(g, h) for g, h in zip(total, grads)]
    if (step + 1) % accum_steps == 0:
        opt.apply_gradients(zip(total, model.trainable_variables))
        total = None
"""
_ONE_STEPS = """\
for a, b in ds:
    with tf.GradientTape() as tape:
        loss = loss_fn(b, model(a))
    grads = tape.gradient(loss, model.trainable_variables)
    grads = [{}]
    if not is_nan(loss):
        opt.apply_gradients(zip(grads, model.trainable_variables))
"""
_NOISY_OR_DECAYED = (
    "g + noise for g in grads",
    "g + 1e-4 * w for g, w in zip(grads, model.trainable_variables)",
    "g + d for g, d in zip(grads, decays)",
)
_BY_THE_OPTIMIZER = f"""\
opt = keras.optimizers.SGD({_ARGUMENT}=accum_steps)
for a, b in ds:
    with tf.GradientTape() as tape:
        loss = loss_fn(b, model(a))
    grads = tape.gradient(loss, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))
"""


class UndividedGradients(Rule):
    """A sum of some steps' gradients, applied where their mean is meant."""

    name = "undivided-gradients"
    title = "Accumulated gradients that are not divided"
    what = (
        "Where gradients are summed over some steps and applied without being divided by their "
        f"number, it says so. The optimizer's own `{_ARGUMENT}` divides them."
    )
    why = (
        "Such a sum is so many times the learning rate, and what is left of it at the end of an "
        "epoch, where it is set back, is lost."
    )
    example = _SUMMED
    instead = _BY_THE_OPTIMIZER
    safety = "hint"
    fix_safety = (
        "Weights change by the mean of the gradients rather than by their sum: with plain SGD so "
        "many times less, while Adam, which divides by the gradients' size, does the same. What "
        "is left over at the end of an epoch counts for the next one's first update."
    )
    cost = ""
    causes = STEP
    is_a_defect = True
    speaks = (Case(_SUMMED),)
    is_silent = (
        Case(_SUMMED.replace("s(zip(total,", "s(zip([g / accum_steps for g in total],")),
        Case(_SUMMED.replace("loss_fn(b, model(a))", "loss_fn(b, model(a)) / accum_steps")),
        Case(_BY_THE_OPTIMIZER),
        Case(
            "total = [tf.add(g, h) for g, h in zip(of_images, of_texts)]\n"
            "opt.apply_gradients(zip(total, model.trainable_variables))\n"
        ),
        *(Case(_ONE_STEPS.format(value)) for value in _NOISY_OR_DECAYED),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find an `apply_gradients` that only some steps come to, and a sum that it applies."""
        if strategies(cell, here):
            return
        for applied in cell.calls_of("apply_gradients"):
            if cell.is_conditional(applied) and _sums(cell, applied):
                yield _found(here, applied)


def _found(here: Situation, applied: ast.Call) -> Found:
    return Found(
        title="Divide the accumulated gradients by their number",
        message=(
            f"Line {applied.lineno} applies a sum of gradients, not their mean: with SGD that "
            "is the learning rate times the number of steps. What is left over when the loop "
            f"ends is never applied. The optimizer's own `{_ARGUMENT}` divides, and keeps the "
            "rest for the next epoch."
        ),
        place=here.device,
        line_number=applied.lineno,
    )


def _sums(cell: TypedCell, applied: ast.Call) -> bool:
    """Say whether what is applied was added up in a list, and nothing is divided for it."""
    added = any(_is_summed(cell, name) for name in set(names_in(applied)))
    divides = any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) for node in cell.nodes
    )
    return added and not divides and "reduce_sum" not in cell.text


def _is_summed(cell: TypedCell, name: str) -> bool:
    """Say whether each step's gradients are added to a name: else it has one step's alone."""
    values = [one.value for one in cell.assignments(name) if isinstance(one, ast.Assign)]
    if any(isinstance(value, ast.Call) and called(value) == "gradient" for value in values):
        return False
    return any(isinstance(value, ast.ListComp) and _adds_to(value, name) for value in values)


def _adds_to(value: ast.ListComp, name: str) -> bool:
    """Say whether it is `[a + b for a, b in zip(name, …)]`."""
    over = value.generators[0]
    is_zip = isinstance(over.iter, ast.Call) and called(over.iter) == "zip"
    added = _added(value.elt)
    pair = over.target.elts if isinstance(over.target, ast.Tuple) else []
    are_both = {*map(ast.unparse, added)} == {*map(ast.unparse, pair)}
    return is_zip and are_both and name in names_in(over.iter)


def _added(value: ast.expr) -> list[ast.expr]:
    """Give what is added: `a` and `b` of `a + b`, `tf.add(a, b)`."""
    if isinstance(value, ast.Call) and called(value) == "add":
        return value.args
    is_sum = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
    return [value.left, value.right] if is_sum else []  # type: ignore[attr-defined]  # just seen
