"""What a step that XLA compiled keeps in its one allocation, without running it again.

For the allocator such a step is a single block, which on the tape has no name. TensorFlow's
compiler answers what is in it (`get_compiler_ir`), for a function that was traced already: so no
Python of the user's runs, nothing is traced, and no batch is needed, only its shapes. Compiling
takes as long as it did before the first step, and cannot be interrupted: it is bounded beforehand.
"""

import gc
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.recording import OpRole
from oommagic.report import Holding, HoldingKind
from oommagic.tf import context, hlo, layers
from oommagic.tf.hlo import CompiledBuffers
from oommagic.units import format_bytes, format_seconds

keep_builtins(globals())

RoleOf = Callable[[str, bool], OpRole]
Shape = tuple[int, ...]
Unknown = tuple[int | None, ...]

_CONCRETE = "tensorflow.python.eager.polymorphic_function.concrete_function"
_MUST_COMPILE = "_XlaMustCompile"
_STAGE = "optimized_hlo_proto_serialized"

_CLUSTER = re.compile(r"(?:^|.*[/:\s])(__inference_\w+)")

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

    cluster: str
    """Its name, as TensorFlow calls it: `__inference_one_step_on_data_2104`."""
    temporary_bytes: int
    """What it asks of the allocator for the time of a run."""
    temporary: tuple[Holding, ...]
    """What that holds at its fullest; adds up to `temporary_bytes`."""
    arguments: tuple[Holding, ...]
    """What was there before: weights, slots, the batch. Not in `temporary`."""
    outputs: tuple[Holding, ...]
    """What it gives back in memory of its own. Not in `temporary`."""
    compile_s: float


@dataclass(frozen=True, slots=True)
class NotCompiled:
    """Why there is no composition of a compiled step, in one sentence."""

    reason: str


class _CannotCompileError(Exception):
    """One function cannot be compiled at these shapes; the text is a whole sentence."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A traced function that XLA compiles, and the shapes of what is handed to it."""

    concrete: Any
    name: str
    data: tuple[tuple[Unknown, Any], ...]
    """Shape and data type of each argument; what it captured is not among them."""


def cluster_of(op: str) -> str:
    """Give the name of a compiled or traced function in an op's text, or nothing."""
    match = _CLUSTER.fullmatch(op)
    return match[1] if match else ""


def has_compiled_steps() -> bool:
    """Say whether a function that XLA compiled is alive: whether it is worth asking."""
    return next(_candidates(""), None) is not None


def compiled_step(
    requested_bytes: int,
    shapes: Iterable[tuple[Shape | None, str]] = (),
    cluster: str = "",
    budget_s: float = DEFAULT_BUDGET_S,
    role_of: RoleOf = layers.role_of,
) -> CompiledStep | NotCompiled:
    """Find the compiled function that asked for so many bytes, and say what it kept there.

    `shapes` are those seen on the tape: among them is the batch's. Without a name every compiled
    function that is alive is tried, the newest first, within `budget_s` of compiling.
    """
    candidates = sorted(_candidates(cluster), key=_number, reverse=True)
    if not candidates:
        return NotCompiled(
            f"The compiled function{f' {cluster}' if cluster else ''} is gone: "
            "its model or tf.function was deleted or traced anew after the run."
        )
    search = _Search(requested_bytes, frozenset(_static(shapes)), time.monotonic() + budget_s)
    reasons = []
    for candidate in candidates:
        try:
            found = search.in_candidate(candidate)
        except _CannotCompileError as error:
            reasons.append(str(error))
            continue
        if found is not None:
            return _step(candidate, *found, role_of)
    return NotCompiled(reasons[0] if reasons else _no_match(requested_bytes))


def last_number() -> int:
    """Give the number of the newest compiled function: those traced later have larger ones."""
    return max(map(_number, _candidates("")), default=0)


def temporary_bytes(since: int, batch: int, budget_s: float = DEFAULT_BUDGET_S) -> int | None:
    """Give what the functions that were traced since ask the allocator for, at a batch size.

    None where nothing was compiled, or where it cannot be told within `budget_s`. Nothing runs.
    """
    search = _Search(0, frozenset(), time.monotonic() + budget_s)
    new = sorted((each for each in _candidates("") if _number(each) > since), key=_number)
    # One that made variables was traced twice: only the second trace runs.
    running = {_plain(candidate.name): candidate for candidate in new}.values()
    try:
        return max((search.asked_at(candidate, batch) for candidate in running), default=None)
    except _CannotCompileError:
        return None


@dataclass(slots=True)
class _Search:
    """Looks for the shapes at which a function asks for so many bytes."""

    requested_bytes: int
    seen: frozenset[tuple[Shape, str]]
    until_s: float
    compiles: int = 0

    def in_candidate(self, candidate: _Candidate) -> tuple[Any, float] | None:
        """Give the program whose allocation fits, and the seconds that it took to compile."""
        known = sorted(_known_shapes(candidate.data, self.seen), key=_elements, reverse=True)
        for shapes in known:
            program, took_s = self._compile(candidate, shapes)
            if self._fits(program):
                return program, took_s
        return None if known else self._by_size(candidate)

    def asked_at(self, candidate: _Candidate, batch: int) -> int:
        """Give the bytes that it asks for at a batch size; it may have been traced for one only."""
        shapes = _batched(candidate.data, batch)
        if not any(None in shape for shape, _ in candidate.data):
            raise _CannotCompileError(f"{_plain(candidate.name)} was traced for one size only.")
        return _asked(self._compile(candidate, shapes)[0])

    def _by_size(self, candidate: _Candidate) -> tuple[Any, float] | None:
        """Find the batch size from the bytes alone.

        They grow with it in straight pieces: a few lines through the last two sizes lead there.
        """
        tried: dict[int, int] = {}
        batch = _PROBES[0]
        while batch not in tried:
            program, took_s = self._compile(candidate, _batched(candidate.data, batch))
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

    def _compile(self, candidate: _Candidate, shapes: Sequence[Shape]) -> tuple[Any, float]:
        expected_s = _SECONDS_AN_OP * _count_ops(candidate.concrete)
        left_s = self.until_s - time.monotonic()
        if self.compiles >= _MOST_COMPILES or expected_s > left_s:
            raise _CannotCompileError(
                f"What {_plain(candidate.name)} keeps in its memory was not read: compiling it "
                f"again takes about {format_seconds(expected_s)}, and "
                f"{format_seconds(max(left_s, 0.0))} are left for it (more with --compile-seconds)."
            )
        self.compiles += 1
        started_s = time.monotonic()
        program = _compiled(candidate, shapes)
        return program, time.monotonic() - started_s


def _candidates(cluster: str) -> Iterator[_Candidate]:
    """Find the traced functions that XLA compiles, of Keras and the user's own alike.

    The collector knows them all, wherever they are kept; asking it runs nobody's code.
    """
    kind = getattr(sys.modules.get(_CONCRETE), "ConcreteFunction", None)
    if kind is None:
        return
    for concrete in [thing for thing in gc.get_objects() if type(thing) is kind]:
        name = concrete.name.decode()
        inner = getattr(concrete, "_inference_function", None)
        attributes = getattr(inner, "attributes", None) or {}
        if cluster in {"", name} and _MUST_COMPILE in attributes and attributes[_MUST_COMPILE].b:
            yield _Candidate(concrete, name, tuple(_data(concrete)))


def _data(concrete: Any) -> Iterator[tuple[Unknown, Any]]:
    """Give what is handed over at each call: all inputs but the captured ones, which are last."""
    inputs = concrete.inputs
    for tensor in inputs[: len(inputs) - len(concrete.graph.captures)]:
        rank = tensor.shape.rank
        yield (() if rank is None else tuple(tensor.shape.as_list())), tensor.dtype


def _number(candidate: _Candidate) -> int:
    """Give the number at the name's end: it grows with each function that is traced."""
    tail = candidate.name.rpartition("_")[2]
    return int(tail) if tail.isdecimal() else 0


def _static(shapes: Iterable[tuple[Shape | None, str]]) -> Iterator[tuple[Shape, str]]:
    for shape, dtype in shapes:
        if shape:
            yield tuple(shape), dtype


def _known_shapes(
    data: Sequence[tuple[Unknown, Any]], seen: Iterable[tuple[Shape, str]]
) -> set[tuple[Shape, ...]]:
    """Fill in what was left open at tracing, from the shapes that were seen on the device.

    All arguments have the batch size in front; other open dimensions are taken as they were seen.
    """
    if all(None not in shape for shape, _ in data):
        return {tuple(_filled(shape, ()) for shape, _ in data)}
    found = set()
    for batch in {shape[0] for shape, _ in seen}:
        filled = [_seen_as(shape, dtype, batch, seen) for shape, dtype in data]
        whole = tuple(shape for shape in filled if shape is not None)
        largest = max((s for s, _ in data if None in s), key=len)
        is_seen = any(_matches(largest, other) and other[0] == batch for other, _ in seen)
        if len(whole) == len(data) and is_seen:
            found.add(whole)
    return found


def _seen_as(
    shape: Unknown, dtype: Any, batch: int, seen: Iterable[tuple[Shape, str]]
) -> Shape | None:
    """Give the full shape of one argument for a batch size, if it is known."""
    if None not in shape[1:]:
        return _filled(shape, (batch,))
    fitting = [
        other
        for other, name in seen
        if name == dtype.name and _matches(shape, other) and other[0] == batch
    ]
    return max(fitting, default=None)


def _matches(shape: Unknown, other: Shape) -> bool:
    return len(shape) == len(other) and all(
        wanted in {None, found} for wanted, found in zip(shape, other, strict=True)
    )


def _filled(shape: Unknown, front: Shape) -> Shape:
    """Put the batch size in front, where it was left open."""
    return tuple(front[0] if size is None else size for size in shape)


def _batched(data: Sequence[tuple[Unknown, Any]], batch: int) -> tuple[Shape, ...]:
    if any(None in shape[1:] for shape, _ in data):
        raise _CannotCompileError(
            "The shapes of the compiled step's batch are not known: "
            "it was traced for any, and the tape does not show them."
        )
    return tuple(_filled(shape, (batch,)) for shape, _ in data)


def _elements(shapes: Iterable[Shape]) -> int:
    return sum(_product(shape) for shape in shapes)


def _product(shape: Iterable[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _count_ops(concrete: Any) -> int:
    """Count the ops that are compiled, those of loops and branches too."""
    definition = concrete.graph.as_graph_def(add_shapes=False)
    return len(definition.node) + sum(len(f.node_def) for f in definition.library.function)


def _compiled(candidate: _Candidate, shapes: Sequence[Shape]) -> Any:
    """Ask TensorFlow for the compiled program, as an `HloProto`."""
    try:
        from tensorflow.compiler.xla.service import hlo_pb2
        from tensorflow.python.framework import errors_impl, tensor_spec
    except ImportError as error:
        raise _CannotCompileError(
            f"This TensorFlow does not show what it compiles: {error}."
        ) from error
    specs = [
        tensor_spec.TensorSpec(shape, dtype)
        for shape, (_, dtype) in zip(shapes, candidate.data, strict=True)
    ]
    captured = _captured(candidate)
    try:
        text = _current_context().get_compiler_ir(
            device_name=_device(captured),
            platform_name=None,
            function_name=candidate.concrete.name,
            flat_args=specs,
            captured_inputs=captured,
            stage=_STAGE,
        )
    except (errors_impl.OpError, ValueError, TypeError, RuntimeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise _CannotCompileError(
            f"{_plain(candidate.name)} could not be compiled again: {first}"
        ) from error
    return hlo_pb2.HloProto.FromString(text)


def _captured(candidate: _Candidate) -> list[Any]:
    """Give the variables and constants that the function closes over, as they are.

    TensorFlow crashes on an argument that is not what it expects: such functions are left alone.
    """
    captured = list(getattr(candidate.concrete, "_captured_inputs", ()))
    if any(callable(tensor) for tensor in captured):
        raise _CannotCompileError(
            f"{_plain(candidate.name)} asks Python for values when it runs: "
            "it cannot be compiled without running that."
        )
    if len(captured) + len(candidate.data) != len(candidate.concrete.inputs):
        raise _CannotCompileError(f"{_plain(candidate.name)} takes more than it shows.")
    if any(dtype.name in {"resource", "variant"} for _, dtype in candidate.data):
        raise _CannotCompileError(
            f"{_plain(candidate.name)} is given variables at each call: "
            "it cannot be compiled without them."
        )
    return captured


def _current_context() -> Any:
    now: Any = context.current_context()
    if context.handle_of(now) is None or not hasattr(now, "get_compiler_ir"):
        raise _CannotCompileError("This TensorFlow does not show what it compiles.")
    return now


def _device(captured: Iterable[Any]) -> str:
    """Give the device whose compiler is asked: the one that holds the variables.

    TensorFlow would find one by drawing a random number, which is the user's next.
    """
    for tensor in captured:
        device = getattr(tensor, "device", "")
        if device:
            return str(device)
    now = context.current_context()
    devices = [] if now is None else context.own_devices(now)
    gpus = [device.name for device in devices if device.device_type == "GPU"]
    if not devices:
        raise _CannotCompileError("TensorFlow has no device.")
    return gpus[0] if gpus else devices[0].name


def _asked(program: Any) -> int:
    """Give the bytes of a program's largest allocation for its run: what the tape shows."""
    return max(hlo.temporary_sizes(program), default=0)


def _step(candidate: _Candidate, program: Any, took_s: float, role_of: RoleOf) -> CompiledStep:
    buffers = hlo.read_buffers(program, role_of)
    return CompiledStep(
        cluster=candidate.name,
        temporary_bytes=sum(buffers.temporary_bytes),
        temporary=buffers.temporary,
        arguments=tuple(_arguments(candidate, buffers, role_of)),
        outputs=buffers.outputs,
        compile_s=took_s,
    )


def _arguments(
    candidate: _Candidate, buffers: CompiledBuffers, role_of: RoleOf
) -> Iterator[Holding]:
    """Name the parameters by the ops that read them first."""
    inputs = candidate.concrete.inputs
    for number, size in sorted(buffers.arguments):
        if number < len(candidate.data):
            yield Holding("data", size, dtype=candidate.data[number][1].name)
        elif number < len(inputs):
            name = inputs[number].name.partition(":")[0]
            role = role_of(name, False)  # noqa: FBT003 (a column of the tape)
            yield Holding(_kind_read_by(role), size, role.layer, name)
        else:
            yield Holding("unknown", size)


def _kind_read_by(reader: OpRole) -> HoldingKind:
    """Tell what a variable is by who reads it first: layers do before their optimizer."""
    if reader.layer and reader.kind in {"activations", "gradients"}:
        return "weights"
    is_optimizer_s = reader.kind in {"workspace", "optimizer slots", "weights"}
    return "optimizer slots" if is_optimizer_s else "variables"


def _plain(name: str) -> str:
    """Say a function's name as the user wrote it."""
    return f"`{name.removeprefix('__inference_').rpartition('_')[0]}`"


def _no_match(requested_bytes: int) -> str:
    return (
        f"None of the compiled functions asks for {format_bytes(requested_bytes)} "
        "at the shapes that were seen."
    )
