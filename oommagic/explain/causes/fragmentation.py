"""Enough is free in all, and no block of it is large enough."""

from oommagic.explain.case import Blame, Case, Judgement
from oommagic.report import RuledOut
from oommagic.units import format_bytes


def fragmentation(case: Case) -> Judgement:
    """Enough was free in all, no block was large enough."""
    account, largest = case.account, case.failure.largest_free_bytes
    if account.missing is None or not account.is_exact or account.limit is None:
        return None
    if account.missing > 0:
        reason = (
            f"{format_bytes(account.limit - (account.in_use or 0))} were free in all, less than "
            f"the {format_bytes(account.asked or 0)} asked for."
        )
        return RuledOut("fragmentation", reason)
    if largest is not None and largest >= (account.asked or 0):
        reason = f"a block of {format_bytes(largest)} was free."
        return RuledOut("fragmentation", reason)
    free = format_bytes(-account.missing + (account.asked or 0))
    block = (
        f"no free block is larger than {format_bytes(largest)}"
        if largest is not None
        else ("not in one piece")
    )
    return Blame(
        cause="fragmentation",
        sentence=(
            f"{case.place}'s memory is in pieces: {free} are free in all, but {block}, and "
            f"{format_bytes(account.asked or 0)} were asked for at once."
        ),
        part=f"{free} were free in all",
        confidence="certain" if largest is not None else "possible",
        layer=case.failure.layer,
    )
