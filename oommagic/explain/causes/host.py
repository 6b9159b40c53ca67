"""An array, a copy or a buffer takes more of the host's memory than there is."""

from collections.abc import Iterator

from oommagic.explain.account import Account, Confidence
from oommagic.explain.case import Blame, Case, Judgement
from oommagic.explain.clues import Clue, ClueKind
from oommagic.explain.wording import shape_words
from oommagic.units import format_bytes

_FEWEST_ELEMENTS = 16

_WHAT_TAKES: dict[ClueKind, str] = {
    "to_categorical": "a one-hot array of one number for each class and sample asks for",
    "float64": "an array of float64 asks for",
    "array": "an array that copies what it is made of asks for",
    "from_tensor_slices": "from_tensor_slices copies the whole array and asks for",
    "tensor": "a tensor that copies the whole array asks for",
    "cache": "a data set that is cached in memory asks for",
    "shuffle": "a data set that keeps a buffer to shuffle asks for",
    "predict": "predict, which keeps the outputs of all batches, asks for",
}


def filling_buffer(case: Case) -> Judgement:
    """Judge whether a buffer of the data set is most of what the cell took."""
    account, failure = case.account, case.failure
    taken = (account.in_use or 0) - (account.before or 0)
    if account.buffer is not None:
        return host_memory(case) if account.buffer.total_bytes * 2 >= taken else None
    reads_data = failure.kind != "python" and not failure.layer and "/" not in failure.op
    is_one_of_many = account.asked is not None and taken >= _FEWEST_ELEMENTS * account.asked
    if reads_data and is_one_of_many and case.facts.clues.of("cache", "shuffle"):
        return host_memory(case)
    return None


def host_memory(case: Case) -> Judgement:
    """An array, a copy or a buffer takes more of the host's memory than there is."""
    failure, account = case.failure, case.account
    size = format_bytes(account.asked) if account.asked is not None else "more"
    at_line = f" in line {case.line_number}" if case.line_number is not None else ""
    has = f", and {_limit_words(case)} is {format_bytes(account.limit)}" if account.limit else ""
    taker, clue = _taker(case)
    return Blame(
        cause="host memory",
        sentence=f"Host memory ran out{at_line}{_request_words(case, taker, size)}{has}.",
        part=f"host memory was asked for {size}",
        confidence=_sure_of_host(account, clue),
        evidence=tuple(_of_host(case, clue)),
        layer=failure.layer,
        owner=clue.name if clue is not None and clue.kind in {"cache", "shuffle"} else "",
    )


def _request_words(case: Case, taker: str, size: str) -> str:
    """Say what asked for how much; nothing is known of some, but what was in use."""
    account, failure = case.account, case.failure
    beside = f" beside the {format_bytes(account.in_use)} in use" if account.in_use else ""
    if not taker and account.asked is None:
        return beside
    shape = f" ({shape_words(failure)})" if failure.shape else ""
    return f": {taker or 'it asks for'} {size}{shape}{beside}"


def _limit_words(case: Case) -> str:
    """Name the limit, if someone has set it."""
    here = (limit for limit in case.facts.limits if not limit.device)
    return next((limit.text for limit in here if limit.bytes == case.account.limit), "the limit")


def _taker(case: Case) -> tuple[str, Clue | None]:
    """Say what asks for it, if known: the failing line's own call, or a buffer of its data."""
    kinds: tuple[ClueKind, ...] = (
        "to_categorical",
        "from_tensor_slices",
        "tensor",
        "float64",
        "array",
    )
    clue = case.clue(*kinds)
    if clue is None and _may_fill_a_buffer(case):
        clue = next(iter(case.facts.clues.of("cache", "shuffle")), None)
    clue = clue or case.clue("predict")
    if clue is not None:
        return f"`{clue.text}`: {_WHAT_TAKES[clue.kind]}", clue
    return "an array of float64 asks for" if case.failure.dtype == "float64" else "", None


def _may_fill_a_buffer(case: Case) -> bool:
    """Say whether the failing line may be one that reads a data set."""
    if case.failure.kind == "dataset" or case.account.buffer is not None:
        return True
    return case.failure.kind != "python"


def _sure_of_host(account: Account, clue: Clue | None) -> Confidence:
    if account.asked_alone_is_too_much:
        return "certain"
    return "likely" if clue is not None and account.asked is not None else "possible"


def _of_host(case: Case, clue: Clue | None) -> Iterator[str]:
    account, buffer = case.account, case.account.buffer
    if case.failure.dtype == "float64" and account.asked is not None:
        yield (f"It is of float64: as float32 it would take {format_bytes(account.asked // 2)}.")
    if clue is not None and clue.kind == "shuffle" and clue.number is not None:
        yield f"Line {clue.first_line} keeps {clue.number} elements of the data set in memory."
    if clue is not None and clue.kind == "cache":
        yield f"Line {clue.first_line} keeps each element of the data set in memory."
    if buffer is not None:
        yield f"Host memory rose by {format_bytes(buffer.total_bytes)} while it filled."
