"""Growth from one run of a cell to the next: each leaves more on a device than it found."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from oommagic.explain.facts import Facts
from oommagic.explain.growth.in_names import collections_in
from oommagic.explain.growth.lines import source_of, taken
from oommagic.explain.growth.value import Growth
from oommagic.report import Report
from oommagic.units import MIB

_LEAST_PER_RUN = 4 * MIB
_LEAST_OF_FIRST_RUN = 0.25


def over_runs(facts: Facts) -> Iterator[Growth]:
    """Yield devices on which each run of this cell has left more, not the first one alone."""
    runs = facts.earlier_runs()
    for device in facts.devices:
        left = [_left_by(run, device.name) for run in runs]
        is_still_there = device.before_bytes >= sum(left) / 2
        if facts.profile is not None and facts.failure is None:
            left.append(device.after_bytes - device.before_bytes)
        if _goes_on(left) and is_still_there:
            grown = _as_growth(device.name, left, runs[-1], device.before_bytes)
            yield _with_its_list(grown, facts)


def _left_by(run: Report, device: str) -> int:
    return sum(each.after_bytes - each.before_bytes for each in run.devices if each.name == device)


def _goes_on(left: Sequence[int]) -> bool:
    """Say whether runs after the first, which may only have set up, have left something, too."""
    again = left[1:]
    return bool(again) and min(again) >= max(_LEAST_PER_RUN, _LEAST_OF_FIRST_RUN * left[0])


def _as_growth(device: str, left: Sequence[int], last: Report, now_bytes: int) -> Growth:
    lines = [line for line in last.profile.lines if taken(line, device) > 0]
    most = max(lines, key=lambda line: taken(line, device), default=None)
    return Growth(
        place=device,
        per="run",
        repeats=len(left),
        total_bytes=sum(left),
        first_bytes=max(0, now_bytes - sum(left)),
        last_bytes=now_bytes,
        line_number=most.line_number if most is not None else None,
        line_source=most.source.strip() if most is not None else "",
    )


def _with_its_list(grown: Growth, facts: Facts) -> Growth:
    """Name the list to which each run of the cell appends, if it holds most of what was left."""
    kept = collections_in(facts.held_before, facts)
    for clue in facts.clues.of("append"):
        found = kept.get((grown.place, clue.name))
        if found is not None and found.bytes * 2 >= grown.total_bytes:
            return replace(
                grown,
                owner=clue.name,
                what=found.what,
                count_after=found.count,
                line_number=clue.first_line,
                line_source=source_of(facts, clue.first_line),
            )
    return grown
