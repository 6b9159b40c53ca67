"""How a cell writes names of Keras: `keras.layers.Dense`, `tf.keras.layers.Dense`, `L.Dense`."""

import ast
from dataclasses import dataclass

from oommagic.explain.advice.nodes import dotted
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit

_FROM_TENSORFLOW = ".keras"


@dataclass(frozen=True, slots=True)
class Spelled:
    """Something of Keras as the cell can write it, and the import that it needs for that."""

    text: str
    imports: tuple[Edit, ...] = ()


def spelled(cell: TypedCell, here: Situation, place: str) -> Spelled:
    """Spell what stands there in Keras: `tf.keras.optimizers.Adam` for `optimizers.Adam`."""
    name = _keras_name(cell, here)
    if name is not None:
        return Spelled(f"{name}.{place}")
    added = cell.add_import("import keras")
    return Spelled(f"keras.{place}", () if added is None else (added,))


def spelled_beside(cell: TypedCell, here: Situation, written: ast.expr, place: str) -> Spelled:
    """Spell it as the cell spells what stands beside it there: `L.Dense` beside `L.Flatten`."""
    prefix = dotted(written).rpartition(".")[0]
    if prefix:
        return Spelled(f"{prefix}.{place.rpartition('.')[2]}")
    return spelled(cell, here, place)


def _keras_name(cell: TypedCell, here: Situation) -> str | None:
    """Say what the notebook calls Keras: `keras`, `tf.keras`; None if it has no name there."""
    imported = _imported(cell, "keras", "tensorflow.keras") or _as_written(cell)
    if imported is not None:
        return imported
    named = here.module("keras", "keras._tf_keras.keras", "tensorflow.keras")
    if named is not None:
        return named
    tensorflow = _imported(cell, "tensorflow") or here.module("tensorflow")
    return None if tensorflow is None else tensorflow + _FROM_TENSORFLOW


def _as_written(cell: TypedCell) -> str | None:
    """Give `tf.keras` where the cell writes `tf.keras.Sequential`."""
    names = (dotted(call.func).partition(f"{_FROM_TENSORFLOW}.") for call in cell.calls)
    return next((f"{name}{_FROM_TENSORFLOW}" for name, _, inside in names if inside), None)


def _imported(cell: TypedCell, *modules: str) -> str | None:
    """Give the name that the cell's own import gives to one of these modules."""
    for node in cell.tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for one in node.names:
                if above + one.name in modules and (one.asname or "." not in one.name):
                    return one.asname or one.name
    return None
