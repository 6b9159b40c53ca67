"""Growth of what a name holds: a list that is longer than it was before the cell."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from oommagic.explain.clues import Clue
from oommagic.explain.facts import Facts, once_each, root_of
from oommagic.explain.growth.lines import source_of, taken, turn_of
from oommagic.explain.growth.value import Growth, WhatGrows
from oommagic.recording import Held

_FEWEST_MORE = 3


@dataclass(frozen=True, slots=True)
class Collection:
    """What one name holds on one device."""

    count: int = 0
    bytes: int = 0
    what: WhatGrows = "tensors"


def in_names(facts: Facts) -> Iterator[Growth]:
    """Yield the collection on each device that has grown most."""
    before = collections_in(facts.held_before, facts)
    grown: dict[str, list[Growth]] = defaultdict(list)
    for key, now in collections_in(facts.held_after, facts).items():
        device, owner = key
        is_new = owner in facts.clues.names_replaced
        was = Collection() if is_new else before.get(key, Collection())
        clue = _filled_by(owner, device, facts)
        if now.count - was.count >= _FEWEST_MORE and (clue is not None or was.count > 0):
            longer = _longer(key, was, now, clue, facts)
            is_known = is_new or facts.knows_before
            grown[device].append(replace(longer, is_since_known=is_known))
    for same in grown.values():
        yield max(same, key=lambda growth: growth.total_bytes)


def collections_in(held: Iterable[Held], facts: Facts) -> dict[tuple[str, str], Collection]:
    """Count what each name holds on each device: tensors, or models by their places in a list."""
    by_owner: dict[tuple[str, str], list[Held]] = defaultdict(list)
    for each in once_each(held, facts):
        if each.owner:
            by_owner[each.device, root_of(each.owner)].append(each)
    return {key: _counted(same) for key, same in by_owner.items()}


def _counted(held: Sequence[Held]) -> Collection:
    # A model's or an optimizer's own variables become more when it is built: that is no list.
    is_of_models = any(each.kind in {"weights", "optimizer slots"} for each in held)
    places = {each.owner.partition("]")[0] for each in held if "[" in each.owner}
    size = sum(each.bytes for each in held)
    if is_of_models:
        return Collection(len(places), size, "models")
    return Collection(max(len(held), len(places)), size)


def _filled_by(owner: str, device: str, facts: Facts) -> Clue | None:
    """Find what appends to a list again and again: in a loop, or in a callback's function.

    Of several in a loop, it is the one whose lines took most.
    """
    appends = [clue for clue in facts.clues.of("append") if clue.name == owner]
    in_loop = (clue for clue in appends if clue.is_in_loop)
    in_function = (clue for clue in appends if clue.is_in_function)
    most = max(in_loop, key=lambda clue: _taken_by(clue, device, facts), default=None)
    return most or next(in_function, None)


def _taken_by(clue: Clue, device: str, facts: Facts) -> int:
    lines = range(clue.first_line, clue.last_line + 1)
    return sum(taken(line, device) for line in facts.lines() if line.line_number in lines)


def _longer(
    key: tuple[str, str], was: Collection, now: Collection, clue: Clue | None, facts: Facts
) -> Growth:
    device, owner = key
    line_number = clue.first_line if clue is not None else None
    loop = facts.clues.loop_of(line_number) if line_number is not None else None
    return Growth(
        place=device,
        per="iteration" if now.what == "models" else turn_of(loop),
        repeats=now.count - was.count,
        total_bytes=now.bytes - was.bytes,
        what=now.what,
        owner=owner,
        count_before=was.count,
        count_after=now.count,
        line_number=line_number,
        line_source=source_of(facts, line_number),
    )
