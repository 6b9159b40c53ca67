"""Which of a run's tapes are kept, and what the earlier ones tell the later of memory in use."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from oommagic.own_builtins import keep_builtins
from oommagic.recording import Left, Tape

keep_builtins(globals())

# Of chunks from earlier runs only the size is of use, and only where it is not the usual one.
_WORTH_REMEMBERING_BYTES = 4096
_living: defaultdict[str, dict[int, Left]] = defaultdict(dict)
"""What the tapes of this process have seen being handed out, by device and address."""


def worth_keeping(tapes: Sequence[Tape]) -> tuple[Tape, ...]:
    """Keep for each device the tape on which it was fullest, and the one that lasted to the end."""
    tapes = [tape for tape in _with_left(tapes) if tape.bytes]
    kept: dict[str, Tape] = {}
    for tape in tapes:
        other = kept.get(tape.device)
        if other is None or max(tape.in_use_bytes) > max(other.in_use_bytes):
            kept[tape.device] = tape
    fullest = kept.values()
    return (*fullest, *(tape for tape in tapes if tape.is_whole and tape not in fullest))


def _with_left(tapes: Sequence[Tape]) -> Iterator[Tape]:
    """Add to each tape what the earlier ones of its device left behind."""
    for device, left in _living.items():
        _living[device] = {
            address: replace(one, is_of_this_run=False)
            for address, one in left.items()
            if one.bytes - one.requested_bytes >= _WORTH_REMEMBERING_BYTES
        }
    for tape in tapes:
        left = _living[tape.device]
        yield _until_names_were_looked_up(replace(tape, left=tuple(left.values())))
        allocated: dict[int, int] = {}
        for event, (address, size) in enumerate(zip(tape.addresses, tape.bytes, strict=True)):
            left.pop(address, None)
            allocated.pop(address, None)
            if size > 0:
                allocated[address] = event
        left |= {address: _left(tape, event) for address, event in allocated.items()}


def _until_names_were_looked_up(tape: Tape) -> Tape:
    """Leave out what was recorded later: it may have moved what they held."""
    if tape.names_after is None:
        return tape
    count = bisect_right(tape.times_s, tape.names_after.time_s)
    return replace(
        tape,
        times_s=tape.times_s[:count],
        addresses=tape.addresses[:count],
        bytes=tape.bytes[:count],
        requested_bytes=tape.requested_bytes[:count],
        in_use_bytes=tape.in_use_bytes[:count],
        op_numbers=tape.op_numbers[:count],
        tensor_numbers=tape.tensor_numbers[:count],
        temporary=tape.temporary[:count],
    )


def _left(tape: Tape, event: int) -> Left:
    op = tape.op_numbers[event]
    shape, dtype = tape.tensors[tape.tensor_numbers[event]]
    return Left(
        address=tape.addresses[event],
        bytes=tape.bytes[event],
        requested_bytes=tape.requested_bytes[event],
        op=tape.ops[op],
        role=tape.roles[op],
        shape=shape,
        dtype=dtype,
        time_s=tape.times_s[event],
    )
