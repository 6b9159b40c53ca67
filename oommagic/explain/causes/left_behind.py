"""What an earlier cell or attempt has left fills the device."""

from collections.abc import Iterator

from oommagic.explain.account import Account, Confidence
from oommagic.explain.case import Blame, Case, Judgement, of_missing
from oommagic.explain.wording import a_list
from oommagic.report import RuledOut
from oommagic.units import format_bytes

_NAMED_AT_MOST = 3
_LEAST_BESIDE_LARGEST = 0.05


def left_behind(case: Case) -> Judgement:
    """Judge whether there would have been room without what was there before."""
    account = case.account
    if account.before is None and not account.left:
        return None
    if not case.is_explained_by(account.left_bytes):
        return RuledOut("left behind", _why_not_left(account))
    if not account.left_counts:
        return RuledOut("left behind", _too_little(account))
    asked = format_bytes(account.asked) if account.asked is not None else "more"
    return Blame(
        cause="left behind",
        sentence=(
            f"{_held_before(account)}: without that, {case.place} would have had room for the "
            f"{asked} that was asked for."
        ),
        part=f"it holds {format_bytes(account.left_bytes)} that the cell does not use",
        confidence=_sure_of_left(case),
        evidence=tuple(_of_earlier(case)),
        owner=_largest_owner(account),
    )


def _why_not_left(account: Account) -> str:
    if not account.left:
        if not account.before:
            return "nothing was in use before the cell."
        return f"the cell uses the {format_bytes(account.before)} that were there before."
    return f"what it does not use holds {format_bytes(account.left_bytes)}{of_missing(account)}."


def _too_little(account: Account) -> str:
    left, limit = format_bytes(account.left_bytes), format_bytes(account.limit or 0)
    return f"what it does not use holds only {left} of {limit}."


def _named(account: Account) -> list[tuple[str, int]]:
    """Give the names that hold most of it, the largest first; small change is none of it."""
    named = [(name, size) for name, size in account.left if name]
    least = max((size for _, size in named), default=0) * _LEAST_BESIDE_LARGEST
    return [(name, size) for name, size in named if size >= least]


def _largest_owner(account: Account) -> str:
    name, size = account.left[0]
    return name if size * 2 >= account.left_bytes else ""


def _held_before(account: Account) -> str:
    """Name what was left, or say that it has no name."""
    whole, named = format_bytes(account.left_bytes), _named(account)
    if not named:
        return f"{whole} were in use before the cell began, held by no name that is known"
    names = [f"`{name}` {format_bytes(size)}" for name, size in named[:_NAMED_AT_MOST]]
    if len(account.left) == 1:
        return f"{names[0]} is left from before, and the cell does not use it"
    unnamed = f", the largest of it by {a_list(names)}" if len(named) > 1 else f", with {names[0]}"
    return f"What ran before still holds {whole} that the cell does not use{unnamed}"


def _sure_of_left(case: Case) -> Confidence:
    if any(run.outcome.kind == "finished" for run in case.facts.earlier_runs()):
        return case.account.confidence()  # the same cell fitted when there was less
    return case.account.confidence("likely") if case.account.is_left_known else "possible"


def _of_earlier(case: Case) -> Iterator[str]:
    account, named = case.account, _named(case.account)
    if account.before is not None:
        yield f"{format_bytes(account.before)} were in use on {case.place} before the cell began."
    if named[1:]:
        yield a_list([f"`{name}` holds {format_bytes(size)}" for name, size in named]) + "."
    unnamed = sum(size for name, size in account.left if not name)
    if unnamed:
        yield f"{format_bytes(unnamed)} have no name in the notebook."
    yield from _of_errors(case)


def _of_errors(case: Case) -> Iterator[str]:
    """Say that an earlier error may hold it: Python keeps what its functions had in hand."""
    failed = [run for run in case.facts.earlier_runs() if run.outcome.kind == "failed"]
    last = case.facts.earlier[-1] if case.facts.earlier else None
    if failed:
        times = "once" if len(failed) == 1 else f"{len(failed)} times"
        yield f"This cell has failed {times} before; what its error still holds stays in memory."
    elif last is not None and last.outcome.kind == "failed":
        yield "The cell before this one failed; what its error still holds stays in memory."
