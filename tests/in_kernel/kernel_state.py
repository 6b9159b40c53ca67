"""Runs inside a kernel under test: what a cell must leave as it found it, as plain text values.

It puts no name into the user's namespace and is asked for by a silent request, which IPython
neither numbers nor keeps.
"""

import asyncio
import atexit
import builtins
import decimal
import gc
import json
import locale
import logging
import os
import re
import resource
import signal
import sys
import threading
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

SQLITE_FILE = re.compile(r"/#\d+ \(deleted\)$|history\.sqlite")
"""IPython's own history comes and goes on its own thread."""
HEAVY_MODULES = ("tensorflow", "numpy", "matplotlib", "pandas", "ipywidgets", "anywidget")
SHELL_PARTS = (
    "input_transformers_cleanup",
    "input_transformers_post",
    "ast_transformers",
    "ast_node_interactivity",
    "custom_exceptions",
    "compile",
    "display_formatter",
    "display_pub",
    "displayhook",
    "showtraceback",
    "showsyntaxerror",
    "run_cell",
    "run_cell_async",
    "run_code",
    "set_next_input",
)


def snapshot() -> str:
    """Say everything about the kernel that only the user's code may change, as JSON."""
    shell = InteractiveShell.instance()
    parts = {
        **{f"process: {key}": value for key, value in _process().items()},
        **{f"interpreter: {key}": value for key, value in _interpreter().items()},
        **{f"libraries: {key}": value for key, value in _libraries().items()},
        **{f"IPython: {key}": value for key, value in _ipython(shell).items()},
        **{f"name: {key}": type(value).__qualname__ for key, value in shell.user_ns.items()},
        **{f"environment: {key}": value for key, value in os.environ.items()},
    }
    return json.dumps(parts, default=repr)


def _process() -> dict[str, object]:
    return {
        "file descriptors": _counted(_open_files()),
        "limits": [
            f"{name}={resource.getrlimit(getattr(resource, name))}"
            for name in sorted(dir(resource))
            if name.startswith("RLIMIT_")
        ],
        "directory": os.getcwd(),  # noqa: PTH109  # the process's, as it says it
        "files": sorted(f"{path.name} {path.stat().st_size}" for path in Path().iterdir()),
        "signal handlers": [f"{s.name}={signal.getsignal(s)!r}" for s in signal.Signals],
        "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "timers": [signal.getitimer(t)[1] for t in (signal.ITIMER_REAL, signal.ITIMER_PROF)],
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "processors": sorted(os.sched_getaffinity(0)),
        "locale": locale.setlocale(locale.LC_ALL),
        "children": _children(),
    }


def _interpreter() -> dict[str, object]:
    return {
        "threads": sorted(type(thread).__name__ for thread in threading.enumerate()),
        "native threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208
        "tracer": repr(sys.gettrace()),
        "tracer of new threads": repr(threading.gettrace()),
        "profiler": repr(sys.getprofile()),
        "profiler of new threads": repr(threading.getprofile()),
        "monitoring tools": _monitoring_tools(),
        "switch interval": sys.getswitchinterval(),
        "recursion limit": sys.getrecursionlimit(),
        "garbage collector": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks],
        "tracemalloc": tracemalloc.is_tracing(),
        "hooks": [
            repr(hook)
            for hook in (
                sys.displayhook,
                sys.excepthook,
                sys.unraisablehook,
                sys.breakpointhook,
                threading.excepthook,
            )
        ],
        "streams": [type(s).__name__ for s in (sys.stdin, sys.stdout, sys.stderr)],
        "path": sys.path,
        "finders": list(map(repr, [*sys.meta_path, *sys.path_hooks])),
        "builtins": sorted(vars(builtins)),
        "exit callbacks": atexit._ncallbacks(),
        "heavy modules": [name for name in HEAVY_MODULES if name in sys.modules],
    }


def _libraries() -> dict[str, object]:
    root = logging.getLogger()
    return {
        "warning filters": list(map(repr, warnings.filters)),
        "showwarning": repr(warnings.showwarning),
        "logging": [root.level, root.handlers, logging.root.manager.disable],
        "decimal": repr(decimal.getcontext()),
        "tasks": _tasks(),
    }


def _ipython(shell: InteractiveShell) -> dict[str, object]:
    return {
        **{part: _listed(getattr(shell, part, None)) for part in SHELL_PARTS},
        "callbacks": [f"{n} {h!r}" for n, hooks in shell.events.callbacks.items() for h in hooks],
        "magics": [f"{k} {n}" for k, named in shell.magics_manager.magics.items() for n in named],
        "extensions": sorted(getattr(shell.extension_manager, "loaded", [])),
        "execution count": shell.execution_count,
        "In": shell.user_ns.get("In", [])[-1:],
        "Out": sorted(shell.user_ns.get("Out", {})),
        "last value": _brief(shell.user_ns.get("_")),
        "last error": [_brief(getattr(sys, "last_value", None))],
    }


def _open_files() -> Iterable[str]:
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            target = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115
        except FileNotFoundError:
            continue
        if SQLITE_FILE.search(target):
            continue
        yield target.partition(":[")[0]


def _counted(names: Iterable[str]) -> Mapping[str, int]:
    return dict(sorted(Counter(names).items()))


def _children() -> int:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return len(path.read_text().split()) if path.exists() else 0


def _monitoring_tools() -> list[str]:
    if sys.version_info < (3, 12):
        return []
    held = ((tool, sys.monitoring.get_tool(tool)) for tool in range(6))
    return [f"{tool} {name} {sys.monitoring.get_events(tool)}" for tool, name in held if name]


def _tasks() -> list[str]:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return []
    coroutines = (task.get_coro() for task in asyncio.all_tasks(loop))
    return sorted(getattr(coroutine, "__qualname__", "") for coroutine in coroutines)


def _listed(value: object) -> object:
    return list(map(repr, value)) if isinstance(value, list) else repr(value)


def _brief(value: object) -> str:
    is_harmless = isinstance(value, int | float | str)
    return f"{type(value).__qualname__} {value if is_harmless else ''}"[:200]
