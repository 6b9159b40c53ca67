"""Walks from the notebook's names down to tensors and variables, and names each on the way.

Nothing of the user's runs. A piece of memory is told once, under the first name that leads to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter

from oommagic.own_builtins import keep_builtins
from oommagic.recording import Held
from oommagic.report import HoldingKind
from oommagic.tf.addresses import Place, place_of, place_of_variable
from oommagic.tf.looking import (
    CONTAINERS,
    MOST_ITEMS,
    Family,
    attributes_of,
    closure_of,
    family_of,
    is_the_notebook_s,
    items_of,
    list_items,
    unwrapped,
)

keep_builtins(globals())

_WEIGHTS = ("_trainable_variables", "_non_trainable_variables")
_OF_A_LAYER = frozenset({*_WEIGHTS, "_layers", "_seed_generators", "optimizer", "_metrics"})
_METRICS = ("_metrics", "_loss_tracker", "_compile_metrics")
_BESIDE_A_MODEL = ("_eval_epoch_iterator",)

_MOST_DEPTH = 16
_MOST_OBJECTS = 200_000
_MOST_HELD = 20_000
_MOST_SECONDS = 2.0
_LONGEST_KEY = 40


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds what comes next, and what that is for."""

    text: str
    kind: HoldingKind | None = None
    is_whole: bool = False
    """Its parts go by its own name: nobody would write theirs."""
    depth: int = 0

    def part(self, text: str) -> "Owner":
        """Name a part of it, as one would write it."""
        return replace(self, text=self.text if self.is_whole else text, depth=self.depth + 1)

    def whole(self, kind: HoldingKind | None, text: str = "") -> "Owner":
        """Name a part whose own parts have no names of their own."""
        return Owner(text or self.text, self.kind or kind, is_whole=True, depth=self.depth + 1)


class Walk:
    """One way through a notebook's objects, which comes to each of them once."""

    def __init__(self) -> None:
        """Begin with nothing found."""
        self.held: list[Held] = []
        self._families: dict[int, Family] = {}  # by the classes' numbers, as in `looking`
        self._seen: dict[int, object] = {}  # keeps objects, so that no number is given twice
        self._places: set[tuple[str, int]] = set()
        self._layer_of_weight: dict[str, str] = {}
        self._until = perf_counter() + _MOST_SECONDS

    def family(self, value: object) -> Family:
        """Say what an object is to us, by its class."""
        kind = type(value)
        family = self._families.get(id(kind))
        if family is None:
            family = self._families[id(kind)] = family_of(kind)
        return family

    def has_seen(self, value: object) -> bool:
        """Say whether it has come to this object."""
        return id(value) in self._seen

    def visit(self, value: object, owner: Owner) -> None:
        """Go through an object that has not been seen, and add what it holds."""
        family = self.family(value)
        if family == "leaf" or id(value) in self._seen or self._is_enough(owner):
            return
        self._seen[id(value)] = value
        if family in CONTAINERS:
            for key, item in islice(items_of(value, family), MOST_ITEMS):
                if self.family(item) != "leaf":
                    place = None if family == "set" else key  # a set's items have no place
                    self.visit(item, owner.part(_item(owner.text, place)))
        elif family == "function":
            for name, held in closure_of(value):
                self.visit(held, owner.part(f"{name} in {owner.text}"))
        else:
            self._visit_object(value, family, owner)

    def _is_enough(self, owner: Owner) -> bool:
        return (
            owner.depth > _MOST_DEPTH
            or len(self._seen) > _MOST_OBJECTS
            or len(self.held) > _MOST_HELD
            or perf_counter() > self._until
        )

    def _visit_object(self, value: object, family: Family, owner: Owner) -> None:
        attributes = {} if family == "tensor" else attributes_of(value)
        match family:
            case "tensor":
                self.add(place_of(value), owner, "tensors")
            case "variable":
                self.add(place_of_variable_in(attributes), owner, "variables")
            case "keras variable":
                self.visit(attributes.get("_value"), owner)
            case "wrapper":
                self.visit(unwrapped(attributes), owner)
            case "copies":
                self.visit(attributes.get("_values"), owner.whole(None))
            case "layer":
                self._visit_model(value, attributes, owner)
            case "optimizer":
                self._visit_optimizer(attributes, owner)
            case "metric":
                self._visit_attributes(attributes, owner.whole("loss and metrics"))
            case "dataset":
                self._visit_attributes(attributes, owner.whole("data"))
            case _:
                self._visit_attributes(attributes, owner)

    def _visit_attributes(self, attributes: Mapping[str, object], owner: Owner) -> None:
        """Look at attributes; private ones, the last, go by the name of their object."""
        named = [(k, v) for k, v in attributes.items() if type(k) is str]
        for name, value in sorted(named, key=lambda item: item[0].startswith("_")):
            if self.family(value) != "leaf":
                is_private = name.startswith("_")
                part = owner.whole(None) if is_private else owner.part(f"{owner.text}.{name}")
                self.visit(value, part)

    def _visit_model(self, model: object, attributes: Mapping[str, object], owner: Owner) -> None:
        """Look at a model's layers, then at its optimizer and what else it keeps."""
        parts = list(layers_in(model))
        for path, layer in parts:
            self._seen[id(layer)] = layer
            self._add_weights(path, attributes_of(layer), owner)
        for _, layer in parts:
            if is_the_notebook_s(type(layer)):
                rest = {k: v for k, v in attributes_of(layer).items() if k not in _OF_A_LAYER}
                self._visit_attributes(rest, owner)
        self.visit(attributes.get("optimizer"), owner.part(f"{owner.text}.optimizer"))
        for name in _METRICS:
            self.visit(attributes.get(name), owner.whole("loss and metrics"))
        for name in _BESIDE_A_MODEL:
            self.visit(attributes.get(name), owner.whole("data", f"{owner.text}.{name}"))

    def _add_weights(self, path: str, layer: Mapping[str, object], owner: Owner) -> None:
        for variable in (*weights_of(layer), *seeds_of(layer)):
            self._add_variable(variable, owner, "weights", path)

    def _visit_optimizer(self, attributes: Mapping[str, object], owner: Owner) -> None:
        """Look at an optimizer's variables, each for the layer whose weight it belongs to."""
        for variable in list_items(attributes.get("_variables")):
            path = attributes_of(variable).get("_path")
            layer = self._layer_of_slot(path) if type(path) is str else ""
            self._add_variable(variable, owner, "optimizer slots", layer)
        self.visit(attributes.get("inner_optimizer"), owner.part(owner.text))

    def _layer_of_slot(self, path: str) -> str:
        """Find the layer: a slot is named after its weight, with `_` for `/`, and its purpose."""
        weight = path.rpartition("/")[2]
        while weight and weight not in self._layer_of_weight:
            weight = weight.rpartition("_")[0]
        return self._layer_of_weight.get(weight, "")

    def _add_variable(self, variable: object, owner: Owner, kind: HoldingKind, layer: str) -> None:
        """Add a variable of Keras, and of each device that has a copy."""
        self._seen[id(variable)] = variable
        attributes = attributes_of(variable)
        path = attributes.get("_path")
        if kind == "weights" and type(path) is str:
            self._layer_of_weight.setdefault(path.replace("/", "_"), layer)
        value = attributes.get("_value")
        copies = (
            [value]
            if self.family(value) == "variable"
            else list_items(attributes_of(value).get("_values"))
        )
        for copy in copies:
            self._seen[id(copy)] = copy
            self.add(place_of_variable_in(attributes_of(copy)), owner, kind, layer)

    def add(self, place: Place | None, owner: Owner, kind: HoldingKind, layer: str = "") -> bool:
        """Add a piece of memory, unless it is there already under somebody else's name."""
        if place is None or place.bytes == 0:
            return False
        if place.address and (place.device, place.address) in self._places:
            return False
        self._places.add((place.device, place.address))
        self.held.append(
            Held(
                owner=owner.text,
                kind=owner.kind or kind,
                device=place.device,
                address=place.address,
                bytes=place.bytes,
                layer=layer,
                shape=place.shape,
                dtype=place.dtype,
            )
        )
        return True


def weights_of(layer: Mapping[str, object]) -> Iterator[object]:
    """Yield Keras's variables that a layer of these attributes has of its own."""
    for name in _WEIGHTS:
        yield from list_items(layer.get(name))


def seeds_of(layer: Mapping[str, object]) -> Iterator[object]:
    """Yield the variables of what draws random numbers for it."""
    for seeds in list_items(layer.get("_seed_generators")):
        yield attributes_of(seeds).get("state")


def layers_in(model: object) -> Iterator[tuple[str, object]]:
    """Yield a model and each layer in it once, with its path inside the model."""
    waiting: list[tuple[tuple[str, ...], object]] = [((), model)]
    seen: set[int] = set()
    while waiting:
        above, layer = waiting.pop(0)
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        attributes = attributes_of(layer)
        name = attributes.get("name")
        own = (*above, name if type(name) is str else type(layer).__name__)
        yield "/".join(own[1:] or own), layer
        waiting += [(own, part) for part in list_items(attributes.get("_layers"))]


def place_of_variable_in(attributes: Mapping[str, object]) -> Place | None:
    """Say where the value of a variable lies that has these attributes."""
    number = getattr(attributes.get("_dtype"), "as_datatype_enum", None)
    if type(number) is not int:
        return None
    return place_of_variable(attributes.get("_handle"), number)


def _item(owner: str, key: object) -> str:
    if type(key) is int:
        return f"{owner}[{key}]"
    if type(key) is str:
        shown = key if len(key) <= _LONGEST_KEY else key[:_LONGEST_KEY] + "…"
        return f"{owner}[{shown!r}]"
    return f"{owner}[…]"
