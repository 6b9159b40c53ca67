"""Rows made up from the shapes of a built Keras model and from what its losses ask for."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oommagic.errors import PlanError
from oommagic.tf.samples import MOST_ROWS, Rows, Sample, Task, leaves, map_leaves

_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_ASK = "pass a batch, e.g. oommagic.plan(model, (x[:8], y[:8]))"
# Losses whose labels are class numbers, by the names that `compile` knows them by.
_OF_CLASS_NUMBERS = frozenset({"sparse_categorical_crossentropy", "sparsecategoricalcrossentropy"})
_OF_UNKNOWN_LABELS = frozenset({"ctc"})


def sample_of(model: Any, task: Task) -> Sample:
    """Make up inputs, and labels where the task needs them."""
    inputs = _structure(model, "inputs")
    if inputs is None:
        raise PlanError(
            f"The inputs of `{model.name}` are not known, since it is a class of its own: {_ASK}."
        )
    check_any_batch(leaves(inputs))
    x = map_leaves(_input_rows, inputs)
    if task == "prediction" or model.loss is None:
        return Sample((x,))
    y, notes = _labels(model)
    return Sample((x, y), notes)


def check_any_batch(inputs: Iterable[Any]) -> None:
    """Refuse a model that was made for one batch size alone."""
    for tensor in inputs:
        if tensor.shape[0] is not None:
            raise PlanError(
                f"The model's input `{tensor.name}` is made for batches of {tensor.shape[0]} alone "
                "(batch_shape or batch_size): there is no other batch to plan."
            )


def _structure(model: Any, which: str) -> Any:
    """Give a model's inputs or outputs as they are nested, as far as Keras knows them."""
    functional = getattr(model, "_functional", None) or model
    nested = getattr(functional, f"_{which}_struct", None)
    return nested if nested is not None else getattr(model, which, None)


def _input_rows(tensor: Any) -> Rows:
    if None in tensor.shape[1:]:
        raise PlanError(
            f"The model's input `{tensor.name}` has a length that is not fixed: {_ASK}."
        )
    return Rows(_values((MOST_ROWS, *tensor.shape[1:]), tensor.dtype))


def _labels(model: Any) -> tuple[Any, tuple[str, ...]]:
    outputs = _structure(model, "outputs")
    names = getattr(model, "output_names", None) or [""]
    flat = list(leaves(outputs))
    losses = list(_losses(model.loss, outputs, names, len(flat)))
    rows = iter([_label_rows(*pair) for pair in zip(flat, losses, strict=True)])
    is_guess = any(_name_of(loss) and not _is_keras_own(loss) for loss in losses)
    note = "The labels were taken to have the shape of the outputs: pass a batch if they do not."
    return map_leaves(lambda _: next(rows), outputs), (note,) if is_guess else ()


def _losses(loss: Any, outputs: Any, names: list[str], count: int) -> Iterator[Any]:
    """Give the loss of each output, in order."""
    if isinstance(loss, Mapping):
        keys = list(outputs) if isinstance(outputs, Mapping) else names
        for key in keys:
            yield loss.get(key)
    elif isinstance(loss, list | tuple):
        yield from loss if len(loss) == count else list(loss) * count
    else:
        yield from [loss] * count


def _label_rows(output: Any, loss: Any) -> Rows:
    import numpy as np

    name = _name_of(loss)
    if name in _OF_UNKNOWN_LABELS or None in output.shape[1:]:
        raise PlanError(f"The shape of the labels is not known: {_ASK}.")
    shape = (MOST_ROWS, *output.shape[1:])
    if name in _OF_CLASS_NUMBERS:
        values = np.random.default_rng(0).integers(0, max(shape[-1], 1), shape[:-1])
        return Rows(values.astype("int32"))
    return Rows(_values(shape, "float32"))


def _name_of(loss: Any) -> str:
    """Give what a loss is called by: a text, a function's name, or that of its class."""
    if loss is None:
        return ""
    if isinstance(loss, str):
        return loss.lower()
    return str(getattr(loss, "__name__", type(loss).__name__)).lower()


def _is_keras_own(loss: Any) -> bool:
    kind = loss if hasattr(loss, "__name__") else type(loss)
    return isinstance(loss, str) or str(kind.__module__).startswith("keras.")


def _values(shape: tuple[int, ...], dtype: str) -> Any:
    """Give numbers that any layer takes: zero is a token of every vocabulary."""
    import numpy as np

    if dtype == "string":
        return np.full(shape, b"", dtype=object)
    if dtype in _INTEGERS or dtype == "bool":
        return np.zeros(shape, dtype)
    # Of a generator of our own: the user's goes on as if nothing had been drawn.
    drawn = np.random.default_rng(0).random(shape, dtype="float32")
    return drawn if dtype == "bfloat16" else drawn.astype(dtype)
