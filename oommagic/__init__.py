"""oommagic: where the memory of a TensorFlow notebook went, line by line.

The public names are all here. Each is imported when it is first used: a profiler must not take
the memory that it measures.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oommagic._version import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from oommagic.report import Report, load
    from oommagic.session import last_report, profile
    from oommagic.tf.arena import use_device

__all__ = [
    "Report",
    "__version__",
    "last_report",
    "load",
    "profile",
    "use_device",
]

_HOMES = {
    "Report": "oommagic.report",
    "last_report": "oommagic.session",
    "load": "oommagic.report",
    "profile": "oommagic.session",
    "use_device": "oommagic.tf.arena",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Answer `%load_ext oommagic`."""
    from oommagic.magics import load

    load(shell)


def unload_ipython_extension(shell: "InteractiveShell") -> None:
    """Answer `%unload_ext oommagic`."""
    from oommagic.magics import unload

    unload(shell)
