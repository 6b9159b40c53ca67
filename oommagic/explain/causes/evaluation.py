"""Validation or prediction needs more than training."""

from oommagic.explain.case import OF_TRAINING, Blame, Case, Judgement
from oommagic.explain.wording import biggest_layer, largest_holders, needs
from oommagic.report import RuledOut
from oommagic.units import format_bytes


def evaluation(case: Case) -> Judgement:
    """Validation or prediction needs more than training."""
    what = _evaluating(case)
    if what is None:
        return _not_evaluating(case)
    account = case.account
    if case.is_in_pieces:
        return RuledOut("evaluation", "what it asked for was free in all.")
    return Blame(
        cause="evaluation",
        sentence=f"{what} is {_compared(case, what)}{_needs(case, what)}.",
        part=f"{what.lower()} ran when it failed",
        confidence=account.confidence("certain" if (account.missing or 0) > 0 else "likely"),
        evidence=tuple(largest_holders(case.facts, account)),
        layer=case.failure.layer or biggest_layer(case.facts, account),
    )


def _compared(case: Case, what: str) -> str:
    trained = _training_peak(case)
    if trained:
        return f"bigger than training, whose peak was {format_bytes(trained)}"
    fitted = ", where an epoch of training had fitted" if what == "Validation" else ""
    return f"too big for {case.place}{fitted}"


def _needs(case: Case, what: str) -> str:
    account = case.account
    if account.needed is None or account.limit is None:
        return ""
    size = case.facts.clues.batch_size(case.own_line)
    clue = case.clue("fit")
    if what == "Validation" and clue is not None:
        size = clue.validation_number or clue.number
    at_size = f"at batch size {size} " if size is not None else ""
    return f": {at_size}{needs(account)}"


def _evaluating(case: Case) -> str | None:
    stack = case.facts.stack
    if "fit" in stack and {"evaluate", "test_step", "test_function"} & set(stack):
        return "Validation"
    names = set(stack)
    clue = None if names & OF_TRAINING else case.clue("predict", "evaluate")
    if names & {"predict", "predict_step", "predict_on_batch"} or (clue and clue.kind == "predict"):
        return "Prediction"
    if names & {"evaluate", "test_step", "test_on_batch"} or (clue and clue.kind == "evaluate"):
        return "Evaluation"
    return None


def _not_evaluating(case: Case) -> RuledOut | None:
    clue = case.clue("fit")
    if clue is None or not clue.keywords & {"validation_data", "validation_split"}:
        return None
    if "gradient" in case.failure.op:
        return RuledOut("evaluation", "it failed at a gradient, which only training has.")
    return None


def _training_peak(case: Case) -> int | None:
    """Give the peak of another line that trained, in this cell or in the kernel's last ones."""
    account = case.account
    own = [
        line.devices[account.place].peak_bytes
        for line in case.facts.lines()
        if line.line_number != case.own_line
        and account.place in line.devices
        and case.facts.clues.at(line.line_number, "fit")
    ]
    return max(own, default=None)
