"""oommagic: where the memory of a TensorFlow notebook went, line by line.

The public names are all here. Each is imported when it is first used: a profiler must not take
the memory that it measures.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oommagic._version import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from oommagic.block import profile
    from oommagic.explain.plan import Plan
    from oommagic.planning import max_batch, plan
    from oommagic.report import Report, load
    from oommagic.session import last_report, try_fixes, use_device, why
    from oommagic.show.figures import figure
    from oommagic.show.widgets import timeline

__all__ = [
    "Plan",
    "Report",
    "__version__",
    "figure",
    "last_report",
    "load",
    "max_batch",
    "plan",
    "profile",
    "timeline",
    "try_fixes",
    "use_device",
    "why",
]

# Where each public name lives, and what it is called there.
_HOMES = {
    "Plan": ("oommagic.explain.plan", "Plan"),
    "Report": ("oommagic.report", "Report"),
    "figure": ("oommagic.show.figures", "figure"),
    "last_report": ("oommagic.session", "last_report"),
    "load": ("oommagic.report", "load"),
    "max_batch": ("oommagic.planning", "max_batch"),
    "plan": ("oommagic.planning", "plan"),
    "profile": ("oommagic.block", "profile"),
    "timeline": ("oommagic.show.widgets", "timeline"),
    "try_fixes": ("oommagic.session", "try_fixes"),
    "use_device": ("oommagic.session", "use_device"),
    "why": ("oommagic.session", "why"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, called = _HOMES[name]
    return getattr(import_module(home), called)


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
