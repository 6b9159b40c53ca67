"""Which names of the notebook hold device memory, and what is held without a name.

Nothing of the user's runs, TensorFlow is never imported, and nothing is kept afterwards.
"""

import gc
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from types import FrameType, TracebackType
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.recording import Held
from oommagic.report import HoldingKind
from oommagic.tf import context
from oommagic.tf.addresses import Place, place_of, place_of_variable
from oommagic.tf.layers import role_of
from oommagic.tf.looking import (
    Family,
    attributes_of,
    closure_of,
    family_of,
    is_the_notebook_s,
    items_of,
    locals_of,
)
from oommagic.units import MIB

keep_builtins(globals())

_WEIGHTS = ("_trainable_variables", "_non_trainable_variables")
_OF_A_LAYER = frozenset({*_WEIGHTS, "_layers", "_seed_generators", "optimizer", "_metrics"})
_METRICS = ("_metrics", "_loss_tracker", "_compile_metrics")
_BESIDE_A_MODEL = ("_eval_epoch_iterator",)
_CONTAINERS = frozenset({"list", "tuple", "set", "dict"})

_HOLDERS = frozenset({"tensor", "variable"})
# Folders of functions whose variables' names tell nobody anything.
_LIBRARIES = ("/tensorflow/python/", "/keras/src/")

_OUTPUTS = ("Out", "_oh")
_LAST_OUTPUTS = ("_", "__", "___")
_OUTPUT = re.compile(r"_\d+")
_IPYTHON = re.compile(r"_{1,3}|_i{1,3}|_i?\d+|_[iod]h|In|Out|exit|quit|get_ipython|__\w+__")

_MOST_DEPTH = 16
_MOST_ITEMS = 20_000
_MOST_OBJECTS = 200_000
_MOST_HELD = 20_000
_MOST_SECONDS = 2.0
_MOST_SEARCHED = 100
_MOST_STEPS_UP = 3
_LONGEST_KEY = 40
_LEAST_COPY_BYTES = MIB
"""Smaller ones may have an array's shape by chance."""


def held_by(namespace: Mapping[str, object], *, include_unnamed: bool = False) -> tuple[Held, ...]:
    """Tell what each name holds of the devices' memory; each piece once, under one name.

    `include_unnamed` adds what lives without a name, which looks at all objects of the process.
    """
    if not context.has_devices():
        return ()
    search = _Search()
    search.look_at_names(namespace)
    if include_unnamed:
        search.look_at_last_error()
        search.look_at_everything()
    return tuple(search.held)


def layer_paths(namespace: Mapping[str, object]) -> frozenset[str]:
    """Name every layer of the notebook's models by its path, those without weights too."""
    search = _Search()
    search.look_at_names(namespace)
    return frozenset(search.layers)


@dataclass(frozen=True, slots=True)
class _Owner:
    """Who holds what comes next, and what that is for."""

    text: str
    kind: HoldingKind | None = None
    is_whole: bool = False
    """Its parts go by its own name: nobody would write theirs."""
    depth: int = 0

    def part(self, text: str) -> "_Owner":
        return replace(self, text=self.text if self.is_whole else text, depth=self.depth + 1)

    def whole(self, kind: HoldingKind | None, text: str = "") -> "_Owner":
        return _Owner(text or self.text, self.kind or kind, is_whole=True, depth=self.depth + 1)


class _Search:
    """One search through a notebook's objects."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.layers: dict[str, None] = {}
        self._families: dict[int, Family] = {}  # by the classes' numbers, as in `looking`
        self._seen: dict[int, object] = {}  # keeps objects, so that no number is given twice
        self._places: set[tuple[str, int]] = set()
        self._layer_of_weight: dict[str, str] = {}
        self._arrays: dict[tuple[int, ...], str] = {}
        self._until = perf_counter() + _MOST_SECONDS

    def look_at_names(self, namespace: Mapping[str, object]) -> None:
        """Look at models first, the largest before its parts, and at IPython's own names last."""
        self._arrays.update(_arrays(namespace))
        names = {
            name: value
            for name, value in list(namespace.items())
            if self._family(value) != "leaf" and type(name) is str
        }
        own = [item for item in names.items() if not _IPYTHON.fullmatch(item[0])]
        models = [(name, value) for name, value in own if self._family(value) == "layer"]
        models.sort(key=lambda item: -sum(1 for _ in _layers_in(item[1])))
        for name, value in (*models, *own):
            self._visit(value, _Owner(name))
        for number, value in _outputs(names):
            self._visit(value, _Owner(f"Out[{number}]"))
        for name in _LAST_OUTPUTS:
            self._visit(names.get(name), _Owner(name))

    def look_at_last_error(self) -> None:
        """Look at what the functions that the last error went through still hold."""
        step: TracebackType | None = getattr(
            getattr(sys, "last_value", None), "__traceback__", None
        )
        while step is not None:
            frame = step.tb_frame
            for name, value in locals_of(frame):
                self._visit(value, _owner_by_error(name, frame))
            step = step.tb_next

    def look_at_everything(self) -> None:
        """Add living tensors and variables that nothing above has named."""
        everything = gc.get_objects()
        kinds = {id(kind): kind for kind in map(type, everything)}
        holders = {number for number, kind in kinds.items() if family_of(kind) in _HOLDERS}
        found = [x for x in everything if id(type(x)) in holders and id(x) not in self._seen]
        del everything
        before = len(self.held)
        unnamed = [value for value in found if self._add_unnamed(value)]
        owners = _owners_of(unnamed[:_MOST_SEARCHED])
        for place, value in enumerate(unnamed, start=before):
            held = self.held[place]
            owner = owners.get(id(value)) or self._copied_from(held)
            self.held[place] = _named(held, owner)

    def _copied_from(self, held: Held) -> str:
        """Name the array of which it must be a copy: `fit` makes one of all that it is given."""
        name = self._arrays.get(held.shape or ()) if held.bytes >= _LEAST_COPY_BYTES else None
        return f"a copy of {name}" if name else ""

    def _family(self, value: object) -> Family:
        kind = type(value)
        family = self._families.get(id(kind))
        if family is None:
            family = self._families[id(kind)] = family_of(kind)
        return family

    def _visit(self, value: object, owner: _Owner) -> None:
        """Look at an object that has not been seen, by what it is."""
        family = self._family(value)
        if family == "leaf" or id(value) in self._seen or self._is_enough(owner):
            return
        self._seen[id(value)] = value
        if family in _CONTAINERS:
            for key, item in islice(items_of(value, family), _MOST_ITEMS):
                if self._family(item) != "leaf":
                    place = None if family == "set" else key  # a set's items have no place
                    self._visit(item, owner.part(_item(owner.text, place)))
        elif family == "function":
            for name, held in closure_of(value):
                self._visit(held, owner.part(f"{name} in {owner.text}"))
        else:
            self._visit_object(value, family, owner)

    def _is_enough(self, owner: _Owner) -> bool:
        return (
            owner.depth > _MOST_DEPTH
            or len(self._seen) > _MOST_OBJECTS
            or len(self.held) > _MOST_HELD
            or perf_counter() > self._until
        )

    def _visit_object(self, value: object, family: Family, owner: _Owner) -> None:
        attributes = {} if family == "tensor" else attributes_of(value)
        match family:
            case "tensor":
                self._add(place_of(value), owner, "tensors")
            case "variable":
                self._add(_place_of_variable(attributes), owner, "variables")
            case "keras variable":
                self._visit(attributes.get("_value"), owner)
            case "wrapper":
                self._visit(_wrapped(attributes), owner)
            case "copies":
                self._visit(attributes.get("_values"), owner.whole(None))
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

    def _visit_attributes(self, attributes: Mapping[str, object], owner: _Owner) -> None:
        """Look at attributes; private ones, the last, go by the name of their object."""
        named = [(k, v) for k, v in attributes.items() if type(k) is str]
        for name, value in sorted(named, key=lambda item: item[0].startswith("_")):
            if self._family(value) != "leaf":
                is_private = name.startswith("_")
                part = owner.whole(None) if is_private else owner.part(f"{owner.text}.{name}")
                self._visit(value, part)

    def _visit_model(self, model: object, attributes: Mapping[str, object], owner: _Owner) -> None:
        """Look at a model's layers, then at its optimizer and what else it keeps."""
        parts = list(_layers_in(model))
        for path, layer in parts:
            self._seen[id(layer)] = layer
            self.layers.setdefault(path)
            self._add_weights(path, attributes_of(layer), owner)
        for _, layer in parts:
            if is_the_notebook_s(type(layer)):
                rest = {k: v for k, v in attributes_of(layer).items() if k not in _OF_A_LAYER}
                self._visit_attributes(rest, owner)
        self._visit(attributes.get("optimizer"), owner.part(f"{owner.text}.optimizer"))
        for name in _METRICS:
            self._visit(attributes.get(name), owner.whole("loss and metrics"))
        for name in _BESIDE_A_MODEL:
            self._visit(attributes.get(name), owner.whole("data", f"{owner.text}.{name}"))

    def _add_weights(self, path: str, layer: Mapping[str, object], owner: _Owner) -> None:
        for name in (*_WEIGHTS, "_seed_generators"):
            kept = layer.get(name)
            if self._family(kept) != "list":
                continue
            for _, held in items_of(kept, "list"):
                variable = held if name in _WEIGHTS else attributes_of(held).get("state")
                self._add_variable(variable, owner, "weights", path)

    def _visit_optimizer(self, attributes: Mapping[str, object], owner: _Owner) -> None:
        """Look at an optimizer's variables, each for the layer whose weight it belongs to."""
        for variable in _items(attributes.get("_variables")):
            path = attributes_of(variable).get("_path")
            layer = self._layer_of_slot(path) if type(path) is str else ""
            self._add_variable(variable, owner, "optimizer slots", layer)
        self._visit(attributes.get("inner_optimizer"), owner.part(owner.text))

    def _layer_of_slot(self, path: str) -> str:
        """Find the layer: a slot is named after its weight, with `_` for `/`, and its purpose."""
        weight = path.rpartition("/")[2]
        while weight and weight not in self._layer_of_weight:
            weight = weight.rpartition("_")[0]
        return self._layer_of_weight.get(weight, "")

    def _add_variable(self, variable: object, owner: _Owner, kind: HoldingKind, layer: str) -> None:
        """Add a variable of Keras, and of each device that has a copy."""
        self._seen[id(variable)] = variable
        attributes = attributes_of(variable)
        path = attributes.get("_path")
        if kind == "weights" and type(path) is str:
            self._layer_of_weight.setdefault(path.replace("/", "_"), layer)
        value = attributes.get("_value")
        copies = (
            [value]
            if self._family(value) == "variable"
            else _items(attributes_of(value).get("_values"))
        )
        for copy in copies:
            self._seen[id(copy)] = copy
            self._add(_place_of_variable(attributes_of(copy)), owner, kind, layer)

    def _add(self, place: Place | None, owner: _Owner, kind: HoldingKind, layer: str = "") -> bool:
        """Add a piece of memory, unless somebody else's name stands for it already."""
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

    def _add_unnamed(self, value: object) -> bool:
        if self._family(value) == "tensor":
            return self._add(place_of(value), _Owner(""), "tensors")
        attributes = attributes_of(value)
        name = attributes.get("_handle_name")
        path = name.partition(":")[0] if type(name) is str else ""
        role = role_of(f"{path}/Initializer/value", is_temporary=False)
        kind = role.kind if "/" in path else "variables"
        return self._add(_place_of_variable(attributes), _Owner(""), kind, role.layer)


def _layers_in(model: object) -> Iterator[tuple[str, object]]:
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
        waiting += [(own, part) for part in _items(attributes.get("_layers"))]


def _outputs(names: Mapping[str, object]) -> Iterator[tuple[object, object]]:
    """Yield what IPython keeps of earlier cells' last values, by their cells' numbers."""
    for name in _OUTPUTS:
        outputs = names.get(name)
        if type(outputs) is dict:
            yield from list(outputs.items())
    for name, value in names.items():
        if _OUTPUT.fullmatch(name):
            yield name[1:], value


def _arrays(namespace: Mapping[str, object]) -> Mapping[tuple[int, ...], str]:
    """Name the NumPy arrays by their shapes; the first of those that have the same."""
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    own: list[tuple[str, Any]] = [x for x in list(namespace.items()) if type(x[1]) is array]
    return {
        value.shape: name
        for name, value in reversed(own)
        if type(name) is str and not _IPYTHON.fullmatch(name)
    }


def _items(container: object) -> list[object]:
    """Give the items of a list of Python's, Keras's or TensorFlow's."""
    family = family_of(type(container))
    if family == "wrapper":
        return _items(_wrapped(attributes_of(container)))
    if family not in {"list", "tuple"}:
        return []
    return [item for _, item in islice(items_of(container, family), _MOST_ITEMS)]


def _wrapped(attributes: Mapping[str, object]) -> object:
    """Give what TensorFlow's own list or dictionary stands for; as a list it is empty itself."""
    return attributes.get("_storage", attributes.get("_self_last_wrapped_dict_snapshot"))


def _place_of_variable(attributes: Mapping[str, object]) -> Place | None:
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


def _named(held: Held, owner: str) -> Held:
    return replace(held, owner=owner)


def _owners_of(values: list[object]) -> dict[int, str]:
    """Find for each object the function whose variable holds it, a few steps up."""
    found: dict[int, str] = {}
    ours = {id(values)}
    above: dict[int, set[int]] = {id(value): {id(value)} for value in values}
    level: list[object] = list(values)
    for _ in range(_MOST_STEPS_UP):
        referrers = [x for x in gc.get_referrers(*level) if id(x) not in ours and x is not level]
        following: dict[int, set[int]] = {}
        for referrer in referrers:
            # Its parts are let go at once: a frame's variables are only ours while nobody has them.
            parts = map(id, gc.get_referents(referrer))
            held = {number for part in parts for number in above.get(part, ())}
            if held:
                _note(found, referrer, above)
                following[id(referrer)] = held
        above, level = following, referrers
    return found


def _owner_by_error(name: str, frame: FrameType) -> _Owner:
    if _is_of_a_library(frame):
        return _Owner("the last error", is_whole=True)
    return _Owner(f"{name} in {frame.f_code.co_name}, by the last error")


def _note(found: dict[int, str], referrer: object, above: Mapping[int, set[int]]) -> None:
    if type(referrer) is not FrameType or _is_of_a_library(referrer):
        return
    for name, value in locals_of(referrer):
        for number in above.get(id(value), ()):
            found.setdefault(number, f"{name} in {referrer.f_code.co_name}")


def _is_of_a_library(frame: FrameType) -> bool:
    return any(folder in frame.f_code.co_filename for folder in _LIBRARIES)
