"""Another process holds part of the card."""

from oommagic.explain.account import Confidence
from oommagic.explain.case import Blame, Case, Judgement, of_missing
from oommagic.report import RuledOut
from oommagic.units import MIB, format_bytes

_LEAST_OTHERS = 64 * MIB


def no_room_on_the_card(case: Case) -> Judgement:
    """Another process has taken the card's own memory, whatever our allocator may still take."""
    gpu = case.facts.gpu(case.account.place)
    account = case.account
    if gpu is None or gpu.total_bytes is None or not gpu.used_by_others_bytes:
        return None
    if account.in_use is None or account.missing is None or account.missing > 0:
        return None
    room = gpu.total_bytes - gpu.used_by_others_bytes - account.in_use
    if room >= (account.asked or 0):
        return None
    return _others_hold(case, gpu.used_by_others_bytes, gpu.total_bytes, "likely")


def another_process(case: Case) -> Judgement:
    """Another process holds part of the card."""
    gpu = case.facts.gpu(case.account.place)
    if gpu is None or gpu.used_by_others_bytes is None:
        return None
    others = gpu.used_by_others_bytes
    if others < _LEAST_OTHERS or not case.account.explained_by(others):
        words = (
            f"other processes hold {format_bytes(others)} of it"
            if others
            else ("no other process holds any of it")
        )
        return RuledOut("another process", f"{words}{of_missing(case.account)}.")
    return _others_hold(case, others, gpu.total_bytes, case.account.confidence("likely"))


def _others_hold(case: Case, others: int, total: int | None, sure: Confidence) -> Blame:
    of_total = f" of its {format_bytes(total)}" if total is not None else ""
    held = f"other processes hold {format_bytes(others)}{of_total}"
    limit = case.account.limit
    got = f"; TensorFlow could take {format_bytes(limit)}" if limit is not None else ""
    return Blame(
        cause="another process",
        sentence=f"{case.place} is not ours alone: {held}{got}.",
        part=f"other processes hold {format_bytes(others)}",
        confidence=sure,
    )
