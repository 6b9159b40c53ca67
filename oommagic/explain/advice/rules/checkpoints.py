"""Backups of the training, so that what runs out loses one epoch at the most."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.keras_names import spelled
from oommagic.explain.advice.nodes import argument, keyword
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit

_MANY_EPOCHS = 5
_EPOCHS_AT, _CALLBACKS_AT = 3, 5
_EACH = " Each training needs a folder of its own, with its number or name in it."
_ALREADY = ("BackupAndRestore", "ModelCheckpoint", "CheckpointManager")


class Checkpoints(Rule):
    """`BackupAndRestore` in a fit of many epochs."""

    name = "checkpoints"
    title = "Backups while training"
    what = (
        "Where a `fit` of many epochs ran out of memory, it adds the callback that writes the "
        "model and the optimizer to a folder after each epoch, and goes on from there when the "
        "same `fit` is run again, after a restart too. Where there are several fits it is a hint: "
        "each needs a folder of its own, or the first would go on with what another has left."
    )
    why = (
        "It saves no memory. But the next run, with a change that does, need not begin again. The "
        "folder is removed when training ends."
    )
    example = "model.fit(x, y, epochs=50)"
    instead = 'model.fit(x, y, epochs=50, callbacks=[keras.callbacks.BackupAndRestore("backup")])'
    safety = "same results"
    fix_safety = "Training takes the same course; the folder `backup` is written."
    cost = "the weights are written to disk after each epoch"
    effort = 2.0
    causes = STEP | {"growth", "left behind", "another process", "host memory"}
    speaks = (
        Case(
            "model.fit(x, y, epochs=50,\n          verbose=0)  # slow\n",
            STEP_OF_96,
            "model.fit(x, y, epochs=50,\n          verbose=0, "
            'callbacks=[keras.callbacks.BackupAndRestore("backup")])  # slow\n',
        ),
        Case(
            "EPOCHS = 20\nmodel.fit(ds, epochs=EPOCHS, callbacks=[(stop),])\n",
            STEP_OF_96,
            "EPOCHS = 20\nmodel.fit(ds, epochs=EPOCHS, "
            'callbacks=[keras.callbacks.BackupAndRestore("backup"), (stop),])\n',
        ),
        Case(
            "mine = [stop]\nmodel.fit(ds, epochs=20, callbacks=mine)\n",
            STEP_OF_96,
            "mine = [stop]\nmodel.fit(ds, epochs=20, "
            'callbacks=[keras.callbacks.BackupAndRestore("backup"), *mine])\n',
        ),
        Case("model.fit(ds, epochs=20, **options)\n", STEP_OF_96),
        Case("for fold in folds:\n    model.fit(*fold, epochs=20)\n", STEP_OF_96),
        Case("def train(model):\n    model.fit(x, y, epochs=20)\n", STEP_OF_96),
        Case("model.fit(x, y, epochs=20)\nmodel.fit(a, b, epochs=30)\n", STEP_OF_96),
    )
    is_silent = (
        Case("model.fit(x, y, epochs=2)\n", STEP_OF_96),
        Case("model.fit(x, y, epochs=50)\n"),
        Case(
            "keep = keras.callbacks.ModelCheckpoint('a.keras')\n"
            "model.fit(x, y, epochs=50, callbacks=[keep])\n",
            STEP_OF_96,
        ),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find a fit of many epochs in a cell that ran out."""
        if not here.ran_out or any(name in cell.text for name in _ALREADY):
            return
        for call in cell.calls_of("fit"):
            epochs = cell.number(argument(call, _EPOCHS_AT, "epochs"))
            if epochs is not None and epochs >= _MANY_EPOCHS:
                yield _found(cell, here, call, epochs)
                return


def _found(cell: TypedCell, here: Situation, call: ast.Call, epochs: int) -> Found:
    is_only = _is_only_training(cell, call)
    return Found(
        title="Back up the training after each epoch",
        message=(
            "It does not lower what a step needs. It lets a second run of these "
            f"{epochs} epochs go on where the first one stopped, instead of at the start."
            + ("" if is_only else _EACH)
        ),
        place=here.place,
        edits=_with_backup(cell, here, call) if is_only else (),
        line_number=call.lineno,
        runs_then=False,
    )


def _is_only_training(cell: TypedCell, call: ast.Call) -> bool:
    """Say whether no other fit, and no other turn of this one, would find its folder."""
    fits = [one for one in cell.calls_of("fit") if argument(one, _EPOCHS_AT, "epochs") is not None]
    return fits == [call] and not cell.is_repeated(call) and cell.function_of(call) is None


def _with_backup(cell: TypedCell, here: Situation, call: ast.Call) -> tuple[Edit, ...]:
    """Add the callback to those that are there; nothing where they can't be seen."""
    callback = spelled(cell, here, "callbacks.BackupAndRestore")
    backup = f'{callback.text}("backup")'
    given = keyword(call, "callbacks")
    if given is None:
        if len(call.args) > _CALLBACKS_AT or any(one.arg is None for one in call.keywords):
            return ()
        edit = cell.set_keyword(call, "callbacks", f"[{backup}]")
    elif isinstance(given, ast.List):
        at = cell.start(given) + 1
        edit = Edit(at, at, f"{backup}, " if given.elts else backup)
    elif _is_list(cell, here, given):
        edit = cell.replace(given, f"[{backup}, *{cell.text_of(given)}]")
    else:
        return ()
    return (*callback.imports, edit) if edit is not None else ()


def _is_list(cell: TypedCell, here: Situation, given: ast.expr) -> bool:
    known = here.known(given)
    return isinstance(cell.resolved(given), ast.List) or (
        known is not None and known.kind == "list"
    )
