"""The functions that XLA compiles, and asking TensorFlow to compile one once more.

Nothing of the user's runs for that, and nothing is traced.
"""

import gc
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from oommagic.own_builtins import keep_builtins
from oommagic.tf import context

keep_builtins(globals())

Shape = tuple[int, ...]
Unknown = tuple[int | None, ...]

_CONCRETE = "tensorflow.python.eager.polymorphic_function.concrete_function"
_MUST_COMPILE = "_XlaMustCompile"
_STAGE = "optimized_hlo_proto_serialized"
_FLAGS, _QUICKLY = "XLA_FLAGS", "--xla_backend_optimization_level=0"


def compiling_quickly() -> dict[str, str]:
    """Give the variables with which a child process compiles in less time.

    What is left out makes programs faster, and comes after their memory was laid out.
    """
    said = os.environ.get(_FLAGS, "").strip()
    names_a_file = bool(said) and not said.startswith("-")
    return {} if names_a_file else {_FLAGS: f"{said} {_QUICKLY}".strip()}


class CannotCompileError(Exception):
    """One function cannot be compiled at these shapes; the text is a whole sentence."""


@dataclass(frozen=True, slots=True)
class _Traced:
    """A traced function that XLA compiles, and the shapes of what is handed to it."""

    name: str
    data: tuple[tuple[Unknown, Any], ...]
    """Shape and data type of each argument; what it captured is not among them."""

    @property
    def number(self) -> int:
        """The number at the name's end: it grows with each function that is traced."""
        tail = self.name.rpartition("_")[2]
        return int(tail) if tail.isdecimal() else 0

    @property
    def said(self) -> str:
        """Its name as the user wrote it."""
        return f"`{self.name.removeprefix('__inference_').rpartition('_')[0]}`"


@dataclass(frozen=True, slots=True)
class CompiledFunction(_Traced):
    """One that this process has traced."""

    concrete: Any

    def count_ops(self) -> int:
        """Count the ops that are compiled, those of loops and branches too."""
        definition = self.concrete.graph.as_graph_def(add_shapes=False)
        return len(definition.node) + sum(len(f.node_def) for f in definition.library.function)

    def closed_over(self) -> list[Any]:
        """Give the variables and constants that the function closes over, as they are.

        TensorFlow crashes on an argument that is not what it expects: such functions are left
        alone.
        """
        captured = list(getattr(self.concrete, "_captured_inputs", ()))
        if any(callable(tensor) for tensor in captured):
            raise CannotCompileError(
                f"{self.said} asks Python for values when it runs: "
                "it cannot be compiled without running that."
            )
        if len(captured) + len(self.data) != len(self.concrete.inputs):
            raise CannotCompileError(f"{self.said} takes more than it shows.")
        if any(dtype.name in {"resource", "variant"} for _, dtype in self.data):
            raise CannotCompileError(
                f"{self.said} is given variables at each call: it cannot be compiled without them."
            )
        return captured


@dataclass(frozen=True, slots=True)
class CompiledElsewhere(_Traced):
    """One that another process has traced; its data types are names."""

    captured: tuple[Any, ...] | None
    """The variables and tensors that it closes over, or their numbers; None: they stayed there."""
    ops: int

    def count_ops(self) -> int:
        """Give the ops that are compiled, as they were counted there."""
        return self.ops

    def closed_over(self) -> list[Any]:
        """Give the variables and constants that the function closes over here."""
        if self.captured is None:
            raise CannotCompileError(f"{self.said} closes over what stayed in its process.")
        return [getattr(thing, "handle", thing) for thing in self.captured]


Compilable = CompiledFunction | CompiledElsewhere


def compiled_functions() -> Iterator[CompiledFunction]:
    """Find the traced functions that XLA compiles, of Keras and the user's own alike.

    The collector knows them all, wherever they are kept; asking it runs nobody's code.
    """
    kind = getattr(sys.modules.get(_CONCRETE), "ConcreteFunction", None)
    if kind is None:
        return
    for concrete in [thing for thing in gc.get_objects() if type(thing) is kind]:
        inner = getattr(concrete, "_inference_function", None)
        attributes = getattr(inner, "attributes", None) or {}
        if _MUST_COMPILE in attributes and attributes[_MUST_COMPILE].b:
            yield CompiledFunction(concrete.name.decode(), tuple(_data(concrete)), concrete)


def to_tell(names: Iterable[str]) -> Iterator[CompiledElsewhere]:
    """Give those of these functions that XLA compiles, for a process that did not trace them."""
    wanted = frozenset(names)
    for function in compiled_functions():
        if function.name in wanted:
            data = tuple((shape, dtype.name) for shape, dtype in function.data)
            captured: tuple[Any, ...] | None = None
            with suppress(CannotCompileError):
                captured = tuple(function.closed_over())
            yield CompiledElsewhere(function.name, data, captured, function.count_ops())


def _data(concrete: Any) -> Iterator[tuple[Unknown, Any]]:
    """Give what is handed over at each call: all inputs but the captured ones, which are last."""
    inputs = concrete.inputs
    for tensor in inputs[: len(inputs) - len(concrete.graph.captures)]:
        rank = tensor.shape.rank
        yield (() if rank is None else tuple(tensor.shape.as_list())), tensor.dtype


def compile_again(function: Compilable, shapes: Sequence[Shape]) -> Any:
    """Ask TensorFlow for the compiled program, as an `HloProto`."""
    try:
        from tensorflow.compiler.xla.service import hlo_pb2
        from tensorflow.python.framework import errors_impl, tensor_spec
    except ImportError as error:
        raise CannotCompileError(
            f"This TensorFlow does not show what it compiles: {error}."
        ) from error
    specs = [
        tensor_spec.TensorSpec(shape, dtype)
        for shape, (_, dtype) in zip(shapes, function.data, strict=True)
    ]
    captured = function.closed_over()
    try:
        text = _current_context().get_compiler_ir(
            device_name=_device(captured),
            platform_name=None,
            function_name=function.name.encode(),
            flat_args=specs,
            captured_inputs=captured,
            stage=_STAGE,
        )
    except (errors_impl.OpError, ValueError, TypeError, RuntimeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise CannotCompileError(f"{function.said} could not be compiled again: {first}") from error
    return hlo_pb2.HloProto.FromString(text)


def _current_context() -> Any:
    now: Any = context.current_context()
    if context.handle_of(now) is None or not hasattr(now, "get_compiler_ir"):
        raise CannotCompileError("This TensorFlow does not show what it compiles.")
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
        raise CannotCompileError("TensorFlow has no device.")
    return gpus[0] if gpus else devices[0].name
