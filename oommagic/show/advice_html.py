"""Suggestions as HTML: all that can be said of them without a kernel, and no script."""

from collections.abc import Iterator, Sequence
from html import escape

from oommagic.show.advice_view import AdviceView, DiffLine, Suggestion
from oommagic.show.page import items, prose
from oommagic.show.trial_view import HEADS, Figure, TrialView

# A notebook that JupyterLab does not trust loses the style sheet and keeps this.
_CODE = "white-space:pre-wrap;font-family:monospace"
_WORDS = " class='oom-words' style='text-align:left'"

_CLASSES = {"+": "oom-new", "-": "oom-gone", "@": "oom-place"}


def advice_parts(advice: AdviceView, *, is_folded: bool = False) -> Iterator[str]:
    """Say suggestions as a part of something longer; folded where a panel shows them, too."""
    yield "<div class='oom-advice'>"
    if is_folded:
        yield f"<details><summary>{escape(advice.title)}</summary>"
    else:
        yield f"<p class='oom-title'>{escape(advice.title)}</p>"
    yield from _suggestions(advice.front)
    if advice.more:
        yield f"<details><summary>{advice.more}</summary>"
        yield from _suggestions(advice.behind)
        yield "</details>"
    for trial in advice.together:
        yield from trial_parts(trial)
    if advice.how_to:
        yield f"<p class='oom-how-to'>{escape(advice.how_to)}</p>"
    if is_folded:
        yield "</details>"
    yield "</div>"


def trial_parts(trial: TrialView) -> Iterator[str]:
    """Say what a trial showed."""
    yield f"<div class='oom-suggestion'><p class='oom-suggests'>{prose(trial.headline)}</p>"
    yield from _measured(trial)
    yield "</div>"


def _suggestions(suggestions: Sequence[Suggestion]) -> Iterator[str]:
    for one in suggestions:
        yield "<div class='oom-suggestion'>"
        yield from _suggestion(one)
        yield "</div>"


def _suggestion(one: Suggestion) -> Iterator[str]:
    mark = f" <span class='oom-mark'>{escape(one.mark)}</span>" if one.mark else ""
    yield f"<p class='oom-suggests'>{one.number}. {prose(one.title)}{mark}</p>"
    yield f"<p class='oom-terms'>{_terms(one.terms)}</p>"
    yield f"<p>{prose(one.message)}</p>"
    if one.instead:
        yield f"<p>{escape(one.instead)}</p>"
    if one.change:
        yield f"<details><summary>{one.change}</summary>"
    if one.changes:
        yield f"<p>{prose(one.changes)}</p>"
    if one.change:
        yield f"<div class='oom-diff' style='{_CODE}'>{''.join(map(_diff_line, one.diff))}</div>"
        yield "</details>"
    if one.trial:
        yield from _measured(one.trial)


def _terms(terms: Sequence[str]) -> str:
    # Lines break between terms rather than in one, and begin with one.
    said = [f"{one} ·" for one in terms[:-1]] + list(terms[-1:])
    return " ".join(f"<span>{prose(one)}</span>" for one in said)


def _diff_line(line: DiffLine) -> str:
    # The signs stay, so that it can be read without colours; what is selected has none.
    sign = f"<span class='oom-sign'>{escape(line.sign)} </span>"
    kind = _CLASSES.get(line.sign, "oom-same")
    return f"<div class='{kind}'>{sign}{escape(line.text)}</div>"


def _measured(trial: TrialView) -> Iterator[str]:
    heads = "".join(f"<th scope='col'>{head}</th>" for head in HEADS)
    yield (
        "<div class='oom-scroll'><table class='oom-lines oom-trial'><thead>"
        f"<tr><td></td>{heads}</tr></thead><tbody>{''.join(map(_row, trial.figures))}</tbody>"
        "</table></div>"
    )
    yield from items(trial.notes)


def _row(figure: Figure) -> str:
    name, *texts = (
        escape(text).replace(" ", "\u00a0") for text in (figure.name, figure.before, figure.after)
    )
    cells = "".join(f"<td>{text}</td>" for text in texts)
    return f"<tr><th scope='row'{_WORDS}>{name}</th>{cells}</tr>"
