"""A loop that tries smaller batches, from where training began."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.model_state import ModelState, state_of
from oommagic.explain.advice.nodes import dotted
from oommagic.explain.advice.retries import (
    Retry,
    ends_where_it_fits,
    halves_alone,
    has_room,
    retry_of,
    tries_the_same,
)
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit

_COMPUTING = ("max", "int")
_SAVED = """\
try:
    model.fit(x, y, batch_size=size)
    model.save("a.keras")
except tf.errors.ResourceExhaustedError:
    size = max(8, size // 2)
    model.fit(x, y, batch_size=size)
"""
_SAVED_AFRESH = """\
import gc
if not model.optimizer.built:
    model.optimizer.build(model.trainable_variables)
first_weights = model.get_weights()
first_state = [variable.numpy() for variable in model.optimizer.variables]
while True:
    try:
        model.fit(x, y, batch_size=size)
        model.save("a.keras")
        break
    except tf.errors.ResourceExhaustedError:
        if not 0 < max(8, size // 2) < size:
            raise
        size = max(8, size // 2)
    # Out here the error is gone, and what the failed step held.
    model.make_train_function(force=True)
    model.set_weights(first_weights)
    for variable, value in zip(model.optimizer.variables, first_state):
        variable.assign(value)
    gc.collect()
"""


class BatchSizeFallback(Rule):
    """A retry with half the batch that starts afresh."""

    name = "batch-size-fallback"
    title = "A retry that starts afresh"
    what = (
        "Where a cell catches the error and fits again with half the batch, it makes the retry "
        "right: outside the `except` block, until it fits or the batch is one sample, with a new "
        "step function, and with the weights and the optimizer's state of before."
    )
    why = (
        "Inside the `except` block the error still holds what the failed step had. The failed "
        "step has counted as one, and an epoch that failed midway has trained the model: a retry "
        "goes on from there. And half the batch may not fit either."
    )
    example = (
        "try:\n    model.fit(x, y, batch_size=size)\n"
        "except tf.errors.ResourceExhaustedError:\n    size //= 2\n"
        "    model.fit(x, y, batch_size=size)"
    )
    instead = (
        "weights = model.get_weights()\nwhile True:\n    try:\n"
        "        model.fit(x, y, batch_size=size)\n        break\n"
        "    except tf.errors.ResourceExhaustedError:\n        size //= 2\n"
        "        if size < 1:\n            raise\n"
        "    model.make_train_function(force=True)\n    model.set_weights(weights)"
    )
    safety = "changes results"
    fix_safety = (
        "Training begins at the weights that the model had before the first try, and an optimizer "
        "without the failed steps. The model has to be built before."
    )
    cost = "each failed try takes ten seconds and more"
    effort = 2.0
    causes = STEP | {"growth", "left behind"}
    is_a_defect = True
    speaks = (
        Case(
            "try:\n    model.fit(x, y, batch_size=size)\n"
            "except tf.errors.ResourceExhaustedError:\n    print('smaller')  # say it\n"
            "    size //= 2  # half\n    model.fit(x, y, batch_size=size)\n",
            STEP_OF_96,
            "import gc\n"
            "if not model.optimizer.built:\n"
            "    model.optimizer.build(model.trainable_variables)\n"
            "first_weights = model.get_weights()\n"
            "first_state = [variable.numpy() for variable in model.optimizer.variables]\n"
            "while True:\n"
            "    try:\n        model.fit(x, y, batch_size=size)\n        break\n"
            "    except tf.errors.ResourceExhaustedError:\n        print('smaller')  # say it\n"
            "        size //= 2  # half\n        if size < 1:\n            raise\n"
            "    # Out here the error is gone, and what the failed step held.\n"
            "    model.make_train_function(force=True)\n"
            "    model.set_weights(first_weights)\n"
            "    for variable, value in zip(model.optimizer.variables, first_state):\n"
            "        variable.assign(value)\n"
            "    gc.collect()\n",
        ),
        Case(
            "while True:\n    try:\n        model.fit(x, y, batch_size=size, epochs=1)\n"
            "        break  # it works\n"
            "    except tf.errors.ResourceExhaustedError:\n        size //= 2\n"
            "        if size < 1:\n            raise RuntimeError('none')\n",
            STEP_OF_96,
            "import gc\n"
            "if not model.optimizer.built:\n"
            "    model.optimizer.build(model.trainable_variables)\n"
            "first_weights = model.get_weights()\n"
            "first_state = [variable.numpy() for variable in model.optimizer.variables]\n"
            "while True:\n    try:\n        model.fit(x, y, batch_size=size, epochs=1)\n"
            "        break  # it works\n"
            "    except tf.errors.ResourceExhaustedError:\n        size //= 2\n"
            "        if size < 1:\n            raise RuntimeError('none')\n"
            "    # Out here the error is gone, and what the failed step held.\n"
            "    model.make_train_function(force=True)\n"
            "    model.set_weights(first_weights)\n"
            "    for variable, value in zip(model.optimizer.variables, first_state):\n"
            "        variable.assign(value)\n"
            "    gc.collect()\n",
        ),
        Case(_SAVED, STEP_OF_96, _SAVED_AFRESH),
        Case(
            _SAVED.replace("size // 2)\n", "size // 2)\n    if size < 1: raise\n"),
            STEP_OF_96,
            _SAVED_AFRESH.replace("size // 2)\n  ", "size // 2)\n        if size < 1: raise\n  "),
        ),
        Case(_SAVED.replace("max(8, size // 2)", "smaller(size // 2)"), STEP_OF_96),
        Case(_SAVED + "    model.save('b.keras')\n", STEP_OF_96),
    )
    is_silent = (
        Case("model.fit(x, y, batch_size=size)\n", STEP_OF_96),
        Case(
            "while True:\n    try:\n        model.fit(x, y, batch_size=size)\n        break\n"
            "    except tf.errors.ResourceExhaustedError:\n        size //= 2\n"
        ),
        Case(
            "try:\n    model.fit(x, y, batch_size=size)\n"
            "except tf.errors.ResourceExhaustedError:\n    print('too large')\n",
            STEP_OF_96,
        ),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find a fit that is tried again with half the batch where it ran out."""
        for node in cell.nodes:
            retry = retry_of(cell, node) if isinstance(node, ast.Try) else None
            if retry is not None and _was_tried_again(retry, here) and not _is_afresh(cell):
                yield Found(
                    title=f"Begin afresh with each `{retry.size}`",
                    message=(
                        f"As it is, a retry goes on with what the failed step has left: "
                        f"{_left(retry)}."
                    ),
                    place=here.place or here.device,
                    edits=_edits(cell, here, retry),
                    line_number=retry.attempt.lineno,
                    runs_then=False,
                )


def _was_tried_again(retry: Retry, here: Situation) -> bool:
    """Say whether it ran out at last, or the batch was made smaller on the way."""
    halved = (one.hits for one in here.lines if one.line_number == retry.halving.lineno)
    return here.ran_out or (any(halved) and here.is_short(here.device))


def _is_afresh(cell: TypedCell) -> bool:
    return any(cell.calls_of("set_weights", "load_weights", "restore"))


def _left(retry: Retry) -> str:
    held = "what its error holds in memory, " if retry.again is not None else ""
    once = "; and it is tried once only" if retry.loop is None else ""
    return f"{held}weights, and the optimizer's state{once}"


def _edits(cell: TypedCell, here: Situation, retry: Retry) -> tuple[Edit, ...]:
    """Save what there is before, and put it back behind the handler; nothing in tight places."""
    outer = retry.outer
    first, last = outer.lineno, outer.end_lineno or outer.lineno
    if not has_room(cell, retry) or not ends_where_it_fits(retry) or not tries_the_same(retry):
        return ()
    ends = retry.has_bound and halves_alone(retry)  # with a least size, a bound may never hold
    stop = None if ends else _stop(cell, retry)
    if stop is None and not ends:
        return ()
    kept = state_of(retry.model, cell, here)
    added = cell.add_import("import gc")
    before = cell.insert_before(outer, kept.kept + ("" if retry.loop else "\nwhile True:"))
    if added is not None and added.start == before.start:
        before, added = Edit(before.start, before.end, added.text + before.text), None
    edits = [*([added] if added else []), before]
    inside = list(_inside(cell, retry, stop))
    edits += inside
    if retry.loop is None:
        edits += _further_right(cell, range(first, last + 1), inside)
    return tuple(sorted((*edits, _behind(cell, retry, kept)), key=lambda one: one.start))


def _inside(cell: TypedCell, retry: Retry, stop: Edit | None) -> Iterator[Edit]:
    """End the loop where it fits, and the tries where there is nothing left to halve."""
    deeper = "" if retry.loop else "    "
    if retry.again is not None:
        yield _shifted(cell.insert_after(retry.attempt.body[-1], "break"), deeper)
        yield cell.remove(retry.again)
    if stop is not None:
        yield _shifted(stop, deeper)


def _stop(cell: TypedCell, retry: Retry) -> Edit | None:
    """Raise the error where nothing is left to halve; None where that can't be told.

    `max(8, size // 2)` never comes below 8: it is compared with the size that it is made of.
    """
    if halves_alone(retry):
        return cell.insert_after(retry.halving, f"if {retry.size} < 1:\n    raise")
    halved = retry.halved
    if not isinstance(halved, ast.Call) or dotted(halved.func) not in _COMPUTING:
        return None
    is_smaller = f"0 < {cell.text_of(halved)} < {retry.size}"
    return cell.insert_before(retry.halving, f"if not {is_smaller}:\n    raise")


def _behind(cell: TypedCell, retry: Retry, kept: ModelState) -> Edit:
    code = (
        "# Out here the error is gone, and what the failed step held.\n"
        f"{retry.model}.make_train_function(force=True)\n"
        f"{kept.put_back}\n"
        "gc.collect()"
    )
    return _shifted(cell.insert_after(retry.attempt, code), "" if retry.loop else "    ")


def _further_right(cell: TypedCell, numbers: range, edits: list[Edit]) -> Iterator[Edit]:
    """Move the lines that stay, and have something in them."""
    gone = [one for one in edits if not one.text]
    for number in numbers:
        at = cell.offset(number, 0)
        if cell.line(number).strip() and not any(one.start <= at < one.end for one in gone):
            yield Edit(at, at, "    ")


def _shifted(edit: Edit, margin: str) -> Edit:
    """Put new lines further to the right."""
    lines = edit.text.split("\n")
    text = "\n".join(f"{margin}{line}" if line else line for line in lines)
    return Edit(edit.start, edit.end, text)
