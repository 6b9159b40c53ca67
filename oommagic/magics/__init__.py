"""The magics: parse, call, display. The one place that knows IPython."""

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from oommagic.ipython_cell import MagicLine
from oommagic.magics import shown
from oommagic.magics.cells import CellProfiler
from oommagic.magics.commands import OommagicMagics, Shell
from oommagic.magics.place import saying_in_place
from oommagic.progress import say_elsewhere

__all__ = ["OommagicMagics", "load", "open_shell", "unload"]


def load(shell: Shell) -> None:
    """Add the magics to a shell; once is enough, and twice does no harm."""
    unload(shell)
    magic_line = MagicLine()
    profiler = CellProfiler(shell, magic_line)
    shell.register_magics(OommagicMagics)
    shell.input_transformers_cleanup.insert(0, magic_line)
    shell.events.register("pre_run_cell", profiler.before_cell)
    shell.events.register("post_run_cell", profiler.after_cell)
    shown.teach(shell.display_formatter)
    # Written to a notebook's screen, it would leave an empty red box behind.
    say_elsewhere(saying_in_place if hasattr(shell, "kernel") else None)


def open_shell() -> Shell:
    """Start a shell in this process, with the magics and without a history file."""
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "oommagic")
    return shell


def unload(shell: Shell) -> None:
    """Take the magics away again."""
    transformers = shell.input_transformers_cleanup
    transformers[:] = [known for known in transformers if not isinstance(known, MagicLine)]
    for event in ("pre_run_cell", "post_run_cell"):
        for callback in list(shell.events.callbacks[event]):
            profiler = getattr(callback, "__self__", None)
            if isinstance(profiler, CellProfiler):
                profiler.give_up()
                shell.events.unregister(event, callback)
    shell.magics_manager.magics["cell"].pop("oomprofile", None)
    for name in ("oombatch", "oomdevice", "oomfix", "oomtry", "oomwhy"):
        shell.magics_manager.magics["line"].pop(name, None)
    shown.forget(shell.display_formatter)
    say_elsewhere(None)
