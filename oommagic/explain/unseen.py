"""What was handed out just before a tape began, known by what comes again on it.

A tape may begin while a function runs already, or while a data set makes its first batches: then
the tape sees these chunks being freed, and not where they came from. But steps of one function
ask for the same again and again.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

from oommagic.explain.replay import Chunk, Moment
from oommagic.recording import Left, Tape

_LEAST_BYTES = 16 * 1024
"""Smaller ones have the size of many others."""

_Asked = tuple[int, int, int]
"""An op, its tensor, and how much it asked for, as numbers of the tape."""


def unseen(tape: Tape, moment: Moment) -> Iterator[Left]:
    """Describe chunks that nobody has seen being handed out, where only one thing fits."""
    seen = {left.address for left in tape.left if left.is_of_this_run}
    missing = _missing_in_first_step(tape)
    for chunk in moment.earlier:
        if chunk.requested_bytes < _LEAST_BYTES or chunk.address in seen:
            continue
        fitting = [asked for asked in missing if asked[2] == chunk.requested_bytes]
        if len(fitting) == 1 and missing[fitting[0]] > 0:
            missing[fitting[0]] -= 1
            yield _left(tape, chunk, fitting[0], tape.steps[0][0])
        elif not fitting:
            yield from _like_data(tape, chunk)


def _missing_in_first_step(tape: Tape) -> Counter[_Asked]:
    """Count what each later step of a function asks for, and the first on the tape does not."""
    if not tape.steps or not tape.times_s or _began_between_steps(tape):
        return Counter()
    first, *later = [step for step in tape.steps if step[2] == tape.steps[0][2]]
    if not later:
        return Counter()
    counts = [_asked_between(tape, began_s, ended_s) for began_s, ended_s, _ in later]
    each_time = counts[0]
    for count in counts[1:]:
        each_time &= count
    return each_time - _asked_between(tape, first[0], first[1])


def _asked_between(tape: Tape, began_s: float, ended_s: float) -> Counter[_Asked]:
    events = range(bisect_left(tape.times_s, began_s), bisect_right(tape.times_s, ended_s))
    return Counter(_asked(tape, event) for event in events if tape.bytes[event] > 0)


def _asked(tape: Tape, event: int) -> _Asked:
    return tape.op_numbers[event], tape.tensor_numbers[event], tape.requested_bytes[event]


def _like_data(tape: Tape, chunk: Chunk) -> Iterator[Left]:
    """Take a chunk for data if nothing but data ever had its size.

    Between two steps no layer's tensors are alive: there it is enough that data has its size.
    """
    alike = [left for left in tape.left if left.requested_bytes == chunk.requested_bytes]
    alike += (
        _left(tape, chunk, _asked(tape, event), tape.times_s[event])
        for event, requested_bytes in enumerate(tape.requested_bytes)
        if requested_bytes == chunk.requested_bytes and tape.bytes[event] > 0
    )
    data = [left for left in alike if left.role.kind == "data"]
    if data and (len(data) == len(alike) or _began_between_steps(tape)):
        # Which op it came from is not known, nor its shape.
        yield Left(
            address=chunk.address,
            bytes=chunk.bytes,
            requested_bytes=chunk.requested_bytes,
            op="",
            role=data[0].role,
            shape=None,
            dtype="",
            time_s=data[0].time_s,
        )


def _began_between_steps(tape: Tape) -> bool:
    return bool(tape.steps and tape.times_s) and tape.steps[0][0] > tape.times_s[0]


def _left(tape: Tape, chunk: Chunk, asked: _Asked, time_s: float) -> Left:
    op, tensor, _ = asked
    shape, dtype = tape.tensors[tensor]
    return Left(
        address=chunk.address,
        bytes=chunk.bytes,
        requested_bytes=chunk.requested_bytes,
        op=tape.ops[op],
        role=tape.roles[op],
        shape=shape,
        dtype=dtype,
        time_s=time_s,
    )
