"""Finds out by which names and attributes one thing is reached from another.

Nothing of the user's is run for it: dictionaries are looked into, no attribute is asked for.
"""

from collections import deque
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

_MOST_THINGS = 200_000


def way_to(wanted: object, start: tuple[tuple[str, object], ...]) -> str:
    """Give the shortest way as one would write it, `model.data[0]`; empty if none is found."""
    waiting = deque(start)
    seen = {id(thing) for _, thing in start}
    while waiting and len(seen) < _MOST_THINGS:
        path, thing = waiting.popleft()
        if thing is wanted:
            return path
        for step, inner in _steps(thing):
            if id(inner) not in seen:
                seen.add(id(inner))
                waiting.append((_joined(path, step), inner))
    return ""


def _joined(path: str, step: str) -> str:
    """Join a way and its next step; a name of the notebook begins a new way."""
    return path + step if step.startswith((".", "[")) else step


def _steps(thing: Any) -> Iterator[tuple[str, Any]]:
    # By its type: some objects only say that they are dictionaries.
    kind = type(thing)
    if issubclass(kind, dict):
        # Another thread of the user's may change it meanwhile.
        yield from ((f"[{_key(key)}]", value) for key, value in list(dict.items(thing)))
    elif issubclass(kind, list | tuple):
        yield from ((f"[{index}]", value) for index, value in enumerate(_items(thing)))
    elif issubclass(kind, FunctionType):
        yield from _names_of(thing)
    elif issubclass(kind, MethodType):
        yield from (("", thing.__func__), ("", thing.__self__))
    elif issubclass(kind, type):
        yield from ((f".{name}", value) for name, value in vars(thing).items())
    yield from _attributes(thing)


def _items(thing: list[Any] | tuple[Any, ...]) -> Iterator[Any]:
    return list.__iter__(thing) if isinstance(thing, list) else tuple.__iter__(thing)


def _key(key: object) -> str:
    return repr(key) if isinstance(key, str | int) else "…"


def _attributes(thing: object) -> Iterator[tuple[str, Any]]:
    try:
        held = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return
    if isinstance(held, dict) and not isinstance(thing, type):
        for name, value in list(held.items()):
            yield f".{name}", value


def _names_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names outside of it that a function uses."""
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield "", value
