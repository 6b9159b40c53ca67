"""The tf.functions of a notebook: their Python lines run once per trace, not once per call."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType

_TENSORFLOW_S_OWN = "tensorflow.python.eager.polymorphic_function"


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """One tf.function, the Python code that it was made from, and how often it was traced."""

    name: str
    code: CodeType
    traces: int


def traced_functions(namespace: Mapping[str, object]) -> Iterator[TracedFunction]:
    """Yield the tf.functions among these names, leaving all other objects alone."""
    for name, value in list(namespace.items()):
        kind = type(value)
        if kind.__name__ == "Function" and kind.__module__.startswith(_TENSORFLOW_S_OWN):
            code = getattr(getattr(value, "python_function", None), "__code__", None)
            count = getattr(value, "experimental_get_tracing_count", lambda: 0)
            if isinstance(code, CodeType):
                yield TracedFunction(name, code, count())
