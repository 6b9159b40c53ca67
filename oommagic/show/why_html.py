"""What filled a device, and why it ran out, as HTML."""

from collections.abc import Iterator, Sequence
from html import escape

from oommagic.report import Composition, Finding, Trial, Verdict
from oommagic.show.advice_html import advice_parts
from oommagic.show.advice_view import advice_view
from oommagic.show.characters import cut_before
from oommagic.show.holdings import HEADS, CompositionView, Holder, Part, composition_views
from oommagic.show.page import items, page, prose
from oommagic.show.verdicts import WHAT_ELSE, VerdictView, verdict_view

# A notebook that JupyterLab does not trust loses the style sheet and keeps this.
_WORDS = " class='oom-words' style='text-align:left'"
_MOST_NAME = 80

_ARE_WORDS = (True, False, False, False, True)
"""Whether words stand in a column, those of the names left out."""


def why_html(
    verdict: Verdict,
    compositions: Sequence[Composition] = (),
    *,
    findings: Sequence[Finding] = (),
    trials: Sequence[Trial] = (),
    beside_panel: bool = False,
) -> str:
    """Say a verdict, what would help, and what filled the devices, as HTML for any page."""
    view = verdict_view(verdict)
    failure = "" if view.is_quiet else " class='oom-failure'"
    parts = [f"<div{failure}>", *verdict_parts(view), "</div>"]
    advice = advice_view(findings, trials)
    if advice is not None:
        parts += advice_parts(advice, is_folded=beside_panel)
    for composition in composition_views(compositions):
        parts += composition_parts(composition)
    return page(parts)


def verdict_parts(verdict: VerdictView) -> Iterator[str]:
    """Say the cause, where it stands, its evidence, and, folded, what else was considered."""
    if verdict.is_quiet:
        yield f"<p>{prose(verdict.sentence)}</p>"
        return
    yield f"<p class='oom-why'>{prose(verdict.sentence)}</p>"
    if verdict.line or verdict.source:
        colon = ": " if verdict.line and verdict.source else ""
        source = f"<span class='oom-code'>{escape(verdict.source)}</span>"
        yield f"<p>{escape(verdict.line)}{colon}{source}</p>"
    if verdict.things:
        yield f"<p>{escape(verdict.things)}</p>"
    yield f"<p>{verdict.confidence}</p>"
    yield from items(verdict.evidence)
    if verdict.ruled_out:
        yield f"<details><summary>{WHAT_ELSE}</summary>"
        yield from items(verdict.ruled_out)
        yield "</details>"


def composition_parts(composition: CompositionView) -> Iterator[str]:
    """Draw the kinds as one bar with their names and figures, and the table of holders."""
    yield f"<p class='oom-title'>{escape(composition.title)}</p>"
    yield f"<p>{escape(composition.note)}</p>"
    total = composition.total
    exact = _unbroken(composition.exact_total)
    yield from kind_bar(composition.parts, f"{total.name} {_unbroken(total.bytes_text)} = {exact}")
    yield "<div class='oom-scroll'><table class='oom-lines oom-holders'><thead>"
    yield _heads()
    yield "</thead><tbody>"
    yield from map(_row, (*composition.holders, composition.total))
    yield "</tbody></table></div>"


def kind_bar(parts: Sequence[Part], total: str = "") -> Iterator[str]:
    """Draw kinds as one bar, and list them with their figures and, as HTML, their sum."""
    # The list says all that the bar shows.
    yield f"<div class='oom-stack' aria-hidden='true'>{''.join(map(_stretch, parts))}</div>"
    last = f"<li>{total}</li>" if total else ""
    yield f"<ul class='oom-kinds'>{''.join(map(_kind, parts))}{last}</ul>"


def _stretch(part: Part) -> str:
    # The name is drawn by the style sheet: without one it would be said twice.
    name = escape(part.name)
    return (
        f"<span class='{_kind_class(part)}' style='width:{part.fraction:.2%}' "
        f"data-name='{name}' title='{name}: {_figures(part)}'></span>"
    )


def _kind(part: Part) -> str:
    swatch = f"<span class='oom-swatch {_kind_class(part)}'></span>"
    return f"<li>{swatch}{escape(part.name)} {_figures(part)}</li>"


def _kind_class(part: Part) -> str:
    return f"oom-kind-{part.kind.replace(' ', '-')}"


def _figures(text: Part | Holder) -> str:
    return f"{_unbroken(text.bytes_text)} ({_unbroken(text.percent_text)})"


def _unbroken(figure: str) -> str:
    """Keep a figure and its unit on one line, in whatever style."""
    return escape(figure).replace(" ", "\u00a0")


def _heads() -> str:
    heads = (
        f"<th scope='col'{_WORDS if is_words else ''}>{text}</th>"
        for text, is_words in zip(_texts(HEADS), _ARE_WORDS, strict=True)
    )
    return f"<tr><th scope='col'{_WORDS}>{HEADS.name}</th>{''.join(heads)}</tr>"


def _row(holder: Holder) -> str:
    cells = (
        f"<td{_WORDS if is_words else ''}>{_unbroken(text)}</td>"
        for text, is_words in zip(_texts(holder), _ARE_WORDS, strict=True)
    )
    name = escape(cut_before(holder.name, _MOST_NAME))
    head = f"<th scope='row'{_WORDS} title='{escape(holder.name)}'>{name}</th>"
    return f"<tr>{head}{''.join(cells)}</tr>"


def _texts(holder: Holder) -> tuple[str, ...]:
    return (
        holder.kind,
        holder.bytes_text,
        holder.percent_text,
        holder.count_text,
        holder.tensor,
    )
