"""Has an array that does not fit on the training device raise, where the process would end.

When TensorFlow makes a tensor of a NumPy array or a Python list, it asks its allocator for memory
and writes into what it gets, also where it got none. Ops ask with more care, and raise. So on a
small device a function of ours stands in for TensorFlow's: where memory is scarce an op asks for
as much first, and gives it back before the array is copied.

The op is one that allocates a tensor and takes none: there may be no room for its shape, either.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, wraps
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from math import prod
from types import ModuleType
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.tf import arena

keep_builtins(globals())

_MODULE = "tensorflow.python.framework.constant_op"
_FUNCTION = "convert_to_eager_tensor"
_DEVICE = "CPU:0"
_EXECUTE = "tensorflow.python.eager.execute"
_ERRORS = "tensorflow.python.framework.errors_impl"
_TYPES = "tensorflow.python.framework.dtypes"

_OP = "_ParallelConcatStart"
# By this one a GPU is given an array. The error names it, since nobody has called ours.
_ARRAY_OP = "_EagerConst"

# A device with room for so many of one size has a block for one, in however many pieces it is.
_PLENTY = 16
# What TensorFlow makes of Python's numbers, unless it is told a type.
_OF_PYTHON = {bool: "bool", int: "int32", float: "float32", complex: "complex128"}


def ask_for_room_first() -> None:
    """Have arrays ask from now on, or from TensorFlow's import on; once is enough."""
    module = sys.modules.get(_MODULE)
    if hasattr(module, _FUNCTION):
        _stand_in(module)
    elif not any(isinstance(finder, _AtImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AtImport())


def as_told(message: str) -> str:
    """Give an error's text as users see it, who have not called our op."""
    return message.replace(_OP, _ARRAY_OP)


class _AtImport(MetaPathFinder):
    """Finds TensorFlow's module as it is found without us, and stands in when it has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            loader.exec_module = _running_and_standing_in(loader)
        return spec


def _running_and_standing_in(loader: Any) -> Callable[[ModuleType], None]:
    run = loader.exec_module

    def run_and_stand_in(module: ModuleType) -> None:
        del loader.exec_module
        run(module)
        _stand_in(module)

    return run_and_stand_in


def _stand_in(module: Any) -> None:
    theirs = getattr(module, _FUNCTION, None)
    if theirs is not None and not hasattr(theirs, "asks_for_room"):
        setattr(module, _FUNCTION, _asking(theirs))


def _asking(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(theirs)
    def ask_and_convert(value: Any, ctx: Any, dtype: Any = None) -> Any:
        _ask(value, ctx, dtype)
        return theirs(value, ctx, dtype)

    ask_and_convert.asks_for_room = True  # type: ignore[attr-defined]  # a mark of ours
    return ask_and_convert


def _ask(value: Any, ctx: Any, dtype: Any) -> None:
    """Raise if there is no room for a tensor of that value; what is no array needs next to none."""
    array_type = sys.modules["numpy"].ndarray
    if not isinstance(value, (array_type, list, tuple)):
        return
    shape, own_type = _shape_and_type(value, array_type)
    made = _number_type(own_type if dtype is None else dtype)
    if made is None:
        return
    ctx.ensure_initialized()
    if ctx.num_gpus() == 0 and _is_scarce(prod(shape) * made.size, ctx):
        _allocate(shape, made, ctx)


def _allocate(shape: tuple[int, ...], made: Any, ctx: Any) -> None:
    """Take the memory of such a tensor, and give it back; the newest types have no such op."""
    attributes = ("shape", shape, "dtype", made.as_datatype_enum)
    errors = import_module(_ERRORS)
    try:
        import_module(_EXECUTE).execute(_OP.encode(), 1, [], attributes, ctx)
    except errors.NotFoundError:
        pass
    except errors.ResourceExhaustedError as error:
        error._message = as_told(error.message)  # noqa: SLF001 (no public way)
        raise


def _shape_and_type(value: Any, array_type: type) -> tuple[tuple[int, ...], Any]:
    """Tell an array's shape and type, or those of what is made of a list, by its first items."""
    shape: tuple[int, ...] = ()
    while type(value) in (list, tuple):
        shape += (len(value),)
        value = value[0] if value else None
    if isinstance(value, array_type):
        return shape + value.shape, value.dtype  # type: ignore[attr-defined]  # just seen to be one
    return shape, _OF_PYTHON.get(type(value), getattr(value, "dtype", None))


def _number_type(given: Any) -> Any:
    """Give TensorFlow's own type of numbers; None where it has none, or a size of no meaning."""
    with suppress(TypeError):
        found = import_module(_TYPES).as_dtype(given)
        if found.is_bool or found.is_floating or found.is_integer or found.is_complex:
            return found
    return None


def _is_scarce(size: int, ctx: Any) -> bool:
    limit_bytes = _limit_bytes()
    if limit_bytes is None:
        return False
    in_use_bytes: int = ctx.get_memory_info(_DEVICE)["current"]
    return limit_bytes - in_use_bytes < _PLENTY * size


@cache
def _limit_bytes() -> int | None:
    """Give what the training device has; asked for when there are devices, which stay."""
    here = arena.current()
    return here.limit_bytes if here is not None and here.is_running else None
