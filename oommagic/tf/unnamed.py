"""What no name of the notebook holds, but a function's variable does, or nobody who is known."""

import gc
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import compress
from time import perf_counter
from types import FrameType, TracebackType

from oommagic.own_builtins import keep_builtins
from oommagic.recording import COPY_OF, Held
from oommagic.tf.addresses import place_of
from oommagic.tf.layers import role_of
from oommagic.tf.looking import attributes_of, family_of, locals_of
from oommagic.tf.walk import Owner, Walk, place_of_variable_in
from oommagic.units import MIB

keep_builtins(globals())

_HOLDERS = frozenset({"tensor", "variable"})
# Folders of functions whose variables' names tell nobody anything.
_LIBRARIES = ("/tensorflow/python/", "/keras/src/")

_MOST_SEARCHED = 100
_MOST_STEPS_UP = 3
_MOST_SECONDS = 0.2
_LEAST_COPY_BYTES = MIB
"""Smaller ones may have an array's shape by chance."""


def last_error() -> BaseException | None:
    """Give the last error that was shown, which keeps what its functions held."""
    error = getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def look_at_last_error(walk: Walk) -> None:
    """Look at what the functions that the last error went through still hold."""
    error = last_error()
    step: TracebackType | None = error.__traceback__ if error is not None else None
    while step is not None:
        frame = step.tb_frame
        for name, value in locals_of(frame):
            walk.visit(value, _owner_by_error(name, frame))
        step = step.tb_next


def look_at_everything(walk: Walk, arrays: Mapping[tuple[int, ...], str]) -> None:
    """Add the process's living tensors and variables that the walk has not come to.

    `arrays` has the names of the notebook's arrays by their shapes.
    """
    found = [value for value in _all_holders() if not walk.has_seen(value)]
    before = len(walk.held)
    unnamed = [value for value in found if _add(value, walk)]
    owners = _owners_of(unnamed[:_MOST_SEARCHED])
    for place, value in enumerate(unnamed, start=before):
        held = walk.held[place]
        owner = owners.get(id(value)) or _copied_from(held, arrays)
        walk.held[place] = replace(held, owner=owner)


def _all_holders() -> list[object]:
    """Find all living tensors and variables; there may be millions of objects, so without a loop.

    Classes count by their numbers, as in `looking`.
    """
    everything = gc.get_objects()
    kinds = dict(zip(map(id, map(type, everything)), map(type, everything), strict=True))
    holders = {number for number, kind in kinds.items() if family_of(kind) in _HOLDERS}
    is_holder = map(holders.__contains__, map(id, map(type, everything)))
    return list(compress(everything, is_holder))


def _add(value: object, walk: Walk) -> bool:
    if family_of(type(value)) == "tensor":
        return walk.add(place_of(value), Owner(""), "tensors")
    attributes = attributes_of(value)
    name = attributes.get("_handle_name")
    path = name.partition(":")[0] if type(name) is str else ""
    role = role_of(f"{path}/Initializer/value")
    kind = role.kind if "/" in path else "variables"
    return walk.add(place_of_variable_in(attributes), Owner(""), kind, role.layer)


def _copied_from(held: Held, arrays: Mapping[tuple[int, ...], str]) -> str:
    """Name the array of which it must be a copy: `fit` makes one of all that it is given."""
    name = arrays.get(held.shape or ()) if held.bytes >= _LEAST_COPY_BYTES else None
    return f"{COPY_OF}{name}" if name else ""


def _owners_of(values: list[object]) -> dict[int, str]:
    """Find for each object the function whose variable holds it, a few steps up.

    Each step looks at all objects of the process: where there are millions, there are fewer steps.
    """
    found: dict[int, str] = {}
    ours = {id(values)}
    above: dict[int, set[int]] = {id(value): {id(value)} for value in values}
    level: list[object] = list(values)
    until_s = perf_counter() + _MOST_SECONDS
    for _ in range(_MOST_STEPS_UP):
        if not level or perf_counter() > until_s:
            break
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


def _note(found: dict[int, str], referrer: object, above: Mapping[int, set[int]]) -> None:
    if type(referrer) is not FrameType or _is_of_a_library(referrer):
        return
    for name, value in locals_of(referrer):
        for number in above.get(id(value), ()):
            found.setdefault(number, f"{name} in {referrer.f_code.co_name}")


def _owner_by_error(name: str, frame: FrameType) -> Owner:
    if _is_of_a_library(frame):
        return Owner("the last error", is_whole=True)
    return Owner(f"{name} in {frame.f_code.co_name}, by the last error")


def _is_of_a_library(frame: FrameType) -> bool:
    return any(folder in frame.f_code.co_filename for folder in _LIBRARIES)
