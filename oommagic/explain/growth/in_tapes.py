"""Growth from one recorded step to the next: what is in use between steps rises."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from oommagic.explain.facts import Facts, root_of
from oommagic.explain.growth.value import Growth
from oommagic.recording import Held, Tape

_FEWEST_CHANGES = 2
_EVEN = 2.5
"""Steps of a steady growth differ by no more than this factor from their median."""


def in_tapes(facts: Facts) -> Iterator[Growth]:
    """Yield what grew by about as much with each recorded step."""
    for tape in facts.tapes:
        floors = floors_after_steps(tape)
        changes = [later - earlier for earlier, later in pairwise(floors)]
        if len(changes) >= _FEWEST_CHANGES and _are_even(changes):
            yield _described(tape, floors, facts.held_after)


def floors_after_steps(tape: Tape) -> list[int]:
    """Give the least that was in use between the end of each step and that of the next.

    The first step is left out: it takes what all later ones use. What a step returns lives until
    the next one has replaced it, so no floor of a loop that keeps nothing rises.
    """
    edges = [*(bisect_right(tape.times_s, end) for end in _ends_of_steps(tape)), len(tape.times_s)]
    spans = list(pairwise(edges))[1:]
    return [min(tape.in_use_bytes[first - 1 : end]) for first, end in spans if 0 < first <= end]


def _ends_of_steps(tape: Tape) -> list[float]:
    """Say when each step of the function ended that ran most often."""
    names = Counter(name for _, _, name in tape.steps)
    usual = next((name for name, _ in names.most_common(1)), "")
    return [ended for _, ended, name in sorted(tape.steps) if name == usual]


def _are_even(changes: Sequence[int]) -> bool:
    usual = median(changes)
    return min(changes) > 0 and all(usual / _EVEN <= each <= usual * _EVEN for each in changes)


def _described(tape: Tape, floors: Sequence[int], held: Sequence[Held]) -> Growth:
    """Say which op's allocations of earlier steps are still there, and which name holds them."""
    kept = _kept_from_steps(tape)
    op_number = max(kept, key=lambda number: sum(kept[number].values()), default=None)
    role = tape.roles[op_number] if op_number is not None else None
    owner = _owner_of(kept[op_number], tape.device, held) if op_number is not None else ""
    return Growth(
        place=tape.device,
        per="step",
        repeats=len(floors) - 1,
        total_bytes=floors[-1] - floors[0],
        first_bytes=floors[0],
        last_bytes=floors[-1],
        what="buffer" if role is not None and role.kind == "data" and not owner else "",
        owner=owner,
        kind=role.kind if role is not None else None,
        op=tape.ops[op_number] if op_number is not None else "",
        layer=role.layer if role is not None else "",
    )


def _owner_of(kept: Mapping[int, int], device: str, held: Sequence[Held]) -> str:
    """Find the name that holds most pieces of what was kept."""
    owners = Counter(
        root_of(each.owner)
        for each in held
        if each.owner and each.device == device and each.address in kept
    )
    return next((owner for owner, _ in owners.most_common(1)), "")


def _kept_from_steps(tape: Tape) -> dict[int, dict[int, int]]:
    """Give, for each op, what later steps allocated and was not freed: bytes by address."""
    first_ends = _ends_of_steps(tape)[:1]
    start = bisect_right(tape.times_s, first_ends[0]) if first_ends else 0
    alive: dict[int, tuple[int, int]] = {}
    for at in range(start, len(tape.times_s)):
        if tape.bytes[at] > 0:
            alive[tape.addresses[at]] = (tape.op_numbers[at], tape.bytes[at])
        else:
            alive.pop(tape.addresses[at], None)
    kept: dict[int, dict[int, int]] = defaultdict(dict)
    for address, (op_number, size) in alive.items():
        kept[op_number][address] = size
    return kept
