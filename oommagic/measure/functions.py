"""The functions that were asked for by name: finding them, and their code."""

import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType

from oommagic.cell import CellText
from oommagic.recording import Listing

_MISSING = object()


def find_function(name: str, namespace: Mapping[str, object]) -> FunctionType | None:
    """Find a function by dotted name, in the notebook first and then in imported modules.

    Nothing is imported for it: importing has effects, and takes memory.
    """
    found = _follow(namespace.get(name.split(".", maxsplit=1)[0], _MISSING), name.split(".")[1:])
    return found or _find_in_modules(name.split("."))


def listing_of(name: str, function: FunctionType) -> Listing | None:
    """Return where the lines of a function stand; None if its source is not to be had."""
    try:
        lines, first_line = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return None
    text = CellText.of_function(lines)
    return Listing(name, function.__code__.co_filename, first_line, text)


def code_and_nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all that are defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_and_nested(constant)


def line_span(code: CodeType) -> tuple[int, int]:
    """Return the first and the last line of a code object, nested ones included."""
    lines = [line for inner in code_and_nested(code) for _, _, line in inner.co_lines() if line]
    return code.co_firstlineno, max([code.co_firstlineno, *lines])


def _find_in_modules(parts: list[str]) -> FunctionType | None:
    for length in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:length]))
        if module is not None:
            return _follow(module, parts[length:])
    return None


def _follow(found: object, attributes: list[str]) -> FunctionType | None:
    for attribute in attributes:
        found = inspect.getattr_static(found, attribute, _MISSING)
    return _unwrapped(found)


def _unwrapped(found: object) -> FunctionType | None:
    """Look through methods, partials, decorators and tf.functions to the function itself."""
    seen: set[int] = set()
    while id(found) not in seen:
        if isinstance(found, FunctionType) and "__wrapped__" not in found.__dict__:
            return found
        seen.add(id(found))
        found = _inner(found)
    return None


def _inner(found: object) -> object:
    if isinstance(found, functools.partial | functools.partialmethod):
        return found.func
    if isinstance(found, staticmethod | classmethod | MethodType):
        return found.__func__
    if isinstance(found, property):
        return found.fget
    # Statically, since a user's class may do anything when it is asked for an attribute.
    wrapped = inspect.getattr_static(found, "__wrapped__", _MISSING)
    return found if wrapped is _MISSING else wrapped
