"""Labels as whole numbers instead of one column for each class."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from oommagic.explain.advice.arrays import bound_to, is_in_a_magic, reads
from oommagic.explain.advice.examples import HOST_RAN_OUT
from oommagic.explain.advice.host_memory import lower_peak
from oommagic.explain.advice.nodes import argument, called, dotted, keyword, names_in
from oommagic.explain.advice.rule import HOST_CAUSES, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.explain.wording import code_list
from oommagic.recording import Named
from oommagic.report import HOST, Edit
from oommagic.units import GIB, format_bytes

_LOSS, _SPARSE = "categorical_crossentropy", "sparse_categorical_crossentropy"
_METRICS = {
    "accuracy": "accuracy",
    "acc": "acc",
    "categorical_accuracy": "sparse_categorical_accuracy",
    _LOSS: _SPARSE,
}
_FED = ("fit", "evaluate")
_NEED_COLUMNS = {"weighted_metrics", "loss_weights"}

_WORDS = replace(
    HOST_RAN_OUT,
    line_number=None,
    names={**HOST_RAN_OUT.names, "t": Named("array", 4 * GIB, "float64", (20_000, 25_000))},
)


class IntegerLabels(Rule):
    """A label is one number, whatever the number of classes."""

    name = "integer-labels"
    title = "Integer labels instead of `to_categorical`"
    what = (
        "Where `to_categorical` makes a large array for a loss of categorical crossentropy in the "
        "same cell, it keeps the labels as they are and takes the sparse loss, which wants them so."
    )
    why = (
        "`to_categorical` makes a float64 number for each class and sample, all but one of them "
        "zero: a label of 1000 classes is 8 KB instead of 8 bytes. Keras then makes copies of it "
        "as float32. The sparse loss is the same figure without them."
    )
    example = 't = to_categorical(y)\nmodel.compile("adam", "categorical_crossentropy")'
    instead = 't = y\nmodel.compile("adam", "sparse_categorical_crossentropy")'
    safety = "same results"
    fix_safety = (
        "The loss and the accuracy are the same within rounding. Other cells that train or "
        "evaluate this model must give it whole numbers too. With label smoothing, mixed labels "
        "or a loss of one's own the columns are needed: then nothing is suggested."
    )
    cost = ""
    causes = HOST_CAUSES
    speaks = (
        Case(
            "t = keras.utils.to_categorical(y, 25_000)  # words\n"
            'model.compile("adam", loss="categorical_crossentropy", metrics=["accuracy"])\n'
            "model.fit(x, t)\n",
            _WORDS,
            "t = y  # words\n"
            'model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])\n'
            "model.fit(x, t)\n",
        ),
        Case(
            "t = to_categorical(ids['word'])\n"
            "model.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True),\n"
            "              metrics=['categorical_accuracy'])\nmodel.fit(x, t)\n",
            _WORDS,
            "t = np.asarray(ids['word'])\n"
            "model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),\n"
            '              metrics=["sparse_categorical_accuracy"])\nmodel.fit(x, t)\n',
        ),
    )
    is_silent = (
        Case(
            "t = to_categorical(y)\n"
            "model.compile(loss=keras.losses.CategoricalCrossentropy(label_smoothing=0.1))\n"
            "model.fit(x, t)\n",
            _WORDS,
        ),
        Case("t = to_categorical(y)\nmodel.fit(x, t)\n", _WORDS),
        Case(
            't = to_categorical(y)\nmodel.compile("adam", loss="categorical_crossentropy")\n'
            "model.fit(x, t, validation_data=(v, v_columns))\n",
            _WORDS,
        ),
        Case(
            't = to_categorical(y)\nmodel.compile("adam", loss="categorical_crossentropy")\n'
            "model.fit(x, t)\nprint(t.argmax(1))\n",
            _WORDS,
        ),
        Case(
            't = to_categorical(y)\nmodel.compile("adam", loss="categorical_crossentropy")\n'
            "model.fit(x, t)\nshow_some()\n",
            replace(_WORDS, names_in_functions=frozenset({"t"})),
        ),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find labels that are made into columns, and the one loss that wants them."""
        calls = list(cell.calls_of("to_categorical"))
        names = [bound_to(cell, call) for call in calls]
        are_known = bool(names) and all(here.array(name) is not None for name in names)
        if not are_known or not here.names_in_functions.isdisjoint(names):
            return
        if not all(_is_only_fed(cell, name) for name in names):
            return
        compiled = list(cell.calls_of("compile"))
        edits = _sparse(cell, compiled[0]) if len(compiled) == 1 else ()
        if not edits or not here.module("numpy") or not all(call.args for call in calls):
            return
        if not all(_has_only(fed, names) for fed in cell.calls_of(*_FED)):
            return
        yield _found(cell, here, calls, edits)


def _found(
    cell: TypedCell, here: Situation, calls: Sequence[ast.Call], sparse: tuple[Edit, ...]
) -> Found:
    names = [bound_to(cell, call) for call in calls]
    size = sum(here.names[name].bytes for name in names)
    labels = (cell.replace(call, _whole_numbers(cell, here, call)) for call in calls)
    return Found(
        title=f"Labels as whole numbers: {code_list(names)}",
        message=(
            f"With one number for each class, {code_list(names)} come to {format_bytes(size)}, "
            "which `fit` copies; as a whole number each label is one."
        ),
        place=HOST,
        saving=expected(HOST, _lower(cell, here, calls, size), 0.85, 1.15),
        edits=(*labels, *sparse),
        line_number=calls[0].lineno,
    )


def _whole_numbers(cell: TypedCell, here: Situation, call: ast.Call) -> str:
    """Write the labels as they were: as an array, if they may have been a list."""
    labels, name = call.args[0], bound_to(cell, call)
    text = cell.text_of(labels)
    is_array = isinstance(labels, ast.Name) and labels.id != name and here.array(labels.id)
    return text if is_array else f"{here.module('numpy')}.asarray({text})"


def _has_only(fed: ast.Call, names: list[str]) -> bool:
    """Say whether a call that trains has these labels, and no others beside them."""
    held_back = keyword(fed, "validation_data")
    labels = [argument(fed, 1, "y")]
    if held_back is not None:
        parts = held_back.elts if isinstance(held_back, ast.Tuple) else []
        labels.append(parts[1] if len(parts) > 1 else None)
    return all(isinstance(one, ast.Name) and one.id in names for one in labels)


def _is_only_fed(cell: TypedCell, name: str) -> bool:
    """Say whether all that is done with the columns is training and evaluating."""
    if not name or len(cell.assignments(name)) != 1 or is_in_a_magic(cell, name):
        return False
    if cell.function_of(cell.assignments(name)[0]) is not None:
        return False
    return all(
        any(isinstance(above, ast.Call) and called(above) in _FED for above in cell.around(read))
        for read in reads(cell, name)
        if not _is_its_own_source(cell, name, read)
    )


def _is_its_own_source(cell: TypedCell, name: str, read: ast.Name) -> bool:
    """Say whether it stands in `y = to_categorical(y)` itself."""
    return cell.statement(read) in cell.assignments(name)


def _sparse(cell: TypedCell, compiled: ast.Call) -> tuple[Edit, ...]:
    """Give the edits of `compile`; none if one of its parts needs the columns."""
    given = {"loss": compiled.args[1]} if len(compiled.args) > 1 else {}
    given |= {one.arg: one.value for one in compiled.keywords if one.arg}
    edit = _sparse_loss(cell, given.get("loss"))
    metrics = given.get("metrics")
    others = None if metrics is None else _sparse_metrics(cell, metrics)
    if len(compiled.args) > 2:  # noqa: PLR2004 (loss weights, or in older versions metrics)
        return ()
    if edit is None or (metrics is not None and others is None) or _NEED_COLUMNS & given.keys():
        return ()
    return (edit, *(others or ()))


def _sparse_loss(cell: TypedCell, loss: ast.expr | None) -> Edit | None:
    if isinstance(loss, ast.Constant):
        return cell.replace(loss, f'"{_SPARSE}"') if loss.value == _LOSS else None
    if not isinstance(loss, ast.Call) or loss.args:
        return None
    if any(one.arg != "from_logits" for one in loss.keywords):
        return None
    name = dotted(loss.func)
    if not name.endswith(".CategoricalCrossentropy"):
        return None
    return cell.replace(loss.func, f"{name.rpartition('.')[0]}.SparseCategoricalCrossentropy")


def _sparse_metrics(cell: TypedCell, metrics: ast.expr) -> tuple[Edit, ...] | None:
    """Give the edits of metrics that exist for whole numbers too; None if one does not."""
    edits: list[Edit] = []
    for one in metrics.elts if isinstance(metrics, ast.List | ast.Tuple) else [metrics]:
        old = one.value if isinstance(one, ast.Constant) else None
        new = _METRICS.get(old) if isinstance(old, str) else None
        if new is None:
            return None
        edits += [cell.replace(one, f'"{new}"')] if new != old else []
    return tuple(edits)


def _lower(cell: TypedCell, here: Situation, calls: Sequence[ast.Call], size: int) -> int:
    """Take the columns away; and what Keras makes of them: three times their size as float32."""
    names = {bound_to(cell, call) for call in calls}
    first = min(call.lineno for call in calls)
    fed = {
        cell.statement(call).lineno for call in cell.calls_of(*_FED) if names & set(names_in(call))
    }
    width = 8 if here.names[min(names)].dtype == "float64" else 4
    copies = size * (3 if width == 8 else 2) * 4 // width  # noqa: PLR2004 (bytes of a float64)

    def less(line: int) -> int:
        return (size if line >= first else 0) + (copies if line in fed else 0)

    return lower_peak(here, less, first)
