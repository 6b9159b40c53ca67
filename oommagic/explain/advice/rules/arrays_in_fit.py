"""Batches for `fit`, instead of whole arrays, which it copies."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.examples import HOST_RAN_OUT
from oommagic.explain.advice.examples_of_causes import DATA_ON_THE_DEVICE
from oommagic.explain.advice.host_memory import DATA_CAUSES, data_saving, place_of_data
from oommagic.explain.advice.nodes import argument, keyword
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.training import is_on_model
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import Named
from oommagic.units import GIB, format_bytes

_ARRAY = Named("array", 3 * GIB, "float32", (50_000, 128, 128, 1))
_FITTED = replace(HOST_RAN_OUT, names={**HOST_RAN_OUT.names, "x": _ARRAY, "model": Named("model")})


class ArraysInFit(Rule):
    """What `fit(x, y)` takes beside the arrays, and `validation_split` with it."""

    name = "arrays-in-fit"
    title = "Batches instead of whole arrays in `fit`"
    what = (
        "Where `fit` is given large NumPy arrays, it says what their copies take, with and without "
        "`validation_split`."
    )
    why = (
        "`fit(x, y)` makes a tensor of each array: for a moment two copies beside it, then one for "
        "as long as it trains. `validation_split` costs nothing more: both parts are views of the "
        "array, and each is copied when it is used. With a quarter split off, an array of 400 MB "
        "took 616 MB more at the peak, and 816 MB without a split, so nothing is gained by "
        "splitting the arrays oneself. A `keras.utils.PyDataset` that takes rows of the arrays "
        "copies a batch at a time, the validation's, too: 16 MB."
    )
    example = "model.fit(x, y, validation_split=0.2)"
    instead = (
        "class Rows(keras.utils.PyDataset):\n"
        "    def __init__(self, rows):\n"
        "        super().__init__()\n"
        "        self.rows = rows\n\n"
        "    def __len__(self):\n"
        "        return -(-len(self.rows) // 32)\n\n"
        "    def __getitem__(self, number):\n"
        "        rows = self.rows[number * 32 : (number + 1) * 32]\n"
        "        return x[rows], y[rows]\n\n"
        "    def on_epoch_end(self):\n"
        "        np.random.shuffle(self.rows)\n\n\n"
        "split = int(0.8 * len(x))\n"
        "train, validation = Rows(np.arange(split)), Rows(np.arange(split, len(x)))\n"
        "model.fit(train, validation_data=validation)"
    )
    safety = "hint"
    fix_safety = "The same samples in each epoch, in another random order."
    cost = "time: each batch is taken from the arrays by Python"
    effort = 1.3
    causes = DATA_CAUSES
    speaks = (
        Case("model.fit(x, y, validation_split=0.2)\n", _FITTED),
        Case("history = model.fit(x, y, epochs=3)\n", _FITTED),
        Case("model.fit(x, y, epochs=3)\n", DATA_ON_THE_DEVICE),
    )
    is_silent = (
        Case("model.fit(y, y)\n", _FITTED),
        Case("scaler.fit(x)\n", _FITTED),
        Case("model.fit(ds, validation_data=held_out)\n", _FITTED),
        Case("model.fit(x, y)\n"),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find arrays that a model is trained on as they are."""
        for call in cell.calls_of("fit"):
            given = argument(call, 0, "x")
            array = here.array(given.id) if isinstance(given, ast.Name) else None
            if not isinstance(given, ast.Name) or array is None or not is_on_model(here, call):
                continue
            copies = _copies(_split(cell, call))
            yield Found(
                title=f"Batches of `{given.id}` for `fit`, not all of it",
                message=(
                    f"`fit` copies `{given.id}` ({format_bytes(array.bytes)}) into tensors: up to "
                    f"{copies:.1f} times its size beside it, and once as long as it trains"
                    f"{_of_the_split(_split(cell, call))}. A `keras.utils.PyDataset` that takes "
                    "rows of it copies a batch at a time."
                ),
                place=place_of_data(here),
                saving=data_saving(
                    here, cell.statement(call).lineno, int(copies * array.bytes), 0.4, 1.1
                ),
                line_number=call.lineno,
            )


def _split(cell: TypedCell, call: ast.Call) -> float:
    """Give the share that is kept for validation; 0 where none is, or it is not known."""
    value = keyword(call, "validation_split")
    meant = None if value is None else cell.resolved(value)
    share = meant.value if isinstance(meant, ast.Constant) else None
    return share if isinstance(share, float) and 0 < share < 1 else 0.0


def _copies(split: float) -> float:
    """Say how often the array's size is taken: when training begins, or when it is validated."""
    return max(2 * (1 - split), 1 + split)


def _of_the_split(split: float) -> str:
    if not split:
        return ""
    return "; `validation_split` adds no copy, as it splits without one"
