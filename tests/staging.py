"""Notebooks that run out of memory, each in a child with a small training device, and why."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from children import ARENA, run_after_import

PROFILE = "%%oomprofile -q\n"

SMALL_HOST = """
import contextlib, resource
@contextlib.contextmanager
def small_host(more_mb):
    with open("/proc/self/status") as status:
        kib = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (kib * 1024 + more_mb * 2**20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
"""
"""Stands for a machine with little memory left, in the body of `with small_host(600):`."""

_PROGRAM = """
import dataclasses, sys, time
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config)
shell.run_line_magic("colors", "NoColor")

def load():
    import oommagic
    if "oomwhy" not in shell.magics_manager.magics["line"]:
        shell.run_line_magic("load_ext", "oommagic")
    return oommagic

def verdict_by_itself():
    load()
    from oommagic.session import explain
    return explain(None, shell.user_ns).verdict

def asked_afterwards(error):
    with capture_output() as said:
        started = time.perf_counter()
        load()
        shell.run_line_magic("oomwhy", "")
        seconds = time.perf_counter() - started
    return said.outputs[0].data["text/plain"] if said.outputs else said.stdout, seconds

told["cells"] = []
for cell in json.loads(CELLS):
    is_profiled = cell.startswith("%%oomprofile")
    if is_profiled:
        load()
    ran = shell.run_cell(cell, store_history=True)
    error = ran.error_before_exec or ran.error_in_exec
    end = {"error": type(error).__name__ if error else "", "profiled": is_profiled}
    was_loaded = "oommagic" in sys.modules
    if error or is_profiled:
        end["why"], end["seconds"] = asked_afterwards(error)
        verdict = verdict_by_itself()
        end["verdict"] = dataclasses.asdict(verdict)
        end["was_loaded"] = was_loaded
        if is_profiled:
            reported = load().last_report().verdict
            assert reported is None or reported == verdict
    told["cells"].append(end)
    if error and UNTIL_FAILURE:
        break
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How one cell ended, and what was said of it."""

    error: str
    cause: str = ""
    sentence: str = ""
    confidence: str = ""
    line_source: str = ""
    layer: str = ""
    owner: str = ""
    evidence: tuple[str, ...] = ()
    ruled_out: tuple[tuple[str, str], ...] = ()
    why: str = ""
    """What `%oomwhy` said."""
    seconds: float = 0.0
    """How long that took."""
    was_loaded: bool = False
    """Whether oommagic had been imported when it failed."""


def run_cells(
    begin: str,
    *cells: str,
    device_mb: int | None = 256,
    profiled: bool = False,
    until_failure: bool = False,
) -> list[Ended]:
    """Run cells in a new kernel; those that failed or were profiled have a verdict.

    `profiled` puts the magic on top of all cells but the first; without `device_mb` there is no
    training device.
    """
    arena = ARENA | {"TF_CPU_BFC_MEM_LIMIT_IN_MB": str(device_mb)} if device_mb else {}
    magic = PROFILE if profiled else ""
    texts = [_text(begin), *(_text(magic + cell) for cell in cells)]
    head = f"CELLS = {json.dumps(texts)!r}\nUNTIL_FAILURE = {until_failure}\n"
    told = run_after_import(head + _PROGRAM, arena)
    return [_ended(cell) for cell in told["cells"]]


def _text(cell: str) -> str:
    """Take a cell's indentation away, with or without the magic on top of it."""
    body = textwrap.dedent(cell.removeprefix(PROFILE)).strip() + "\n"
    return PROFILE + body if cell.startswith(PROFILE) else body


def _ended(cell: dict[str, Any]) -> Ended:
    verdict = cell.get("verdict")
    if verdict is None:
        return Ended(cell["error"])
    return Ended(
        error=cell["error"],
        **{name: verdict[name] for name in _SAID},
        evidence=tuple(verdict["evidence"]),
        ruled_out=tuple((each["cause"], each["reason"]) for each in verdict["ruled_out"]),
        why=cell["why"],
        seconds=cell["seconds"],
        was_loaded=cell["was_loaded"],
    )


_SAID: Sequence[str] = ("cause", "sentence", "confidence", "line_source", "layer", "owner")
