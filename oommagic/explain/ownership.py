"""Lays the notebook's names over the memory of one moment: which name held which chunk.

The names were looked up when the tape began and when it had ended, or else when the run did; the
moment lies between. A name is believed where its address says so: the chunk was there at that time
and was not freed in between. Variables may have moved meanwhile: then the op that made their last
buffer made the others too.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from oommagic.explain.replay import Chunk, Moment
from oommagic.explain.unseen import unseen
from oommagic.recording import Held, Left, Tape
from oommagic.report import HoldingKind

_GRAIN = 256
"""A BFC allocator hands out multiples of it."""

LASTING: frozenset[HoldingKind] = frozenset(
    {"weights", "optimizer slots", "variables", "loss and metrics", "data"}
)
"""What stays from step to step."""

_LEAST_ROW_BYTES = 1024
"""A batch is known by the size of its rows, if they are not small."""

_MOVING = LASTING - {"data"}
"""What a step may give a new buffer."""

_MOST_DOUBT = 4
"""Of what an earlier tape saw; names know better."""

_ITEM = re.compile(r"\[[^\[\]]*\]$")


@dataclass(frozen=True, slots=True)
class Claim:
    """A name's claim on memory that was handed out before the tape."""

    held: Held
    chunk_bytes: int
    doubt: int = 0
    """The lower, the better it is known that it was there."""
    left: Left | None = None
    """Where no name tells it, but an earlier tape."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Whose the memory of one moment was."""

    of_taped: Mapping[int, Held]
    """By the chunk's address."""
    of_earlier: tuple[Claim, ...]


def owners_at(tape: Tape, moment: Moment, before: Sequence[Held], after: Sequence[Held]) -> Owners:
    """Tell whose each chunk was, as far as names can say."""
    makers = _makers(tape, after)
    owners = _by_address(tape, moment, after)
    for chunk in moment.taped:
        held = makers.get(_maker(tape, chunk))
        if held is not None:
            owners.setdefault(chunk.address, held)
    claims = apart([*_claims(tape, moment, before, after), *_left_claims(tape, moment)])
    return Owners({**_batches(tape, moment, [*before, *after]), **owners}, tuple(claims))


def apart(claims: Iterable[Claim]) -> Iterator[Claim]:
    """Keep one claim for each piece of memory, the surest: names may share it, or parts of it."""
    end = 0
    for claim in sorted(claims, key=lambda one: (one.held.address, one.doubt, -one.held.bytes)):
        start = claim.held.address
        if start == 0 or start >= end:
            end = max(end, start + claim.held.bytes)
            yield claim


def _by_address(tape: Tape, moment: Moment, after: Sequence[Held]) -> dict[int, Held]:
    """Find what names still held at the end, in chunks that were never freed.

    Of what lives there without a name or a layer, the op that asked for it tells more.
    """
    lasting = {chunk.address: chunk for chunk in moment.taped if chunk.ended is None}
    addresses = sorted(lasting)
    owners: dict[int, Held] = {}
    for held in (one for one in after if one.owner or one.layer):
        place = bisect_right(addresses, held.address)  # a slice begins in the middle of a chunk
        if place:
            chunk = lasting[addresses[place - 1]]
            if _fits(tape, held, chunk):
                owners.setdefault(chunk.address, held)
    return owners


def _fits(tape: Tape, held: Held, chunk: Chunk) -> bool:
    """Tell whether a name's memory lies in that chunk, which was there when the tape ended.

    Where the run went on without the tape, the address alone does not tell: it may have been
    given back and handed out again since.
    """
    start = held.address - chunk.address
    if start + held.bytes > chunk.bytes:
        return False
    return _ends_with_names(tape) or (start == 0 and held.bytes == chunk.requested_bytes)


def _ends_with_names(tape: Tape) -> bool:
    """Tell whether names were looked up when the tape ended, not when the run went on."""
    return tape.is_whole or tape.names_after is not None


def _batches(tape: Tape, moment: Moment, held: Iterable[Held]) -> dict[int, Held]:
    """Find rows of a data set, on their way to the model, if there is but one that has such."""
    sets = [one for one in held if one.kind == "data" and one.shape and len(one.shape) > 1]
    owners: dict[int, Held] = {}
    for chunk in moment.taped:
        if tape.roles[tape.op_numbers[chunk.began]].kind != "data":
            continue
        shape, _ = tape.tensors[tape.tensor_numbers[chunk.began]]
        parts = [rows for whole in sets if (rows := _rows(whole, chunk.requested_bytes, shape))]
        if len({rows.owner for rows in parts}) == 1:
            owners[chunk.address] = parts[0]
    return owners


def _rows(whole: Held, size: int, shape: tuple[int, ...] | None) -> Held | None:
    """Describe so many bytes as rows of a data set, if they can be."""
    if not whole.shape or not whole.shape[0]:
        return None
    row = whole.bytes // whole.shape[0]
    rows = (size // row, *whole.shape[1:]) if row >= _LEAST_ROW_BYTES else ()
    if not rows or not rows[0] or size % row or shape not in {None, rows}:
        return None
    return replace(whole, owner=of_all(whole.owner), bytes=size, shape=rows, address=0)


def of_all(owner: str) -> str:
    """Say `losses` for `losses[3]`."""
    while _ITEM.search(owner):
        owner = _ITEM.sub("", owner)
    return owner


def _claims(
    tape: Tape, moment: Moment, before: Sequence[Held], after: Sequence[Held]
) -> Iterator[Claim]:
    """Find what names held of the memory that was handed out before the tape."""
    freed_later = {chunk.address: chunk for chunk in moment.earlier}
    still = {held.address: held.bytes for held in after}
    sizes = {left.address: (left.requested_bytes, left.bytes) for left in tape.left}

    def chunk_bytes(held: Held) -> int:
        requested_bytes, size = sizes.get(held.address, (0, 0))
        return size if requested_bytes == held.bytes else _in_grains(held.bytes)

    for held in before:
        if held.address in freed_later:
            yield Claim(held, freed_later[held.address].bytes)
        elif held.address not in moment.first_events:
            is_there_still = still.get(held.address) == held.bytes
            yield Claim(held, chunk_bytes(held), 1 if is_there_still else 2)
    for held in after:
        # Where the tape was cut short, this may have come after it, unless it is of a kind to last.
        is_older = _ends_with_names(tape) or held.kind in LASTING
        if held.address and held.address not in moment.first_events and is_older:
            yield Claim(held, chunk_bytes(held), 3)


def _left_claims(tape: Tape, moment: Moment) -> Iterator[Claim]:
    """Find what came before the tape: seen by an earlier one, or the like of what is on it."""
    freed_later = {chunk.address: chunk for chunk in moment.earlier}
    for left in chain(tape.left, unseen(tape, moment)):
        if not left.is_of_this_run:
            continue
        chunk = freed_later.get(left.address)
        if chunk is None and left.address in moment.first_events:
            continue
        if chunk is None or chunk.bytes == left.bytes:
            role = left.role
            held = Held(
                owner="",
                kind=role.kind,
                device=tape.device,
                address=left.address,
                bytes=min(left.requested_bytes, left.bytes),
                layer=role.layer,
                shape=left.shape,
                dtype=left.dtype,
            )
            yield Claim(held, left.bytes, _MOST_DOUBT, left)


def _in_grains(count: int) -> int:
    return -(-count // _GRAIN) * _GRAIN


_Maker = tuple[int, int]
"""An op of a graph, and how much it asked for."""


def _maker(tape: Tape, chunk: Chunk) -> _Maker:
    return tape.op_numbers[chunk.began], chunk.requested_bytes


def _makers(tape: Tape, after: Sequence[Held]) -> dict[_Maker, Held]:
    """Tell which ops of a graph make the new values of which variable.

    Some optimizers give a slot a new buffer in each step, and weights get one while somebody
    reads the old one. The op that made the last one made those of the other steps too.
    """
    last = dict(zip(tape.addresses, range(len(tape.addresses)), strict=True))
    found: dict[_Maker, Held] = {}
    doubtful: set[_Maker] = set()
    for held in after:
        event = last.get(held.address)
        if event is None or tape.bytes[event] <= 0 or held.kind not in _MOVING:
            continue
        maker = tape.op_numbers[event], tape.requested_bytes[event]
        if maker[1] != held.bytes or "/" not in tape.ops[maker[0]]:
            continue
        if found.setdefault(maker, held) is not held:
            doubtful.add(maker)
    return {maker: held for maker, held in found.items() if maker not in doubtful}
