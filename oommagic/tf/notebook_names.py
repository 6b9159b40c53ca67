"""The notebook's names: the user's own, and IPython's for what earlier cells gave."""

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_OUTPUTS = ("Out", "_oh")
_LAST_OUTPUTS = ("_", "__", "___")
_OUTPUT = re.compile(r"_\d+")
_IPYTHON = re.compile(r"_{1,3}|_i{1,3}|_i?\d+|_[iod]h|In|Out|exit|quit|get_ipython|__\w+__")


def is_the_users(name: str) -> bool:
    """Say whether it is none of the names that IPython and Python give by themselves."""
    return not _IPYTHON.fullmatch(name)


def earlier_outputs(names: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield what IPython keeps of earlier cells' last values, as one would write it."""
    for name in _OUTPUTS:
        outputs = names.get(name)
        if type(outputs) is dict:
            yield from [(f"Out[{number}]", value) for number, value in list(outputs.items())]
    for name, value in list(names.items()):  # a copy: other threads give names, too
        if type(name) is str and _OUTPUT.fullmatch(name):
            yield f"Out[{name[1:]}]", value
    for name in _LAST_OUTPUTS:
        yield name, names.get(name)


def outputs_meant(name: str, names: Mapping[str, object]) -> Iterator[str]:
    """Yield the earlier cells' values that a name of IPython's stands for: `Out[3]` for `_3`."""
    if _OUTPUT.fullmatch(name):
        yield f"Out[{name[1:]}]"
    if name not in _OUTPUTS and name not in _LAST_OUTPUTS:
        return
    value = names.get(name)
    for output, given in earlier_outputs(names):
        is_last = name in _LAST_OUTPUTS and value is not None and given is value
        if name in _OUTPUTS or is_last:
            yield output


def arrays_by_shape(namespace: Mapping[str, object]) -> Mapping[tuple[int, ...], str]:
    """Name the NumPy arrays by their shapes; the first of those that have the same."""
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    own: list[tuple[str, Any]] = [x for x in list(namespace.items()) if type(x[1]) is array]
    return {
        value.shape: name
        for name, value in reversed(own)
        if type(name) is str and is_the_users(name)
    }
