"""Why memory ran out: a table of causes, each of which says what speaks for it or against it.

The order of the tables decides between causes that would each explain a failure:

1. Another process, where the card has no room although the allocator's limit has: no figure of
   ours can explain that.
2. Fragmentation, when enough was free in all. Every other cause is about too little.
3. What grows, or a buffer that fills, fills any device sooner or later, so it goes before what
   only made it sooner.
4. What was left behind, another process and a set limit: the step would fit without them.
5. Data that lies on the device: the step would fit if it came in batches.
6. Validation, prediction, compiling: not the training step itself.
7. The step itself. Its sum leaves out what is above, so where it is too big alone, none of
   those explains the failure, and they say so.

A cause is blamed only if memory would have sufficed without it.
"""

from collections.abc import Callable, Iterable, Iterator

from oommagic.explain.case import HOW_TO_KNOW, Blame, Case, Judgement
from oommagic.explain.causes.a_limit import a_limit
from oommagic.explain.causes.another_process import another_process, no_room_on_the_card
from oommagic.explain.causes.compiling import compiling
from oommagic.explain.causes.data import data_on_the_device
from oommagic.explain.causes.evaluation import evaluation
from oommagic.explain.causes.fragmentation import fragmentation
from oommagic.explain.causes.growing import growth, host_growth
from oommagic.explain.causes.host import filling_buffer, host_memory
from oommagic.explain.causes.left_behind import left_behind
from oommagic.explain.causes.step import step_too_big
from oommagic.explain.facts import Facts
from oommagic.explain.growth import Growth, growths, retraced
from oommagic.explain.wording import a_list, asked_for, plural, told_growth, where
from oommagic.report import HOST, DeviceMemory, LineUsage, RuledOut, Verdict
from oommagic.units import MIB, format_bytes

DEVICE_CAUSES: tuple[Callable[[Case], Judgement], ...] = (
    no_room_on_the_card,
    fragmentation,
    growth,
    left_behind,
    another_process,
    a_limit,
    data_on_the_device,
    evaluation,
    compiling,
    step_too_big,
)
HOST_CAUSES: tuple[Callable[[Case], Judgement], ...] = (
    host_growth,
    filling_buffer,
    a_limit,
    host_memory,
)


_NOTHING_KNOWN = (
    "No sign of memory that ran out; put %%oomprofile on top of a cell to see its peak."
)


def verdict_of(facts: Facts) -> Verdict:
    """Give the one cause that explains the failure best, or say that nothing ran out."""
    if facts.failure is None:
        return _nothing_ran_out(facts)
    case = Case(facts, facts.failure)
    table = HOST_CAUSES if facts.failure.place == "host" else DEVICE_CAUSES
    judged = [cause(case) for cause in table]
    blames = [each for each in judged if isinstance(each, Blame)]
    chosen = blames[0] if blames else _unknown(case)
    others = [_second(each) for each in blames[1:] if each.cause != chosen.cause]
    ruled_out = [each for each in judged if isinstance(each, RuledOut)]
    ruled_out = [each for each in ruled_out if each.cause != chosen.cause]
    return _as_verdict(case, chosen, (*others, *ruled_out))


def _second(blame: Blame) -> RuledOut:
    return RuledOut(blame.cause, f"{blame.part}: that would explain it too, but comes second.")


def _as_verdict(case: Case, chosen: Blame, ruled_out: tuple[RuledOut, ...]) -> Verdict:
    at_failure = chosen.line_number is None
    return Verdict(
        cause=chosen.cause,
        sentence=_as_sentence(chosen.sentence),
        evidence=(*chosen.evidence, *_of_the_failure(case)),
        ruled_out=ruled_out,
        confidence=chosen.confidence,
        line_number=case.line_told if at_failure else chosen.line_number,
        line_source=case.failure.line_source.strip() if at_failure else chosen.line_source,
        layer=chosen.layer,
        owner=chosen.owner,
        failure=case.failure,
    )


def _as_sentence(text: str) -> str:
    """Begin with a capital letter where a plain word comes first, not a name such as cuDNN's."""
    return text[0].upper() + text[1:] if text.startswith("the ") else text


def _of_the_failure(case: Case) -> Iterator[str]:
    """Say what the error itself and the allocator's figures tell."""
    account, failure = case.account, case.failure
    is_told = failure.asked_bytes is not None or failure.shape is not None
    yield f"It failed{f' at {asked_for(failure)}' if is_told else ''}{where(failure)}."
    if account.in_use is not None and account.place != HOST:
        seen = "were in use then" if account.is_exact else "were in use at the most"
        seen = "are in use now" if account.is_of_now else seen
        limit = f" of {format_bytes(account.limit)}" if account.limit is not None else ""
        yield f"{format_bytes(account.in_use)}{limit} {seen} on {case.place}."


def _unknown(case: Case) -> Blame:
    """Say what the error tells, and what is missing."""
    account = case.account
    missing = [
        words
        for words, value in (
            ("how much was asked for", account.asked),
            ("how much was in use", account.in_use),
            ("the limit", account.limit),
        )
        if value is None
    ]
    gap = f"; {a_list(missing)} {'is' if len(missing) == 1 else 'are'} not known" if missing else ""
    place = "The host" if account.place == HOST else case.place[0].upper() + case.place[1:]
    return Blame(
        cause="unknown",
        sentence=f"{place} had no room for {asked_for(case.failure)}{gap}.",
        part="",
        confidence="possible",
        evidence=(HOW_TO_KNOW,) if case.facts.profile is None else (),
        layer=case.failure.layer,
    )


def _nothing_ran_out(facts: Facts) -> Verdict:
    """Say how near it came, at which line, and what will run out if it goes on."""
    fullest = max(facts.devices, key=_fullness, default=None)
    found = [growth for growth in growths(facts) if growth.total_bytes >= MIB or growth.owner]
    evidence = (*(_going_on(growth, facts) for growth in found), *_traced_again(facts, found))
    if facts.profile is None or (fullest is None and facts.host is None):
        return Verdict("none", _NOTHING_KNOWN, evidence, confidence="possible")
    if fullest is not None and fullest.peak_bytes:
        peak, line = fullest.peak_bytes, _line_of_peak(facts, fullest.name)
        words = f"of {fullest.name} was {format_bytes(peak)}{_share(peak, fullest.limit_bytes)}"
    else:
        peak = facts.host.peak_bytes if facts.host is not None else 0
        limit = facts.host.limit_bytes if facts.host is not None else None
        line = _line_of_peak(facts, HOST)
        words = f"of host memory was {format_bytes(peak)}{_share(peak, limit)}"
    at_line = f" at line {line.line_number}: {line.source.strip()}" if line is not None else ""
    return Verdict(
        cause="none",
        sentence=f"Nothing ran out; the peak {words}{at_line or '.'}",
        evidence=evidence,
        confidence="certain",
        line_number=line.line_number if line is not None else None,
        line_source=line.source.strip() if line is not None else "",
    )


def _traced_again(facts: Facts, found: Iterable[Growth]) -> Iterator[str]:
    """Name a function that has more and more graphs, if that is not told yet."""
    traced = retraced(facts)
    if traced is not None and all(growth.what != "graphs" for growth in found):
        yield (
            f"{traced.name} was traced {traced.traces} times: once for each new Python value and "
            "each new shape, and each time it keeps a graph."
        )


def _fullness(device: DeviceMemory) -> float:
    return device.peak_bytes / device.limit_bytes if device.limit_bytes else 0.0


def _share(peak: int, limit: int | None) -> str:
    return f" of {format_bytes(limit)} ({100 * peak / limit:.0f} %)" if limit else ""


def _line_of_peak(facts: Facts, place: str) -> LineUsage | None:
    """Find the line that reached the peak, rather than the head of the loop in which it stands."""
    heads = {loop.first_line for loop in facts.clues.loops}

    def peak(line: LineUsage) -> int:
        if place == HOST:
            return line.host_peak_bytes
        return line.devices[place].peak_bytes if place in line.devices else 0

    by_peak = [(peak(line), line.line_number not in heads, line) for line in facts.lines()]
    most = max(by_peak, key=lambda each: each[:2], default=(0, False, None))[2]
    return most if most is not None and peak(most) else None


def _going_on(growth: Growth, facts: Facts) -> str:
    """Say what grows though nothing ran out, and when it would."""
    told = told_growth(growth)
    device = facts.device(growth.place)
    if device is None or device.limit_bytes is None or growth.rate_bytes <= 0:
        return f"It grows: {told}."
    left = (device.limit_bytes - device.peak_bytes) // growth.rate_bytes
    return f"It grows: {told}. There is room for {plural(f'more {growth.per}', max(0, left))}."
