"""Traces the steps of a model or a function in the user's kernel, so that their graphs can travel.

Nothing runs for it but the Python that tracing takes, and what makes variables; it belongs within
`left_as_it_was`. A step is traced as `fit`, `predict` or the user's own loop would have it traced.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from oommagic.errors import CannotTravelError
from oommagic.recording import Held
from oommagic.tf import real_steps, steps
from oommagic.tf.addresses import place_of_variable
from oommagic.tf.inventory import held_by
from oommagic.tf.samples import Sample, Task, leaves, map_leaves
from oommagic.tf.step_graphs import MadeVariable, StepGraph, StepsInGraphs
from oommagic.tf.traced_steps import Traced, is_traced, traced_prediction, traced_training
from oommagic.tf.xla_functions import CompiledElsewhere, to_tell

_GRAPH = "The graph of its step"
_CALLS_PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_OF_ITS_PROCESS = frozenset({"resource", "variant"})
_RUNS_EAGERLY = "What runs eagerly of its step was traced as well: it may take more than its graph."
_LONGEST_MESSAGE = 300


class Tracing:
    """The graphs of a subject's steps, each traced when it is asked for."""

    def __init__(self, subject: Any, sample: Sample, task: Task) -> None:
        """Trace nothing yet."""
        if real_steps.has_strategy(subject):
            raise CannotTravelError(_GRAPH, "its strategy is made for the devices of this process.")
        self.sample = _travelling(subject, sample, task)
        """What travels with the graphs."""
        self._subject = subject
        self._sample = sample
        self._task = task
        self._is_open = task != "step" and _is_open(subject)
        self._graphs: dict[int, StepGraph] = {}
        self._kept: list[Traced] = []
        """Or TensorFlow would forget them."""
        self._things: list[Any] = []
        """Variables and tensors that graphs use, by their numbers."""
        self._numbers: dict[int, int] = {}
        self._made: set[int] = set()
        self._sent = 0
        """So many things have been told to the child."""
        self._add(_variables_of(subject))

    def subject_at(self, batch: int) -> StepsInGraphs:
        """Give what travels in the subject's place; the step is traced at that batch size."""
        self._at(batch)
        there = self._things[: self._sent]
        return StepsInGraphs(
            name=steps.title_of(self._subject),
            things=there,
            held=tuple(_held(self._subject, there)),
            sides=steps.sides_of(self._subject),
            given_out_bytes=real_steps.given_out_bytes(self._subject),
            is_open=self._is_open,
            is_prepared_anew=not self._is_open or self._subject.jit_compile,
            steps_per_execution=getattr(self._subject, "steps_per_execution", 1),
        )

    def give(self, batch: int) -> StepGraph:
        """Give the graph of a step at a batch size, with what the child does not have yet."""
        graph = self._at(batch)
        more = tuple(map(self._told, self._things[self._sent :]))
        self._sent = len(self._things)
        return replace(graph, more=more)

    def _at(self, batch: int) -> StepGraph:
        size = 0 if self._is_open else batch
        if size not in self._graphs:
            self._graphs[size] = self._traced(batch)
        return self._graphs[size]

    def _traced(self, batch: int) -> StepGraph:
        import tensorflow as tf

        made: list[Any] = []

        def note(make: Callable[..., Any], **options: Any) -> Any:
            made.append(make(**options))
            return made[-1]

        try:
            with tf.variable_creator_scope(note):
                traced = self._traced_at(batch)
        except Exception as error:  # the user's code may raise anything
            raise CannotTravelError(_GRAPH, _why_not_traced(error)) from error
        self._kept.append(traced)
        return self._graph_of(traced.concrete, made)

    def _traced_at(self, batch: int) -> Traced:
        """Trace the step as a function of TensorFlow's runtime."""
        if self._task == "training":
            return _trained(self._subject, self._sample, batch)
        if self._task == "prediction":
            return _predicted(self._subject, self._sample, batch)
        return _called(self._subject, self._sample, batch)

    def _graph_of(self, function: Any, made: list[Any]) -> StepGraph:
        definitions = list(_definitions(function.name.decode()))
        known = {_key(each): each for each in (*self._things, *function.graph.variables, *made)}
        used = [known.get(_key(each), each) for each in function.captured_inputs]
        _check(function, definitions, used)
        self._made.update(map(_key, made))
        self._add(each for each in used if _key(each) not in self._made)
        if not self._graphs:  # what is there before the first step
            self._sent = len(self._things)
        self._add(made)
        return StepGraph(
            name=function.name.decode(),
            definitions=tuple(each.SerializeToString() for each in definitions),
            captured=self._numbers_of(used),
            compiled=tuple(self._compiled(each.signature.name for each in definitions)),
            outputs=len(definitions[0].signature.output_arg),
        )

    def _compiled(self, names: Iterable[str]) -> Iterator[CompiledElsewhere]:
        """Tell of the functions that XLA compiles, and what they capture if it is the step's."""
        for each in to_tell(names):
            captured = each.captured
            if captured is not None and all(_key(thing) in self._numbers for thing in captured):
                yield replace(each, captured=self._numbers_of(captured))
            else:
                yield replace(each, captured=None)

    def _numbers_of(self, things: Iterable[Any]) -> tuple[int, ...]:
        return tuple(self._numbers[_key(each)] for each in things)

    def _add(self, things: Iterable[Any]) -> None:
        for thing in things:
            if _key(thing) not in self._numbers:
                self._numbers[_key(thing)] = len(self._things)
                self._things.append(thing)

    def _told(self, thing: Any) -> Any:
        if _key(thing) not in self._made:
            return thing
        value = thing.read_value()
        starts_with_zeros = value.dtype.is_numpy_compatible and not value.__array__().any()
        return MadeVariable(
            name=thing.name.partition(":")[0],
            shape=tuple(value.shape),
            dtype=value.dtype.name,
            value=None if starts_with_zeros else value,
        )


def _travelling(subject: Any, sample: Sample, task: Task) -> Sample:
    """Leave out what a function is given beside arrays, which is in its graph."""
    content, notes = sample.content, sample.notes
    if task == "step":
        content = tuple(filter(real_steps.is_array_of_step, leaves(content)))
    if getattr(subject, "run_eagerly", False) or (task == "step" and not is_traced(subject)):
        notes = (*notes, _RUNS_EAGERLY)
    return Sample(content, notes)


def _key(thing: Any) -> int:
    """Give what a variable and its handle, by which functions know it, have in common."""
    return id(getattr(thing, "handle", thing))


def _variables_of(subject: Any) -> Iterator[Any]:
    """Give all variables of a Keras model, those that its step does not use too."""
    for owner, kept in (
        (subject, "variables"),
        (subject, "metrics_variables"),
        (getattr(subject, "optimizer", None), "variables"),
    ):
        yield from (variable.value for variable in getattr(owner, kept, ()))


def _held(subject: Any, things: list[Any]) -> Iterator[Held | None]:
    """Tell what each of the variables is for."""
    known = {each.address: each for each in held_by({steps.title_of(subject): subject})}
    for thing in things:
        handle = getattr(thing, "handle", None)
        place = None if handle is None else place_of_variable(handle, thing.dtype.as_datatype_enum)
        yield None if place is None or not place.address else known.get(place.address)


def _trained(model: Any, sample: Sample, batch: int) -> Traced:
    return traced_training(model, _batches(model, sample, batch))


def _predicted(model: Any, sample: Sample, batch: int) -> Traced:
    batches = _batches(model, sample, batch)
    return traced_prediction(model, real_steps.data_of(model, batches))


def _batches(model: Any, sample: Sample, batch: int) -> Iterator[Any]:
    return real_steps.iterator_of(model, sample, batch, is_open=_is_open(model))


def _is_open(model: Any) -> bool:
    """Say whether one graph serves all sizes: of a compiled one XLA tells sizes that do not run."""
    return bool(model.jit_compile) or real_steps.is_traced_open(model)


def _called(function: Any, sample: Sample, batch: int) -> Traced:
    """Trace a function of the user's, whose arrays alone are given at each call."""
    import tensorflow as tf

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def arguments(given: Any) -> Any:
        arrays = iter(given)
        is_array = real_steps.is_array_of_step
        return map_leaves(lambda part: next(arrays) if is_array(part) else part, sample.content)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def tensors(result: Any) -> Any:
        return [part for part in tf.nest.flatten(result) if tf.is_tensor(part)]

    def step(*given: Any) -> Any:
        return tensors(function(*arguments(given)))

    arrays = map(tf.convert_to_tensor, real_steps.arrays_of_step(sample, batch))
    traced = tf.function(step)
    return Traced(traced.get_concrete_function(*arrays), traced)


def _definitions(name: str) -> Iterator[Any]:
    """Give a function's definition, and those of all functions that it leads to."""
    from tensorflow.python.eager import context

    waiting, seen = [name], {name}
    while waiting:
        definition = context.context().get_function_def(waiting.pop())
        yield definition
        called = set(_functions_in(definition)) - seen
        seen |= called
        waiting += sorted(called)


def _functions_in(definition: Any) -> Iterator[str]:
    for node in definition.node_def:
        for value in node.attr.values():
            yield from (each.name for each in (value.func, *value.list.func) if each.name)


def _check(function: Any, definitions: list[Any], used: list[Any]) -> None:
    """Refuse what a child cannot have."""
    for definition in definitions:
        for node in definition.node_def:
            if node.op in _CALLS_PYTHON:
                raise CannotTravelError(_GRAPH, f"it calls Python while it runs, in `{node.name}`.")
    for thing, inside in zip(used, function.graph.internal_captures, strict=True):
        if not hasattr(thing, "handle") and thing.dtype.name in _OF_ITS_PROCESS:
            users = ", ".join(f"`{op.name}`" for op in inside.consumers()[:1])
            raise CannotTravelError(
                _GRAPH, f"it uses a table, a data set or the like of this process, in {users}."
            )


def _why_not_traced(error: Exception) -> str:
    name = type(error).__name__
    # AutoGraph writes the lines that led there in front of the error's own text.
    text = " ".join(str(error).rpartition(f"{name}: ")[2].split())
    if len(text) > _LONGEST_MESSAGE:
        text = f"{text[:_LONGEST_MESSAGE]}…"
    return f"it could not be traced ({name}: {text.rstrip('.')})."
