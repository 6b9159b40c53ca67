"""Someone has set a limit below what the hardware has."""

from oommagic.explain.account import Account, Confidence
from oommagic.explain.case import Blame, Case, Judgement
from oommagic.explain.facts import SetLimit
from oommagic.report import HOST, RuledOut
from oommagic.units import format_bytes


def a_limit(case: Case) -> Judgement:
    """Someone has set a limit below what the hardware has."""
    device = "" if case.account.place == HOST else case.account.place
    found = (each for each in case.facts.limits if each.device == device)
    limit = min(found, key=lambda each: each.bytes, default=None)
    if limit is None or limit.hardware_bytes is None:
        return None
    needed = _wanted(case.account)
    if needed is not None and needed > limit.hardware_bytes:
        reason = (
            f"it wanted at least {format_bytes(needed)}, and without {limit.text} there would be "
            f"{format_bytes(limit.hardware_bytes)}."
        )
        return RuledOut("a limit", reason)
    if device and needed is not None and needed <= limit.bytes:
        return RuledOut("a limit", f"it wanted no more than {limit.text} allows.")
    return _limited(case, limit, limit.hardware_bytes, needed)


def _wanted(account: Account) -> int | None:
    if account.in_use is None:
        return account.asked
    return account.in_use + (account.asked or 0)


def _limited(case: Case, limit: SetLimit, hardware: int, needed: int | None) -> Blame:
    wanted = f"; it wanted at least {format_bytes(needed)}" if needed is not None else ""
    place = "Host memory" if case.account.place == HOST else case.place
    return Blame(
        cause="a limit",
        sentence=(
            f"{place} is held to {format_bytes(limit.bytes)} by {limit.text}, though there are "
            f"{format_bytes(hardware)}{wanted}."
        ),
        part=f"{limit.text} allows {format_bytes(limit.bytes)} of {format_bytes(hardware)}",
        confidence=_sure_of_limit(case, limit),
    )


def _sure_of_limit(case: Case, limit: SetLimit) -> Confidence:
    reached = _wanted(case.account)
    return "certain" if reached is not None and reached > limit.bytes else "likely"
