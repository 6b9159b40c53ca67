"""A tape replayed: which chunks of a device's memory were handed out at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from oommagic.recording import Tape
from oommagic.report import Failure

_LONG_WAIT_S = 2.0
"""An allocator waits so long and longer before it gives up, and nothing else does in a step."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of memory that was handed out; `began` and `ended` are events of the tape.

    What was handed out before the tape began at event -1. What has no end outlasted the tape.
    """

    address: int
    bytes: int
    requested_bytes: int
    began: int
    ended: int | None


@dataclass(frozen=True, slots=True)
class Moment:
    """What was handed out after one event of a tape."""

    total_bytes: int
    """The allocator's own figure."""
    taped: tuple[Chunk, ...]
    """Handed out on the tape."""
    earlier: tuple[Chunk, ...]
    """Handed out before the tape, and freed on it later: only then are they seen."""
    first_events: Mapping[int, int]
    """For each address on the tape, where it comes first."""


def peak_event(tape: Tape) -> int:
    """Find the event after which most was in use; -1 if that was before the first."""
    highest = max(tape.in_use_bytes, default=0)
    return tape.in_use_bytes.index(highest) if highest > tape.before_bytes else -1


def failing_event(tape: Tape, failure: Failure | None) -> int | None:
    """Find the event after which an allocation failed; None if the tape does not show it.

    What the failing step held is given back after that, which may be on the tape too. The
    allocator waits for others to give memory back before it gives up: the tape stands still.
    """
    in_use = tape.in_use_bytes
    told = failure.in_use_bytes if failure is not None else None
    if told is not None and told in in_use:
        return len(in_use) - 1 - in_use[::-1].index(told)
    for event in range(len(in_use) - 2, -1, -1):
        if tape.times_s[event + 1] - tape.times_s[event] >= _LONG_WAIT_S:
            return event
    return None


def moment_after(tape: Tape, event: int) -> Moment:
    """Replay the tape as far as that event, and look at what comes of it later.

    -1 is before the first.
    """
    total = tape.in_use_bytes[event] if event >= 0 else tape.before_bytes
    live = _live_after(tape, event)
    numbers = range(len(tape.addresses))
    first = dict(zip(reversed(tape.addresses), reversed(numbers), strict=True))
    ends = _ends(tape, event, live)
    chunks = [_chunk(tape, address, began, ends.get(address)) for address, began in live.items()]
    earlier = [
        _chunk(tape, address, -1, freed)
        for address, freed in first.items()
        if freed > event and tape.bytes[freed] < 0
    ]
    return Moment(total, _no_more_than(total, chunks), tuple(earlier), first)


def _live_after(tape: Tape, event: int) -> dict[int, int]:
    """Give the event that allocated each address in use, the oldest first."""
    live: dict[int, int] = {}
    events = zip(tape.addresses, tape.bytes, strict=True)
    for number, (address, size) in enumerate(islice(events, event + 1)):
        live.pop(address, None)
        if size > 0:
            live[address] = number
    return live


def _ends(tape: Tape, event: int, live: Mapping[int, int]) -> dict[int, int]:
    """Give the event that freed each address in use, if that is on the tape."""
    later = range(len(tape.addresses) - 1, event, -1)
    backwards = zip(reversed(tape.addresses), later, strict=False)
    return {address: number for address, number in backwards if address in live}


def _chunk(tape: Tape, address: int, began: int, ended: int | None) -> Chunk:
    known = ended if began < 0 and ended is not None else began
    size = abs(tape.bytes[known])
    return Chunk(address, size, min(tape.requested_bytes[known], size), began, ended)


def _no_more_than(total: int, chunks: list[Chunk]) -> tuple[Chunk, ...]:
    """Leave out the oldest where frees are missing on the tape: the allocator knows better."""
    surplus = sum(chunk.bytes for chunk in chunks) - total
    oldest = 0
    while surplus > 0:
        surplus -= chunks[oldest].bytes
        oldest += 1
    return tuple(chunks[oldest:])
