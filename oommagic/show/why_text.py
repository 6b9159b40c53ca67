"""What filled a device, and why it ran out, as plain text."""

import textwrap
from collections.abc import Iterator, Sequence

from oommagic.report import Composition, Finding, Trial, Verdict
from oommagic.show.advice_text import advice_lines
from oommagic.show.advice_view import advice_view
from oommagic.show.characters import cut, cut_before, width
from oommagic.show.holdings import HEADS, CompositionView, Holder, Part, composition_views
from oommagic.show.terminal import room_of
from oommagic.show.verdicts import WHAT_ELSE, VerdictView, verdict_view

_LEAD = "Why: "
_INDENT = " " * len(_LEAD)
_GAP = "  "
_LEAST_NAME = 24
_LONGEST_BAR = 30
_PARTS_OF_A_SIGN = " ▏▎▍▌▋▊▉█"


def why_text(
    verdict: Verdict,
    compositions: Sequence[Composition] = (),
    columns: int | None = None,
    *,
    findings: Sequence[Finding] = (),
    trials: Sequence[Trial] = (),
) -> str:
    """Say a verdict, what would help, and what filled the devices, in at most so many columns."""
    room = room_of(columns)
    lines = list(verdict_lines(verdict_view(verdict), room))
    advice = advice_view(findings, trials)
    if advice is not None:
        lines += ["", *advice_lines(advice, room)]
    for view in composition_views(compositions):
        lines += ["", *composition_lines(view, room)]
    return "\n".join(lines)


def verdict_lines(verdict: VerdictView, room: int) -> Iterator[str]:
    """Say the cause, where it stands, its evidence, and what else was considered."""
    if verdict.is_quiet:
        yield from textwrap.wrap(verdict.sentence, room)
        return
    yield from textwrap.wrap(_LEAD + verdict.sentence, room, subsequent_indent=_INDENT)
    line = ": ".join(filter(None, (verdict.line, verdict.source)))
    yield from _indented(cut(line, room - len(_INDENT)), room)
    yield from _indented(verdict.things, room)
    yield _INDENT + verdict.confidence
    yield from _items(verdict.evidence, room)
    if verdict.ruled_out:
        yield f"{_INDENT}{WHAT_ELSE}:"
        yield from _items(verdict.ruled_out, room)


def composition_lines(composition: CompositionView, room: int) -> Iterator[str]:
    """Say the kinds with their bars, then the largest holders, each with the sum."""
    yield from textwrap.wrap(composition.title, room)
    yield from textwrap.wrap(composition.note, room)
    yield ""
    yield from kind_lines(composition.parts, composition.total, composition.exact_total)
    yield ""
    yield from _holder_lines(composition, room)


def _indented(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, room, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _items(texts: Sequence[str], room: int) -> Iterator[str]:
    for text in texts:
        first, others = f"{_INDENT}• ", f"{_INDENT}  "
        yield from textwrap.wrap(text, room, initial_indent=first, subsequent_indent=others)


def kind_lines(
    parts: Sequence[Part], total: Holder | None = None, exact_total: str = ""
) -> Iterator[str]:
    """Say kinds with their bars, and their sum below a rule where it is given."""
    figures: list[Part | Holder] = [*parts, *([total] if total else [])]
    names = max(len(text.name) for text in figures)
    sizes = max(len(text.bytes_text) for text in figures)
    for part in parts:
        yield f"{_figures(part, names, sizes)}{_GAP}{_bar(part.fraction)}".rstrip()
    if total:
        last = _figures(total, names, sizes)
        yield "─" * len(last)
        yield f"{last}{_GAP}= {exact_total}"


def _figures(text: Part | Holder, names: int, sizes: int) -> str:
    return f"{text.name:<{names}}{_GAP}{text.bytes_text:>{sizes}}{_GAP}{text.percent_text:>5}"


def _bar(fraction: float) -> str:
    eighths = round(fraction * _LONGEST_BAR * 8)
    return "█" * (eighths // 8) + _PARTS_OF_A_SIGN[eighths % 8].strip()


def _holder_lines(composition: CompositionView, room: int) -> Iterator[str]:
    rows = [HEADS, *composition.holders, composition.total]
    middles = _middles(rows)
    tensors = max(width(row.tensor) for row in rows)
    names = max(width(row.name) for row in rows)
    spare = room - len(middles[0]) - 2 * len(_GAP)
    names = min(names, max(_LEAST_NAME, spare - tensors))
    lines = [
        f"{_name(row.name, names)}{_GAP}{middle}{_GAP}{cut(row.tensor, spare - names)}".rstrip()
        for row, middle in zip(rows, middles, strict=True)
    ]
    rule = "─" * max(map(width, lines))
    yield from (lines[0], rule, *lines[1:-1], rule, lines[-1])


def _middles(rows: Sequence[Holder]) -> list[str]:
    """Lay out the columns that are never cut: kind, bytes, share and count."""
    kinds = max(len(row.kind) for row in rows)
    sizes = max(len(row.bytes_text) for row in rows)
    return [
        f"{row.kind:<{kinds}}{_GAP}{row.bytes_text:>{sizes}}{_GAP}{row.percent_text:>5}{_GAP}"
        f"{row.count_text:>5}"
        for row in rows
    ]


def _name(name: str, room: int) -> str:
    shown = cut_before(name, room)
    return shown + " " * (room - width(shown))
