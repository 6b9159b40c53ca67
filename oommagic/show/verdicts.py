"""A verdict in words: the cause, where it stands, how sure it is, and what else it might be."""

from collections.abc import Iterator
from dataclasses import dataclass

from oommagic.report import RuledOut, Verdict
from oommagic.show.characters import cut, visible
from oommagic.source_files import of_file

_MOST_SOURCE = 160

_CONFIDENCES = {
    "certain": "This is certain:",
    "likely": "This is likely, though not proven:",
    "possible": "This is possible; other causes would fit, too:",
}

_CAUSES = {
    "none": "nothing ran out",
    "step too big": "a step too big for the device",
    "growth": "memory that grows",
    "left behind": "memory left behind by what ran before",
    "another process": "another process on the device",
    "data on the device": "the data set on the device",
    "fragmentation": "fragmentation",
    "host memory": "host memory",
    "a limit": "a limit that someone set",
    "compiling": "compiling or autotuning",
    "evaluation": "validation or prediction",
    "unknown": "another cause",
}


WHAT_ELSE = "What else was considered"


@dataclass(frozen=True, slots=True)
class VerdictView:
    """What a page says of a verdict, in the order in which it says it."""

    sentence: str
    is_quiet: bool
    """Nothing is wrong: the sentence stands alone."""
    line: str = ""
    source: str = ""
    things: str = ""
    """The layer and the object that it is about."""
    confidence: str = ""
    evidence: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()


def verdict_view(verdict: Verdict) -> VerdictView:
    """Put a verdict into words."""
    sentence = visible(verdict.sentence)
    if verdict.cause == "none":
        return VerdictView(sentence, is_quiet=True)
    confidence = _CONFIDENCES[verdict.confidence]
    return VerdictView(
        sentence,
        is_quiet=False,
        line=visible(_line(verdict)),
        source=cut(visible(verdict.line_source).strip(), _MOST_SOURCE),
        things=visible(" · ".join(_things(verdict))),
        confidence=confidence if verdict.evidence else f"{confidence.rstrip(':')}.",
        evidence=tuple(map(visible, verdict.evidence)),
        ruled_out=tuple(map(_ruled_out, verdict.ruled_out)),
    )


def _line(verdict: Verdict) -> str:
    if verdict.line_number is None:
        return ""
    line, failure = f"line {verdict.line_number}", verdict.failure
    if failure is None or not failure.filename or failure.line_number != verdict.line_number:
        return line
    return f"{line} {of_file(failure.filename)}"


def _things(verdict: Verdict) -> Iterator[str]:
    if verdict.layer:
        yield f"layer {verdict.layer}"
    if verdict.owner:
        yield f"object {verdict.owner}"


def _ruled_out(other: RuledOut) -> str:
    return visible(f"{_CAUSES[other.cause]}: {other.reason}")
