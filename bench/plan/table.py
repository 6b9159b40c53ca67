"""Findings ─► Markdown tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import median, quantiles

from bench.plan.findings import Failure, Figure, Finding
from bench.plan.peers import LINE_SIZES, NAMES
from oommagic.units import format_bytes

_OURS = "oommagic"
_MOST = 0.9
_TEXT = """\
# The plan against reality

{here}.

A truth is the highest peak of five steps of `fit` in a fresh process on a training device, by
TensorFlow's allocator. Ops race: the truth of the same size differs from process to process. So
three processes measure it. An error is that of the predicted peak from the middle one; the range
has to hold each of the three. What XLA compiled asks for the same in every process: its truth is
the highest peak of three steps in one. The true largest batch is the largest found that trains on
the case's device, to 5 %; what took longer than five minutes did not fit. Each plan is
`oommagic.plan(model, batch)` in a fresh process.

## In short

{short}

{ours}

## How the others were asked

{peers}

Published, not measured here, on other models and on GPUs: DNNMem 13.8 % median error, xMem 3.6 %.

## The largest batch

`said` is the plan's answer for that device, `true` the largest that was found to fit.

{largest}

## The peak, size by size

Errors are those of the predicted peak, of the truth. `apart` is how far truths lie apart; `range`
is the plan's, as a share of its peak.

{figures}
"""
_PEERS = f"""\
- **sum of layer outputs**: all layers' outputs and all weights, once, four bytes each.
- **grappler**: TensorFlow's `DeterminePeakMemoryUsage`, on the graph of the training step traced
  for that batch, with no function around it and its variables as handles of known shape. It has
  no figure for what XLA compiles, takes a loop's body as one round, leaves workspace out, and
  knows of no allocator.
- **line through two peaks**: the truth at batch {LINE_SIZES[0]} and {LINE_SIZES[1]}, joined;
  at those two it foretells nothing.
- **live requests**: the steps that oommagic recorded, scaled as it scales them, and what is live
  added up, without the allocator's rules.

A peer's largest batch comes from its figures, joined by lines; it counts as fitting up to the true
largest."""


@dataclass(frozen=True, slots=True)
class _Summary:
    """How good one way is, over all cases."""

    errors: tuple[float, ...]
    compiled: tuple[float, ...]
    fit: tuple[bool, ...]
    fit_and_most: tuple[bool, ...]


def markdown(
    findings: Sequence[Finding],
    failures: Sequence[Failure],
    missing: Sequence[str],
    here: Mapping[str, str],
) -> str:
    """Write the summary, how the others were asked, and the tables of all figures."""
    versions = ", ".join(f"{name} {number}" for name, number in here.items())
    return _TEXT.format(
        here=versions[:1].upper() + versions[1:],
        short=summary(findings),
        ours="\n".join([*_about_ours(findings, failures), *_not_measured(missing)]),
        peers=_PEERS,
        largest=_largest(findings),
        figures=_figures(findings),
    )


def summary(findings: Sequence[Finding]) -> str:
    """Write one line for the plan, and one for each of the others."""
    heads = (
        "| | figures | median error | 95th percentile | compiled, median | compiled, worst |"
        " largest batch fits | and is ≥ 90 % of the true |\n|---|---|---|---|---|---|---|---|"
    )
    rows = [_line(_OURS, _summary_of_ours(findings))]
    rows += [_line(name, _summary_of_peer(findings, name)) for name in NAMES]
    return "\n".join([heads, *rows])


def _line(name: str, of: _Summary) -> str:
    cells = [
        str(len(of.errors)),
        _percent(median, of.errors),
        _percent(_high_percentile, of.errors),
        _percent(median, of.compiled),
        _percent(max, of.compiled),
        f"{sum(of.fit)} of {len(of.fit)}",
        f"{sum(of.fit_and_most)} of {len(of.fit)}",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _summary_of_ours(findings: Sequence[Finding]) -> _Summary:
    def error(figure: Figure) -> float | None:
        return abs(figure.error)

    fit = [one.answer > 0 and one.answer_outcome == "fits" for one in findings]
    answers = [one.answer for one in findings]
    return _Summary(*_errors(findings, error), tuple(fit), tuple(_most(findings, answers, fit)))


def _summary_of_peer(findings: Sequence[Finding], name: str) -> _Summary:
    def error(figure: Figure) -> float | None:
        said = figure.peers[name]
        return None if said is None else abs(said / figure.truth_bytes - 1)

    answering = [one for one in findings if one.peer_answers[name] is not None]
    answers = [one.peer_answers[name] or 0 for one in answering]
    fit = [0 < answer <= one.largest for one, answer in zip(answering, answers, strict=True)]
    return _Summary(*_errors(findings, error), tuple(fit), tuple(_most(answering, answers, fit)))


def _errors(
    findings: Sequence[Finding], error: Callable[[Figure], float | None]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Give all errors, and those of compiled steps."""
    both = [
        (one.case.is_compiled, found)
        for one in findings
        for figure in one.figures
        if (found := error(figure)) is not None
    ]
    return tuple(found for _, found in both), tuple(found for compiled, found in both if compiled)


def _most(
    findings: Sequence[Finding], answers: Sequence[int], fit: Sequence[bool]
) -> Iterator[bool]:
    for one, answer, is_fitting in zip(findings, answers, fit, strict=True):
        yield is_fitting and answer >= _MOST * one.largest


def _percent(of: Callable[[Sequence[float]], float], values: Sequence[float]) -> str:
    return f"{100 * of(values):.1f} %" if values else "–"


def _high_percentile(values: Sequence[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def _about_ours(findings: Sequence[Finding], failures: Sequence[Failure]) -> Iterator[str]:
    figures = [figure for one in findings for figure in one.figures]
    yield f"- Of all truths, {_inside(figures)}."
    for is_compiled, steps in ((False, "steps that XLA did not compile"), (True, "compiled ones")):
        some = [f for one in findings if one.case.is_compiled is is_compiled for f in one.figures]
        if some:
            errors = [abs(figure.error) for figure in some]
            yield (
                f"- Of {steps}, {_inside(some)}; the error is {median(errors):.1%} (median), "
                f"{_high_percentile(errors):.1%} (95th percentile)."
            )
    apart = [abs(a / b - 1) for one in figures for a, b in permutations(one.truths_bytes, 2)]
    if apart:
        yield (
            f"- One truth foretells another of the same size with an error of {median(apart):.1%} "
            f"(median), {_high_percentile(apart):.1%} (95th percentile), steps that XLA did not "
            "compile alone: no prediction of theirs can do better."
        )
    slowest = max(findings, key=lambda one: one.seconds)
    yield (
        f"- A plan took {median(one.seconds for one in findings):.1f} s (median), at most "
        f"{slowest.seconds:.1f} s ({slowest.case.name}); `peak_bytes` then takes "
        f"{max(one.lookup_ms for one in findings):.2f} ms at most."
    )
    yield from (f"- There was no plan for {one.case.name}: {one.message}" for one in failures)


def _not_measured(missing: Sequence[str]) -> Iterator[str]:
    if missing:
        yield f"- Not in these tables, since this is not measured yet: {'; '.join(missing)}."


def _inside(figures: Sequence[Figure]) -> str:
    inside = sum(figure.inside for figure in figures)
    truths = sum(len(figure.truths_bytes) for figure in figures)
    width = median(figure.width for figure in figures)
    return (
        f"{inside} of {truths} ({inside / truths:.1%}) lie inside the stated range, whose median "
        f"width is {width:.1%}"
    )


def _largest(findings: Sequence[Finding]) -> str:
    heads = "| case | device | plan took | said | when tried | true | of the true |"
    rows = [
        f"| {one.case.name} | {format_bytes(one.case.limit_bytes)} | {one.seconds:.1f} s "
        f"| {one.answer:,} | {one.answer_outcome} | {one.largest:,} "
        f"| {one.answer / max(one.largest, 1):.0%} |"
        for one in findings
    ]
    return "\n".join([heads, "|---" * 7 + "|", *rows])


def _figures(findings: Sequence[Finding]) -> str:
    peers = " | ".join(NAMES)
    heads = f"| case | batch | truth | apart | {_OURS} | range | inside | {peers} |"
    rows = [_row(one, figure) for one in findings for figure in one.figures]
    return "\n".join([heads, "|---" * (7 + len(NAMES)) + "|", *rows])


def _row(one: Finding, figure: Figure) -> str:
    cells = [
        one.case.name,
        f"{figure.batch:,}",
        format_bytes(figure.truth_bytes),
        f"{figure.truths_apart:.1%}",
        f"{figure.error:+.1%}",
        f"{figure.width:.1%}",
        f"{figure.inside} of {len(figure.truths_bytes)}",
        *(_peers_error(figure, name) for name in NAMES),
    ]
    return f"| {' | '.join(cells)} |"


def _peers_error(figure: Figure, name: str) -> str:
    said = figure.peers[name]
    return "–" if said is None else f"{said / figure.truth_bytes - 1:+.0%}"
