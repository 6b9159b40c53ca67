"""The step itself needs more than there is."""

from oommagic.explain.case import HOW_TO_KNOW, Blame, Case, Judgement
from oommagic.explain.wording import asked_for, biggest, biggest_layer, largest_holders, needs
from oommagic.report import RuledOut
from oommagic.units import format_bytes


def step_too_big(case: Case) -> Judgement:
    """The step itself needs more than there is."""
    account = case.account
    if case.is_in_pieces:
        return RuledOut("step too big", "what it asked for was free in all.")
    if account.asked_alone_is_too_much:
        return _one_tensor_too_big(case)
    needed = account.needed
    if needed is None or account.limit is None or account.in_use is None:
        return _perhaps_too_big(case)
    if needed <= account.limit and account.missing is not None and account.missing > 0:
        so_far = f"{format_bytes(needed)} of {format_bytes(account.limit)}"
        return RuledOut("step too big", f"the step itself needed {so_far} until then.")
    return _too_big(case, needed, account.limit)


def _too_big(case: Case, needed: int, limit: int) -> Blame:
    account = case.account
    return Blame(
        cause="step too big",
        sentence=(
            f"The step is too big for {case.place}: {_at_batch(case)}{needs(account)}"
            f"{biggest(case.facts, account)}."
        ),
        part=f"the step needs {format_bytes(needed)}",
        confidence=account.confidence("certain" if needed > limit else "likely"),
        evidence=tuple(largest_holders(case.facts, account)),
        layer=case.failure.layer or biggest_layer(case.facts, account),
    )


def _at_batch(case: Case) -> str:
    size = case.facts.clues.batch_size(case.own_line)
    return f"at batch size {size} " if size is not None else ""


def _one_tensor_too_big(case: Case) -> Blame:
    account, failure = case.account, case.failure
    layer = f" for {failure.layer}" if failure.layer else ""
    what = "compiled step" if failure.kind == "compile" else "tensor"
    return Blame(
        cause="step too big",
        sentence=(
            f"The step is too big for {case.place}: {_at_batch(case)}one {what} alone"
            f"{layer} takes {format_bytes(account.asked or 0)}, and {case.place} has "
            f"{format_bytes(account.limit or 0)} in all."
        ),
        part=f"one {what} takes {format_bytes(account.asked or 0)}",
        confidence="certain",
        evidence=tuple(largest_holders(case.facts, account)),
        layer=failure.layer,
    )


def _perhaps_too_big(case: Case) -> Judgement:
    """Without figures: a layer's op failed, so it was a step, but not why there was no room."""
    if not case.failure.layer:
        return None
    return Blame(
        cause="step too big",
        sentence=(
            f"{case.place} had no room for {asked_for(case.failure)} in {case.failure.layer}: the "
            "step may be too big for it, but what else was there is not known."
        ),
        part="a layer's own memory was asked for",
        confidence="possible",
        evidence=(HOW_TO_KNOW,),
        layer=case.failure.layer,
    )
