"""A data set that takes its rows from arrays, where `from_tensor_slices` copies them."""

import ast

from oommagic.explain.advice.arrays import is_deleted
from oommagic.explain.advice.nodes import dotted
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import Named
from oommagic.report import Edit

SLICES = "Dataset.from_tensor_slices"
_NUMBERS = ("float16", "float32", "float64", "int", "uint", "bool")


def arrays_given(here: Situation, call: ast.Call) -> tuple[str, ...]:
    """Name the arrays that a call is given first; none if it is given anything else there."""
    given = call.args[0] if call.args else None
    parts = given.elts if isinstance(given, ast.Tuple) else [given]
    names = tuple(part.id for part in parts if isinstance(part, ast.Name))
    are_arrays = len(names) == len(parts) and all(here.array(name) for name in names)
    return names if are_arrays else ()


def by_generator(
    cell: TypedCell, here: Situation, slices: ast.Call, arrays: tuple[str, ...]
) -> tuple[Edit, ...]:
    """Go over the arrays instead of copying them; nothing where that is not surely the same.

    The generator has the arrays of now: a name may stand for something else when it runs.
    """
    tensorflow = _tensorflow(here, slices)
    is_plain = len(slices.args) == 1 and not slices.keywords
    can_be_given = all(
        _is_of_numbers(here.array(name)) and not is_deleted(cell, name) for name in arrays
    )
    if not tensorflow or not is_plain or not can_be_given:
        return ()
    margin = cell.margin(cell.statement(slices).lineno)
    is_tuple = isinstance(slices.args[0], ast.Tuple)
    code = _written(tensorflow, arrays, is_tuple=is_tuple)
    return (cell.replace(slices, code.replace("\n", f"\n{margin}")),)


def _tensorflow(here: Situation, slices: ast.Call) -> str:
    """Give the name of TensorFlow with which the call is written, or else the notebook's."""
    name, dot, _ = dotted(slices.func).partition(f".data.{SLICES}")
    return name if dot else here.module("tensorflow") or ""


def _is_of_numbers(array: Named | None) -> bool:
    return array is not None and bool(array.shape) and array.dtype.startswith(_NUMBERS)


def _written(tensorflow: str, arrays: tuple[str, ...], *, is_tuple: bool) -> str:
    """Write a data set that goes over arrays, and knows how many rows there are."""
    # An autoencoder is given one array twice.
    kept = ", ".join(f"{name}={name}" for name in dict.fromkeys(arrays))
    specs = [f"{tensorflow}.TensorSpec({name}.shape[1:], {name}.dtype)" for name in arrays]
    if is_tuple:
        rows, lines = f"zip({', '.join(arrays)})", [f"        {spec}," for spec in specs]
        signature = "\n".join(["(", *lines, "    )"])
    else:
        rows, signature = arrays[0], specs[0]
    return (
        f"{tensorflow}.data.Dataset.from_generator(\n"
        f"    lambda {kept}: {rows},\n"
        f"    output_signature={signature},\n"
        f").apply({tensorflow}.data.experimental.assert_cardinality(len({arrays[0]})))"
    )
