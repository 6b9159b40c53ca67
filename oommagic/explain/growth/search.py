"""All that grows, each told once, however many figures have shown it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from oommagic.explain.facts import Facts
from oommagic.explain.growth.in_names import in_names
from oommagic.explain.growth.in_tapes import in_tapes
from oommagic.explain.growth.makers import buffers, with_its_maker
from oommagic.explain.growth.over_runs import over_runs
from oommagic.explain.growth.over_time import over_time
from oommagic.explain.growth.value import Growth

_ALIKE = 2.5
"""Figures of one growth, seen in two ways, differ by no more than this factor."""


def growths(facts: Facts) -> tuple[Growth, ...]:
    """Find all that grows, the largest first; what is seen in several ways is told once."""
    by_place: dict[str, list[Growth]] = defaultdict(list)
    for growth in (*over_time(facts), *in_tapes(facts), *in_names(facts)):
        by_place[growth.place].append(growth)
    within = [with_its_maker(_as_one(same), facts) for same in by_place.values()]
    within += [buffer for buffer in buffers(facts) if buffer.place not in by_place]
    return tuple(sorted((*within, *over_runs(facts)), key=lambda growth: -growth.total_bytes))


def _as_one(seen: Sequence[Growth]) -> Growth:
    """Take the largest figures, and from the others whatever it does not know."""
    figures = max(seen, key=lambda growth: growth.total_bytes)
    for other in seen:
        if other is not figures and _is_the_same(figures, other):
            figures = _completed(figures, other)
    return figures


def _is_the_same(larger: Growth, smaller: Growth) -> bool:
    """A tape sees only a few steps: compare what grows each time, or else in all."""
    if larger.per == smaller.per == "step" and smaller.repeats < larger.repeats:
        return smaller.rate_bytes * _ALIKE >= larger.rate_bytes
    return smaller.total_bytes * _ALIKE >= larger.total_bytes


def _completed(figures: Growth, other: Growth) -> Growth:
    named = other if other.owner and not figures.owner else figures
    has_line = named.line_number is not None
    # What is told of a part of the time has other ends.
    ends = figures if figures.last_bytes or other.total_bytes < figures.total_bytes / 2 else other
    return replace(
        figures,
        first_bytes=ends.first_bytes,
        last_bytes=ends.last_bytes,
        what=figures.what or other.what,
        owner=named.owner,
        count_before=figures.count_before or other.count_before,
        count_after=figures.count_after or other.count_after,
        kind=figures.kind or other.kind,
        op=figures.op or other.op,
        layer=figures.layer or other.layer,
        line_number=named.line_number if has_line else figures.line_number or other.line_number,
        line_source=named.line_source if has_line else figures.line_source or other.line_source,
    )
