"""How a figure that was measured as a whole is shared out among the lines that ran meanwhile."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from oommagic.measure.tallies import Tally, Track
from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

# Shares of less than this are the allocator's noise: the line is not marked for them.
_NOISE_BYTES = 64 * 1024
# A thread that used less of the processor than this was waiting, not allocating.
_IDLE_SHARE = 0.05

Weight = Callable[[Tally], float]


@dataclass(frozen=True, slots=True)
class Part:
    """The lines of one thread that ran since the last reading.

    `seen` says where a look from outside found the thread, `weight` how busy it was.
    """

    lines: Collection[Tally]
    seen: Mapping[Tally, int]
    weight: float = 1.0

    def shares(self, amount: int, weight_of: Weight) -> Iterator[tuple[Tally, int]]:
        """Share bytes among the lines: by where they were seen, else by their weight."""
        if len(self.lines) == 1:
            return ((tally, amount) for tally in self.lines)
        if self.seen:
            weights = [float(self.seen.get(tally, 0)) for tally in self.lines]
        else:
            weights = [weight_of(tally) for tally in self.lines]
        return zip(self.lines, split(amount, weights), strict=True)


def part_of(track: Track, weight: float = 1.0) -> Part:
    """Return the lines that a thread ran since the last reading, those it ran unseen included."""
    if not track.is_dark:
        return Part(tuple(track.unread), {}, weight)  # its thread may go on meanwhile
    lines = {**track.unread, **track.dark, **dict.fromkeys(track.sightings)}
    return Part(lines, dict(track.sightings), weight)


def shares(parts: Sequence[Part], amount: int, weight_of: Weight) -> Iterator[tuple[Tally, int]]:
    """Share bytes among threads, and within each among its lines. Each line gets its share."""
    if len(parts) == 1:
        yield from parts[0].shares(amount, weight_of)
        return
    for part, amount_of_part in zip(
        parts, split(amount, [part.weight for part in parts]), strict=True
    ):
        yield from part.shares(amount_of_part, weight_of)


def split(amount: int, weights: Sequence[float]) -> list[int]:
    """Split an amount by weights, evenly if there are none; nothing of it is lost."""
    whole = sum(weights)
    if whole <= 0:
        weights, whole = [1.0] * len(weights), len(weights)
    parts = [int(amount * weight / whole) for weight in weights]
    if parts:
        parts[weights.index(max(weights))] += amount - sum(parts)
    return parts


def mark_shared(parts: Sequence[Part], amount: int) -> None:
    """Mark lines whose figures were measured together, where the amount is worth a mark."""
    if amount < _NOISE_BYTES:
        return
    whole = sum(part.weight for part in parts)
    busy = [part for part in parts if part.weight >= _IDLE_SHARE * whole]
    lines = [tally for part in busy for tally in part.lines]
    if len(lines) > 1:
        for tally in lines:
            tally.is_shared = True


def time_shares(track: Track, elapsed: float) -> Iterable[tuple[Tally, float]]:
    """Share the time in which lines ran unseen: by where the thread was seen, else as before."""
    lines: Iterable[Tally] = list(track.sightings) or list(track.dark)
    weights = {tally: track.sightings.get(tally, tally.elapsed) for tally in lines}
    whole = sum(weights.values())
    if not whole:
        return [(tally, elapsed / len(weights)) for tally in weights]
    return [(tally, elapsed * weight / whole) for tally, weight in weights.items()]


def by_time(tally: Tally) -> float:
    """Weigh a line by how long it ran."""
    return tally.elapsed


def by_own_memory(amount: int) -> Weight:
    """Weigh lines by how much they were seen to take (or, for a fall, to give back)."""
    sign = 1 if amount > 0 else -1
    return lambda tally: max(0, sign * tally.own_delta)


def by_device_memory(name: str, amount: int) -> Weight:
    """Weigh lines in the same way by their memory on one device."""
    sign = 1 if amount > 0 else -1
    return lambda tally: max(0, sign * tally.device_deltas.get(name, 0))
