"""Steps as graphs, in place of the code that makes them: what a child gets where that cannot come.

Values that travel, and what a child does with them; `tracing` makes them in the kernel. A graph is
the very function that TensorFlow would run for the step, on variables of the same shapes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from oommagic.recording import Held
from oommagic.tf.addresses import place_of_variable
from oommagic.tf.xla_functions import CompiledElsewhere

Ask = Callable[[int], "StepGraph"]


@dataclass(frozen=True, slots=True)
class MadeVariable:
    """A variable that the first step makes, as an optimizer makes its slots."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    value: Any = None
    """A tensor, where the variable does not begin with zeros."""

    def make(self) -> Any:
        """Make it, in a function of TensorFlow's."""
        import tensorflow as tf

        def begin() -> Any:
            return tf.zeros(self.shape, self.dtype) if self.value is None else self.value

        return tf.Variable(begin, name=self.name)


@dataclass(frozen=True, slots=True)
class StepGraph:
    """A step at one batch size, or at any if it was traced so."""

    name: str
    """What TensorFlow calls the function."""
    definitions: tuple[bytes, ...]
    """Its own, and those of the functions that it calls."""
    captured: tuple[int, ...]
    """What the function takes after the batch: numbers of variables and tensors."""
    outputs: int
    compiled: tuple[CompiledElsewhere, ...] = ()
    """Those of the functions that XLA compiles, with numbers for what they capture."""
    more: tuple[Any, ...] = ()
    """Those that the child does not have yet; a `MadeVariable` for what the step itself makes."""


@dataclass(slots=True)
class StepsInGraphs:
    """What is sent in place of a model or a function, and asks for a graph where there is none."""

    name: str
    things: list[Any]
    """Variables, and tensors that the step uses; graphs know them by their numbers."""
    held: tuple[Held | None, ...]
    """What those are for that are there before the first step."""
    sides: frozenset[int]
    given_out_bytes: int
    is_open: bool
    """Whether one graph is for batches of any size."""
    is_prepared_anew: bool
    steps_per_execution: int
    compiled: list[CompiledElsewhere] = field(default_factory=list)
    """The functions that XLA compiles, of the graphs that are here."""
    ask: Ask | None = None
    """Gives the graph for a batch size; not before the child has set it."""
    _ready: dict[int, Callable[[Sequence[Any]], object]] = field(default_factory=dict)

    def run(self, batch: int, given: Sequence[Any]) -> object:
        """Run the step on a batch of that size; the first time it is got and made ready."""
        key = 0 if self.is_open else batch
        if key not in self._ready and self.ask is not None:
            self._ready[key] = self._made_ready(self.ask(batch))
        return self._ready[key](given)

    def held_here(self) -> Iterator[Held]:
        """Tell what the variables hold in this process."""
        for thing, known in zip(self.things, self.held, strict=False):
            if known is not None:
                place = place_of_variable(thing.handle, thing.dtype.as_datatype_enum)
                if place is not None:
                    yield replace(known, device=place.device, address=place.address)

    def _made_ready(self, graph: StepGraph) -> Callable[[Sequence[Any]], object]:
        from tensorflow.core.framework import function_pb2
        from tensorflow.python.eager import context

        now = context.context()
        for definition in map(function_pb2.FunctionDef.FromString, graph.definitions):
            if not now.has_function(definition.signature.name):
                now.add_function_def(definition)
        made = iter(_made([each for each in graph.more if isinstance(each, MadeVariable)]))
        self.things += [
            next(made) if isinstance(each, MadeVariable) else each for each in graph.more
        ]
        self.compiled += map(self._with_things, graph.compiled)
        captured = [getattr(thing, "handle", thing) for thing in self._used(graph.captured)]
        name = graph.name.encode()
        return lambda given: now.call_function(name, [*given, *captured], graph.outputs)

    def _with_things(self, compiled: CompiledElsewhere) -> CompiledElsewhere:
        numbers = compiled.captured
        return compiled if numbers is None else replace(compiled, captured=self._used(numbers))

    def _used(self, numbers: Sequence[int]) -> tuple[Any, ...]:
        """Give the variables and tensors that a function captures, by their numbers."""
        return tuple(self.things[number] for number in numbers)


def _made(wanted: Sequence[MadeVariable]) -> list[Any]:
    """Make variables as a first step does: all at once, in a function of their own."""
    import tensorflow as tf

    made: list[Any] = []

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def make() -> None:
        if not made:  # it is traced twice
            made.extend(each.make() for each in wanted)

    make()
    return made
