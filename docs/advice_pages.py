"""Writes the pages about the advice: one for each rule, an index, and the table of the articles."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from articles import ARTICLES, Advice

from oommagic.explain.advice.engine import findings_of
from oommagic.explain.advice.rule import Rule
from oommagic.explain.advice.rules import RULES
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import HOST, Safety
from oommagic.units import format_bytes

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "advice"
RESULTS = ROOT / "bench" / "advice" / "results.json"
SPEED = ROOT / "bench" / "advice" / "speed.json"

_SAFETY: Mapping[Safety, str] = {
    "same results": "The change gives the same results.",
    "changes results": "The change gives other results.",
    "hint": "A hint: there is no edit, you decide what to write.",
}
_DEVICE, _HOST, _HINTS = "For a device's memory", "For the host's memory", "Hints"
_HEADINGS = (_DEVICE, _HOST, _HINTS)


def rule_pages(meanings: Mapping[str, str]) -> Mapping[Path, str]:
    """Give the page of each rule; `meanings` has what each cause means."""
    return {FOLDER / f"{rule.name}.md": _page(rule, meanings) for rule in RULES}


def stray_pages() -> Sequence[Path]:
    """Name the pages of rules that are gone."""
    names = {rule.name for rule in RULES}
    return [path for path in sorted(FOLDER.glob("*.md")) if path.stem not in names]


def _page(rule: Rule, meanings: Mapping[str, str]) -> str:
    parts = {
        "What it does": rule.what,
        "Why it matters": rule.why,
        "Example": _code(rule.example),
        "Use instead": _code(rule.instead),
        "Is it safe?": f"{_SAFETY[rule.safety]} {rule.fix_safety}",
        "What it costs": _sentence(rule.cost or "nothing"),
        "When it is offered": "\n".join(_occasions(rule, meanings)),
    }
    text = "\n\n".join(f"## {head}\n\n{words}" for head, words in parts.items())
    return f"# {rule.title}\n\n`{rule.name}`, one of [the suggestions](../advice.md).\n\n{text}\n"


def _code(code: str) -> str:
    # Without the language's name: a formatter would write it differently than the rule has it.
    return f"```\n{code.strip(chr(10))}\n```"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:].removesuffix('.')}."


def _occasions(rule: Rule, meanings: Mapping[str, str]) -> Iterator[str]:
    """Say in words what the engine asks of a run before it asks the rule."""
    if rule.is_a_defect:
        yield "Wherever it is found, whether memory is short or not: it is a mistake."
        return
    yield f"Where {_owner(rule)} ran out, and [the cause](../why.md#the-verdict) is one of these:"
    yield ""
    causes = (*meanings, *sorted(rule.causes - meanings.keys()))
    yield from (f"- *{one}*: {_meaning(one, meanings)}" for one in causes if one in rule.causes)
    yield ""
    yield f"Where nothing ran out, only if {_owner(rule)} was nearly full."


def _owner(rule: Rule) -> str:
    return "the host's memory" if place(rule) == HOST else "a device's memory"


def _meaning(cause: str, meanings: Mapping[str, str]) -> str:
    return meanings.get(cause, "No cause fits what is known.")


def place(rule: Rule) -> str:
    """Say where a rule saves, by its own first case."""
    case = rule.speaks[0]
    return findings_of(TypedCell(case.source), case.here, [rule])[0].place


def index() -> str:
    """List the rules by where they save, each with a line."""
    parts = ((head, [rule for rule in RULES if _heading(rule) == head]) for head in _HEADINGS)
    return "\n".join(_part(head, rules) for head, rules in parts if rules)


def _heading(rule: Rule) -> str:
    if rule.safety == "hint":
        return _HINTS
    return _HOST if place(rule) == HOST else _DEVICE


def _part(head: str, rules: Sequence[Rule]) -> str:
    rows = "\n".join(
        f"| [{rule.title}](advice/{rule.name}.md) | {_cell(_first_sentence(rule.what))} | "
        f"{_results(rule)} |"
        for rule in rules
    )
    return f"### {head}\n\n| suggestion | what it does | results |\n|---|---|---|\n{rows}\n"


def _results(rule: Rule) -> str:
    return {"same results": "same", "changes results": "change", "hint": "no edit"}[rule.safety]


def _first_sentence(words: str) -> str:
    first, _, _ = words.partition(". ")
    return f"{first.removesuffix('.')}."


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", " ")


def speed() -> str:
    """Say what the benchmark measured for finding suggestions."""
    found = json.loads(SPEED.read_text(encoding="utf-8"))
    longest = max(one["median_ms"] for one in found["runs"].values())
    return (
        f"On a cell of {found['lines']} lines that takes up to {longest:.0f} ms (the median of "
        "the slowest of three kinds of runs, on two cores).\n"
    )


# ---- What the articles advise -------------------------------------------------------------------


def articles() -> str:
    """Lay out, article by article, which rule has its advice, what it did, and what is true."""
    measured = _measured()
    return "\n".join(
        f"### {article.title}\n\n"
        "| the article says | here | measured on the article's program | what is true |\n"
        "|---|---|---|---|\n" + "".join(f"{_row(advice, measured)}\n" for advice in article.advice)
        for article in ARTICLES
    )


def _measured() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """Read what trials showed, by program and rule."""
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["trials"]
    return {(one["program"], one["rule"]): one for one in found}


def _row(advice: Advice, measured: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    here = ", ".join([*map(_link, advice.rules), *filter(None, [advice.answer])])
    trials = [measured[key] for rule in advice.rules if (key := (advice.program, rule)) in measured]
    effect = "; ".join(map(_effect, trials)) or _not_tried(advice, measured)
    return f"| {_cell(advice.says)} | {here} | {effect} | {_cell(advice.truth)} |"


def _not_tried(advice: Advice, measured: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """Say of a program that was tried that nothing of the kind was offered for it."""
    if not advice.program:
        return "–"
    is_known = any(program == advice.program for program, _ in measured)
    return "no such change was offered" if is_known else "not measured"


def _link(name: str) -> str:
    title = next((rule.title for rule in RULES if rule.name == name), None)
    if title is None:
        raise ValueError(f"docs/articles.py names the rule {name}, which is not there")
    return f"[{title}](advice/{name}.md)"


def _effect(trial: Mapping[str, Any]) -> str:
    """Say what came of one change: the peak before and after, or that it now runs."""
    if "not_tried" in trial:
        return "could not be tried"
    before, after = trial["before_bytes"] or 0, trial["after_bytes"] or 0
    if trial["before_outcome"] == "ran out" and trial["after_outcome"] == "finished":
        return f"ran out; then {format_bytes(after)}"
    if trial["after_outcome"] != "finished":
        return f"{trial['after_outcome']} with it, too"
    return f"{format_bytes(before)} → {format_bytes(after)}"
