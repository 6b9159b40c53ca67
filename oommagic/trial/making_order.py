"""In which order a model's variables were made: what lies where on a device depends on it."""

from collections.abc import Iterable, Iterator
from typing import Any

from oommagic.tf.looking import attributes_of, family_of, list_items
from oommagic.tf.walk import layers_in, seeds_of, weights_of
from oommagic.trial.words import is_model


def in_order_of_making(things: Iterable[object]) -> list[Any]:
    """Give TensorFlow's variables of the models among these things, the oldest first.

    Keras's own lists are looked into: properties of the same names may be the user's code. The
    variables of a strategy with several devices are left out: they do not travel.
    """
    models = [thing for thing in things if is_model(thing)]
    held = [one for model in models for one in (*_of_layers(model), *_of_optimizers(model))]
    made = [attributes_of(variable).get("_value") for variable in held]
    found = {id(one): one for one in made if family_of(type(one)) == "variable"}
    return sorted(found.values(), key=_number)


def _of_layers(model: object) -> Iterator[object]:
    for _, layer in layers_in(model):
        held = attributes_of(layer)
        yield from weights_of(held)
        yield from seeds_of(held)


def _of_optimizers(model: object) -> Iterator[object]:
    optimizer = attributes_of(model).get("optimizer")
    while optimizer is not None:
        held = attributes_of(optimizer)
        yield from list_items(held.get("_variables"))
        optimizer = held.get("inner_optimizer")  # of one that scales the loss


def _number(variable: object) -> int:
    """Read the number at the end of a variable's name: it grows with each that is made."""
    tail = str(attributes_of(variable).get("_unique_id", "")).rpartition("_")[2]
    return int(tail) if tail.isdecimal() else 0
