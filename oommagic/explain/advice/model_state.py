"""Code that remembers a model's weights and its optimizer's state, and puts both back."""

from dataclasses import dataclass
from itertools import count

from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell


@dataclass(frozen=True, slots=True)
class ModelState:
    """One model, and the names under which its first state is kept."""

    model: str
    weights: str
    state: str

    @property
    def kept(self) -> str:
        """The lines that keep it; an optimizer has no state before it is built."""
        return (
            f"if not {self.model}.optimizer.built:\n"
            f"    {self.model}.optimizer.build({self.model}.trainable_variables)\n"
            f"{self.weights} = {self.model}.get_weights()\n"
            f"{self.state} = [variable.numpy() for variable in {self.model}.optimizer.variables]"
        )

    @property
    def put_back(self) -> str:
        """The lines that put it back."""
        return (
            f"{self.model}.set_weights({self.weights})\n"
            f"for variable, value in zip({self.model}.optimizer.variables, {self.state}):\n"
            "    variable.assign(value)"
        )


def state_of(model: str, cell: TypedCell, here: Situation) -> ModelState:
    """Choose names for a model's state that the notebook has not yet."""
    weights, state = (_unused(name, cell, here) for name in ("first_weights", "first_state"))
    return ModelState(model, weights, state)


def _unused(name: str, cell: TypedCell, here: Situation) -> str:
    """Give this name, or one like it that nothing has yet."""
    taken = cell.names | here.names.keys()
    others = (f"{name}_{number}" for number in count(2))
    return name if name not in taken else next(one for one in others if one not in taken)
