"""Something grows until it fills the device, or the host's memory."""

from collections.abc import Iterator

from oommagic.explain.case import Blame, Case, Judgement, of_missing
from oommagic.explain.growth import Growth, retraced
from oommagic.explain.wording import growth_sentence, plural, told_growth
from oommagic.report import RuledOut
from oommagic.units import format_bytes


def growth(case: Case) -> Judgement:
    """Something grows until it fills the place."""
    account = case.account
    grown = account.grown
    if grown is None:
        return _nothing_grew(case)
    if not account.explained_by(grown.total_bytes) and account.limit is not None:
        return RuledOut("growth", f"{told_growth(grown)}{of_missing(account)}.")
    return Blame(
        cause="growth",
        sentence=growth_sentence(grown, case.place, account.limit),
        part=told_growth(grown),
        confidence=account.confidence(),
        evidence=tuple(_of_growth(grown, case)),
        line_number=grown.line_number,
        line_source=grown.line_source,
        layer=grown.layer,
        owner=grown.owner,
    )


def host_growth(case: Case) -> Judgement:
    """Something grows in the process's own memory, and it is most of what the cell took."""
    account = case.account
    grown = account.grown
    if grown is None:
        return _nothing_grew(case)
    if account.missing is not None and not account.explained_by(grown.total_bytes):
        return RuledOut("growth", f"{told_growth(grown)}{of_missing(account)}.")
    taken = (account.in_use or 0) - (account.before or 0)
    if grown.total_bytes * 2 < taken:
        return RuledOut("growth", f"{told_growth(grown)}, of {format_bytes(taken)} that it took.")
    return Blame(
        cause="growth",
        sentence=growth_sentence(grown, "host memory", account.limit),
        part=told_growth(grown),
        confidence="likely",
        evidence=tuple(_of_growth(grown, case)),
        line_number=grown.line_number,
        line_source=grown.line_source,
        owner=grown.owner,
    )


def _of_growth(grown: Growth, case: Case) -> Iterator[str]:
    if grown.first_bytes or grown.last_bytes:
        yield (
            f"The least in use rose from {format_bytes(grown.first_bytes)} to "
            f"{format_bytes(grown.last_bytes)} in {plural(grown.per, grown.repeats)}."
        )
    if grown.op:
        yield f"What {grown.op} allocated in earlier steps was still there."
    traced = retraced(case.facts)
    if traced is not None and grown.what != "graphs":
        yield f"{traced.name} was traced {traced.traces} times."


def _nothing_grew(case: Case) -> RuledOut | None:
    if not (case.facts.timeline.lanes or case.facts.tapes or case.facts.held_before):
        return None
    return RuledOut("growth", "no figure went on rising.")
