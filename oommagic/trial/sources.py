"""The source of the notebook's functions: TensorFlow's AutoGraph reads it, in a child too."""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType


def source_lines(function: FunctionType) -> tuple[str, list[str]] | None:
    """Give the name and the lines of a source that is in no file, as a cell is."""
    filename = function.__code__.co_filename
    match linecache.cache.get(filename):
        case (_, _, list(lines), _) if not Path(filename).exists():
            return filename, lines
    return None


def publish(sources: Mapping[str, list[str]]) -> None:
    """Let Python find these sources, as IPython does with its cells."""
    for filename, lines in sources.items():
        linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)


def names_in_annotations(function: FunctionType) -> Iterator[str]:
    """Yield the names that a function's definition needs, but not its code.

    AutoGraph makes a new function from the source, and runs its definition once more.
    """
    if not function.__annotations__:
        return
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, TypeError, ValueError):  # there is no source of it alone
        return
    if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = [each for each in ast.walk(definition.args) if isinstance(each, ast.arg)]
        for annotation in (*(each.annotation for each in arguments), definition.returns):
            if annotation is not None:
                yield from (n.id for n in ast.walk(annotation) if isinstance(n, ast.Name))
