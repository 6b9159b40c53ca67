"""How a cell trains: whether at all, by which optimizer, and on how many devices."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from oommagic.explain.advice.nodes import argument, called, dotted
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import ModelFacts

OPTIMIZERS = {
    name.lower(): name
    for name in (
        "Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "Ftrl", "Lion", "Muon",
        "Nadam", "RMSprop", "SGD",
    )
}  # fmt: skip
"""Keras's, by what they are called in texts."""
_SLOTS = {
    "Adadelta": 2.0, "Adafactor": 1.0, "Adagrad": 1.0, "Adam": 2.0, "Adamax": 2.0, "AdamW": 2.0,
    "Ftrl": 2.0, "Lion": 1.0, "Nadam": 2.0, "RMSprop": 1.0, "SGD": 0.0,
}  # fmt: skip
"""How often each keeps the size of a weight, as measured: SGD without momentum; Keras's Adafactor,
which has a whole one beside its small factors.
"""
_OF_OTHERS = ("torch.", "optim.", "optax.")
"""Optimizers of these names have no part in Keras's training."""
_STRATEGIES = ("Strategy", "StrategyV1")


def trains(cell: TypedCell) -> bool:
    """Say whether the cell trains something."""
    return any(cell.calls_of("fit", "train_on_batch", "apply_gradients", "apply"))


def is_on_model(here: Situation, call: ast.Call) -> bool:
    """Say whether a method is called on a Keras model: scalers and forests have the same."""
    known = here.known(_called_on(call))
    return known is not None and known.kind == "model"


def may_be_on_model(cell: TypedCell, here: Situation, call: ast.Call) -> bool:
    """Say whether a method is called on what may be a Keras model: on no module, nothing else."""
    on = _called_on(call)
    if on is None or here.known(on) is not None:
        return is_on_model(here, call)
    given = cell.assignments(dotted(on).partition(".")[0])
    is_imported = any(isinstance(one, ast.Import | ast.ImportFrom) for one in given)
    return not is_imported and dotted(on) != "re"


def _called_on(call: ast.Call) -> ast.expr | None:
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def strategies(cell: TypedCell, here: Situation) -> frozenset[str]:
    """Name the strategies of `tf.distribute` by which the cell trains, as far as it shows."""
    known = (here.names[name].text for name in cell.names & here.names.keys())
    made = (called(call) for call in cell.calls)
    return frozenset(one for one in (*known, *made) if one.endswith(_STRATEGIES))


@dataclass(frozen=True, slots=True)
class WrittenOptimizer:
    """Where a cell says its optimizer."""

    kind: str
    """Its class: `Adam`."""
    written: ast.expr
    """A text, or the call that makes it."""

    @property
    def call(self) -> ast.Call | None:
        """The call that makes it; None for a text."""
        return self.written if isinstance(self.written, ast.Call) else None


def only_optimizer(cell: TypedCell) -> WrittenOptimizer | None:
    """Give the cell's optimizer if there is one alone, made where it can be changed."""
    found = {one.written: one for one in _optimizers(cell)}
    return next(iter(found.values())) if len(found) == 1 else None


def _optimizers(cell: TypedCell) -> Iterator[WrittenOptimizer]:
    for call in cell.calls_of("compile"):
        value = argument(call, 0, "optimizer")
        meant = None if value is None else cell.resolved(value)
        if isinstance(meant, ast.Constant) and isinstance(meant.value, str):
            kind = OPTIMIZERS.get(meant.value.lower())
            if kind is not None:
                yield WrittenOptimizer(kind, meant)
    for call in cell.calls_of(*OPTIMIZERS.values()):
        if not dotted(call.func).startswith(_OF_OTHERS):
            yield WrittenOptimizer(called(call), call)


def slots_of(optimizer: str, unknown: float = 0.0) -> float:
    """Say how often an optimizer keeps the size of each weight."""
    return _SLOTS.get(optimizer, unknown)


def slot_bytes(model: ModelFacts) -> int:
    """Say what an optimizer keeps for a model, rather too much than too little."""
    return int(model.trainable_bytes * slots_of(model.optimizer, 2.0 if model.optimizer else 0.0))
