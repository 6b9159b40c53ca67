"""What a step that XLA compiled keeps in its one allocation, without running it again.

For the allocator such a step is a single block, which on the tape has no name. TensorFlow's
compiler answers what is in it (`get_compiler_ir`), for a function that was traced already: so no
Python of the user's runs, nothing is traced, and no batch is needed, only its shapes. Compiling
takes as long as it did before the first step, and cannot be interrupted: it is bounded beforehand.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.recording import CompiledSize, OpRole
from oommagic.report import Holding, HoldingKind
from oommagic.tf import hlo
from oommagic.tf.hlo import CompiledBuffers
from oommagic.tf.layers import role_of
from oommagic.tf.xla_functions import (
    CannotCompileError,
    Compilable,
    CompiledElsewhere,
    CompiledFunction,
    Shape,
    compile_again,
    compiled_functions,
)
from oommagic.tf.xla_shapes import batched, known_shapes, takes
from oommagic.units import format_bytes, format_seconds

keep_builtins(globals())

DEFAULT_BUDGET_S = 30.0
_SECONDS_AN_OP = 0.0025
"""Measured on two cores: 1.2 s for a CNN's 707 ops, 37 s for ResNet50's 14,512."""

_PROBES = (32, 128)
_STRIDE = 16
"""Batch sizes that are compiled first where nothing tells the one that ran; how far one leaps."""

_MOST_OFF = 0.01
_MOST_COMPILES = 8


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """One compiled function at the shapes that it ran with."""

    temporary_bytes: int
    """What it asks of the allocator for the time of a run."""
    temporary: tuple[Holding, ...]
    """What that holds at its fullest; adds up to `temporary_bytes`."""
    arguments: tuple[Holding, ...]
    """What was there before: weights, slots, the batch. Not in `temporary`."""
    compile_s: float


@dataclass(frozen=True, slots=True)
class NotCompiled:
    """Why there is no composition of a compiled step, in one sentence."""

    reason: str


def has_compiled_steps() -> bool:
    """Say whether a function that XLA compiled is alive: whether it is worth asking."""
    return next(compiled_functions(), None) is not None


def compiled_step(
    requested_bytes: int,
    shapes: Iterable[tuple[Shape | None, str]] = (),
    budget_s: float = DEFAULT_BUDGET_S,
) -> CompiledStep | NotCompiled:
    """Find the compiled function that asked for so many bytes, and say what it kept there.

    `shapes` are those seen on the tape: among them is the batch's. Every compiled function that
    is alive is tried, the newest first, within `budget_s` of compiling.
    """
    newest_first = sorted(compiled_functions(), key=_number, reverse=True)
    if not newest_first:
        return NotCompiled(
            "The compiled function is gone: "
            "its model or tf.function was deleted or traced anew after the run."
        )
    search = _Search(requested_bytes, frozenset(_static(shapes)), time.monotonic() + budget_s)
    reasons = []
    for function in newest_first:
        try:
            found = search.in_function(function)
        except CannotCompileError as error:
            reasons.append(str(error))
            continue
        if found is not None:
            return _step(function, *found)
    return NotCompiled(reasons[0] if reasons else _no_match(requested_bytes))


def last_number() -> int:
    """Give the number of the newest compiled function: those traced later have larger ones."""
    return max(map(_number, compiled_functions()), default=0)


def size_at(
    since: int,
    batch: int,
    budget_s: float = DEFAULT_BUDGET_S,
    elsewhere: Iterable[CompiledElsewhere] = (),
) -> CompiledSize | None:
    """Tell the largest piece that functions which were traced since ask the allocator for.

    So do those that were traced elsewhere; those that were traced for another size alone do not.
    None where nothing was compiled for that size, or where it cannot be told within `budget_s`.
    Nothing runs.
    """
    search = _Search(0, frozenset(), time.monotonic() + budget_s)
    new: list[Compilable] = [each for each in compiled_functions() if each.number > since]
    taking = [function for function in [*new, *elsewhere] if takes(function.data, batch)]
    # One that made variables was traced twice: only the second trace runs.
    running = {function.said: function for function in sorted(taking, key=_number)}.values()
    try:
        programs = [search.program_at(function, batch) for function in running]
    except CannotCompileError:
        return None
    largest = max(programs, key=_asked, default=None)
    if largest is None:
        return None
    return CompiledSize(batch, _asked(largest), hlo.read_largest(largest))


@dataclass(slots=True)
class _Search:
    """Looks for the shapes at which a function asks for so many bytes."""

    requested_bytes: int
    seen: frozenset[tuple[Shape, str]]
    until_s: float
    compiles: int = 0

    def in_function(self, function: CompiledFunction) -> tuple[Any, float] | None:
        """Give the program whose allocation fits, and the seconds that it took to compile."""
        known = sorted(known_shapes(function.data, self.seen), key=_elements, reverse=True)
        for shapes in known:
            program, took_s = self._compile(function, shapes)
            if self._fits(program):
                return program, took_s
        return None if known else self._by_size(function)

    def program_at(self, function: Compilable, batch: int) -> Any:
        """Compile it for a batch size."""
        return self._compile(function, batched(function.data, batch))[0]

    def _by_size(self, function: CompiledFunction) -> tuple[Any, float] | None:
        """Find the batch size from the bytes alone.

        They grow with it in straight pieces: a few lines through the last two sizes lead there.
        """
        tried: dict[int, int] = {}
        batch = _PROBES[0]
        while batch not in tried:
            program, took_s = self._compile(function, batched(function.data, batch))
            if self._fits(program):
                return program, took_s
            tried[batch] = _asked(program)
            batch = _PROBES[1] if len(tried) == 1 else self._next_size(tried)
        return None

    def _next_size(self, tried: Mapping[int, int]) -> int:
        """Go on along the line through the last two; where it is flat, to where it is not."""
        before, last = list(tried)[-2:]
        growth = (tried[last] - tried[before]) / (last - before)
        if growth <= 0:
            return max(tried) * _STRIDE
        guess = round(last + (self.requested_bytes - tried[last]) / growth)
        return min(max(guess, 1), max(tried) * _STRIDE)

    def _fits(self, program: Any) -> bool:
        return abs(_asked(program) - self.requested_bytes) <= _MOST_OFF * self.requested_bytes

    def _compile(self, function: Compilable, shapes: Sequence[Shape]) -> tuple[Any, float]:
        expected_s = _SECONDS_AN_OP * function.count_ops()
        left_s = self.until_s - time.monotonic()
        if self.compiles >= _MOST_COMPILES or expected_s > left_s:
            raise CannotCompileError(
                f"What {function.said} keeps in its memory was not read: compiling it "
                f"again takes about {format_seconds(expected_s)}, and "
                f"{format_seconds(max(left_s, 0.0))} are left for it (more with --compile-seconds)."
            )
        self.compiles += 1
        started_s = time.monotonic()
        program = compile_again(function, shapes)
        return program, time.monotonic() - started_s


def _number(function: Compilable) -> int:
    return function.number


def _static(shapes: Iterable[tuple[Shape | None, str]]) -> Iterator[tuple[Shape, str]]:
    for shape, dtype in shapes:
        if shape:
            yield tuple(shape), dtype


def _elements(shapes: Iterable[Shape]) -> int:
    return sum(map(prod, shapes))


def _asked(program: Any) -> int:
    """Give the bytes of a program's largest allocation for its run: what the tape shows."""
    return max(hlo.temporary_sizes(program), default=0)


def _step(function: CompiledFunction, program: Any, took_s: float) -> CompiledStep:
    buffers = hlo.read_buffers(program)
    return CompiledStep(
        temporary_bytes=sum(buffers.temporary_bytes),
        temporary=buffers.temporary,
        arguments=tuple(_arguments(function, buffers)),
        compile_s=took_s,
    )


def _arguments(function: CompiledFunction, buffers: CompiledBuffers) -> Iterator[Holding]:
    """Name the parameters by the ops that read them first."""
    inputs = function.concrete.inputs
    for number, size in sorted(buffers.arguments):
        if number < len(function.data):
            yield Holding("data", size, dtype=function.data[number][1].name)
        elif number < len(inputs):
            name = inputs[number].name.partition(":")[0]
            role = role_of(name)
            yield Holding(_kind_read_by(role), size, role.layer, name)
        else:
            yield Holding("unknown", size)


def _kind_read_by(reader: OpRole) -> HoldingKind:
    """Tell what a variable is by who reads it first: layers do before their optimizer."""
    if reader.layer and reader.kind in {"activations", "gradients"}:
        return "weights"
    is_optimizer_s = reader.kind in {"workspace", "optimizer slots", "weights"}
    return "optimizer slots" if is_optimizer_s else "variables"


def _no_match(requested_bytes: int) -> str:
    return (
        f"None of the compiled functions asks for {format_bytes(requested_bytes)} "
        "at the shapes that were seen."
    )
