"""The data set itself lies on the device, or was to be copied there as a whole."""

from collections.abc import Iterator

from oommagic.explain.account import Account, Confidence
from oommagic.explain.case import Blame, Case, Judgement, of_missing
from oommagic.explain.growth import Growth
from oommagic.explain.wording import a_list, shape_words
from oommagic.recording import COPY_OF
from oommagic.report import RuledOut
from oommagic.units import format_bytes

_NAMED_AT_MOST = 3
_OF_AN_ARRAY = "_EagerConst"


def data_on_the_device(case: Case) -> Judgement:
    """The data set itself lies on the device."""
    if _is_data_itself(case):
        return _data_asked_for(case)
    account = case.account
    if account.buffer is not None and account.explained_by(account.buffer.total_bytes):
        return _buffer_on_the_device(case, account.buffer)
    if not case.is_explained_by(account.data_bytes):
        return _not_data(case)
    name, size = account.data[0]
    return Blame(
        cause="data on the device",
        sentence=(
            f"The data set itself is on {case.place}: {_names_of_data(account)}"
            f"{_of_limit(account)}, and the step had no room beside it."
        ),
        part=f"{format_bytes(account.data_bytes)} of data are on it",
        confidence=account.confidence("likely"),
        evidence=tuple(_of_slices(case)),
        owner=name if case.facts.uses(name) and size * 2 > account.data_bytes else "",
    )


def _not_data(case: Case) -> RuledOut | None:
    if not (case.facts.compositions or case.facts.held_after):
        return None
    return RuledOut("data on the device", f"{_on_it(case)}{of_missing(case.account)}.")


def _on_it(case: Case) -> str:
    if case.account.data:
        return f"{format_bytes(case.account.data_bytes)} of data lie on it"
    copies = (
        f"{held.owner} takes {format_bytes(held.bytes)}"
        for composition in case.facts.compositions
        for held in composition.holdings
        if held.kind == "tensors" and held.owner.startswith(COPY_OF)
    )
    return a_list(list(copies)[:_NAMED_AT_MOST]) or "no data set lies on it"


def _is_data_itself(case: Case) -> bool:
    """Say whether it was an array on its way to the device that found no room."""
    failure = case.failure
    if failure.layer or failure.op not in {"", _OF_AN_ARRAY, "Const"}:
        return failure.kind == "copy" and case.clue("from_tensor_slices", "tensor") is not None
    if failure.kind == "copy" or failure.op == _OF_AN_ARRAY:
        return True
    return case.clue("from_tensor_slices", "tensor") is not None and not failure.op


def _data_asked_for(case: Case) -> Blame:
    account = case.account
    asked = f", {shape_words(case.failure)}" if case.failure.shape else ""
    size = f" of {format_bytes(account.asked)}" if account.asked is not None else ""
    has = f" ({format_bytes(account.limit)})" if account.limit is not None else ""
    clue = case.clue("from_tensor_slices", "tensor", "fit", "evaluate", "predict")
    source = clue.text if clue is not None else case.failure.line_source.strip()
    by = f" by `{source}`" if source else ""
    sure: Confidence = "likely" if clue is not None else "possible"
    return Blame(
        cause="data on the device",
        sentence=f"An array{size}{asked} did not fit on {case.place}{has}, where it was copied "
        f"as a whole{by}.",
        part=f"an array{size} was to be copied to it",
        confidence="certain" if account.asked_alone_is_too_much else sure,
    )


def _buffer_on_the_device(case: Case, buffer: Growth) -> Blame:
    return Blame(
        cause="data on the device",
        sentence=(
            f"The data set's buffer fills {case.place}: `{buffer.maker}` has taken "
            f"{format_bytes(buffer.total_bytes)}{_of_limit(case.account)}."
        ),
        part=f"`{buffer.maker}` has taken {format_bytes(buffer.total_bytes)}",
        confidence="likely",
        owner=buffer.owner,
    )


def _names_of_data(account: Account) -> str:
    named = [f"`{name}` takes {format_bytes(size)}" for name, size in account.data if name]
    return a_list(named[:_NAMED_AT_MOST]) or f"it takes {format_bytes(account.data_bytes)}"


def _of_limit(account: Account) -> str:
    return f" of {format_bytes(account.limit)}" if account.limit is not None else ""


def _of_slices(case: Case) -> Iterator[str]:
    for clue in case.facts.clues.of("from_tensor_slices", "tensor"):
        yield f"Line {clue.first_line} makes one tensor of it: `{clue.text}`."
