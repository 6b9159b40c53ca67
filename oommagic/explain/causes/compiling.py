"""The step is being compiled, or a library tries which kernel is fastest."""

from oommagic.explain.account import Account
from oommagic.explain.case import Blame, Case, Judgement
from oommagic.report import RuledOut
from oommagic.units import format_bytes

_LIBRARY = "cuDNN found no room for the scratch memory with which it tries its kernels"
_AUTOTUNER = "XLA found no room while it tried which kernel is fastest"
_COMPILER = "XLA found no room while it compiled or loaded the step"


def compiling(case: Case) -> Judgement:
    """Judge whether there was no room for what comes before the step itself."""
    failure, account = case.failure, case.account
    what = _at_work(case)
    if failure.kind == "compile" and what is _COMPILER and _is_the_step(account):
        asked = format_bytes(account.asked or 0)
        reason = f"{asked} at once are what the compiled step needs, not its compilation."
        return RuledOut("compiling", reason)
    if not what:
        return None
    layer = f" in {failure.layer}" if failure.layer else ""
    return Blame(
        cause="compiling",
        sentence=f"{what}{layer}{_free_words(account)}.",
        part="memory was asked for to compile or to try kernels",
        confidence="possible" if what is _COMPILER else "likely",
        layer=failure.layer,
    )


def _at_work(case: Case) -> str:
    """Say who found no room, if it was not the step."""
    told = (case.failure.text.lower(), *case.facts.stack)
    if case.failure.kind == "scratch":
        return _LIBRARY
    if any("autotun" in each for each in told):
        return _AUTOTUNER
    return _COMPILER if case.failure.kind == "compile" else ""


def _is_the_step(account: Account) -> bool:
    """Say whether what XLA asked for is too much for the device as it was: its step's buffers."""
    return account.asked_alone_is_too_much or (account.missing or 0) > 0


def _free_words(account: Account) -> str:
    if account.limit is None or account.in_use is None:
        return ""
    free = format_bytes(max(0, account.limit - account.in_use))
    return f": {free} of {account.place}'s {format_bytes(account.limit)} were free"
