"""Enough is free in all, and no block of it is large enough."""

from oommagic.explain.case import Blame, Case, Judgement
from oommagic.report import RuledOut
from oommagic.units import format_bytes


def fragmentation(case: Case) -> Judgement:
    """Judge whether enough was free in all, but not in one piece."""
    account = case.account
    if account.missing is None or account.free is None:
        return None
    # Of an upper bound, as much may have been free as was asked for, or not.
    if not account.is_exact and account.missing > 0:
        return None
    asked, free = format_bytes(account.asked or 0), format_bytes(account.free)
    reason = _why_not(case, asked, free)
    return RuledOut("fragmentation", reason) if reason else _in_pieces(case, free, asked)


def _why_not(case: Case, asked: str, free: str) -> str:
    account, largest = case.account, case.failure.largest_free_bytes
    if (account.missing or 0) > 0:
        return f"{free} were free in all, less than the {asked} asked for."
    if largest is not None and largest >= (account.asked or 0):
        return f"a block of {format_bytes(largest)} was free."
    is_last = account.is_nearly_full and not case.failure.layer and not case.is_in_pieces
    if account.is_filled or is_last:
        return f"{free} were free in pieces, as the last of a device that is nearly full is."
    if not case.is_in_pieces:
        return (
            f"{free} were free in pieces, but no step has run through yet, and the rest of one "
            "asks for more."
        )
    return ""


def _in_pieces(case: Case, free: str, asked: str) -> Blame:
    largest, is_exact = case.failure.largest_free_bytes, case.account.is_exact
    block = "not in one piece"
    if largest is not None:
        block = f"no free block is larger than {format_bytes(largest)}"
    is_known = is_exact or case.account.is_of_now
    in_all = f"{free} are free in all" if is_known else f"at least {free} were free in all"
    return Blame(
        cause="fragmentation",
        sentence=(
            f"{case.place}'s memory is in pieces: {in_all}, but {block}, and "
            f"{asked} were asked for at once."
        ),
        part=f"{free} were free in all",
        confidence="certain" if largest is not None else "likely",
        layer=case.failure.layer,
    )
