"""Notices each call of a top-level tf.function, and leaves no line of ours in a traceback.

TensorFlow runs them all through one method of its context. While a tape runs, an attribute of
that context stands in for the method. Calling it looks `__call__` up first, as Python does for
every object; that is where the call is noticed, and what the look-up gives is written in C and
calls TensorFlow's own method. Python drops it when the call has ended, however it ended: so the
end is noticed too.
"""

import re
import sys
import weakref
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Self

from oommagic.own_builtins import keep_builtins
from oommagic.tf.context import EagerContext

keep_builtins(globals())

_METHOD = "call_function"
_GENERATED = re.compile(r"__(inference|forward|backward)_(.+?)_\d+")


class FunctionCalls:
    """Tells when a function of one context begins and ends, from whichever thread."""

    def __init__(
        self,
        context: EagerContext,
        on_begin: Callable[[str], None],
        on_end: Callable[[str, float, float], None],
    ) -> None:
        """Change nothing on the context yet; it is held weakly."""
        self.on_begin = on_begin
        self.on_end = on_end
        self._context = weakref.ref(context)

    def start(self) -> None:
        """Stand in for the context's method, where this TensorFlow has it."""
        context = self._context()
        method = getattr(type(context), _METHOD, None)
        if context is not None and callable(method):
            vars(context)[_METHOD] = _StandIn(self)

    @property
    def stands_in(self) -> bool:
        """Whether calls are noticed: the context is there, and has the attribute."""
        context = self._context()
        stand_in = None if context is None else vars(context).get(_METHOD)
        return isinstance(stand_in, _StandIn) and stand_in.calls is self

    def stop(self) -> None:
        """Take the attribute away; calls that have begun still end as they would have."""
        context = self._context()
        if context is not None and self.stands_in:
            del vars(context)[_METHOD]

    def begun_by(self, caller: Any) -> "_Call":
        """Notice a call, and give what makes it."""
        context = self._context()
        if context is None:
            raise ReferenceError("This method's TensorFlow context has ended.")
        # TensorFlow's own object for the function is the one that calls.
        name = plain_name(getattr(caller.f_locals.get("self"), "name", ""))
        self.on_begin(name)
        call = _Call(getattr(type(context), _METHOD), context)
        call.name, call.began_s, call.calls = name, perf_counter(), self
        return call


class _StandIn:
    """The attribute: an object that gives a fresh `__call__` each time it is called."""

    def __init__(self, calls: FunctionCalls) -> None:
        self.calls = calls

    @property
    def __call__(self) -> "_Call":
        return self.calls.begun_by(sys._getframe(1))  # noqa: SLF001 (no public way)


class _Call(partial):  # type: ignore[type-arg]
    """One call; it goes when the call has ended."""

    name: str
    began_s: float
    calls: FunctionCalls | None = None
    """None where an interrupt came before it was said: then it has not begun."""

    def __new__(cls, method: Callable[..., object], context: EagerContext) -> Self:
        return super().__new__(cls, method, context)

    def __del__(self) -> None:
        if self.calls is not None:
            self.calls.on_end(self.name, self.began_s, perf_counter())


AT_END_OF_CALL = _Call.__del__
"""What Python calls then: it can only print an interrupt that comes in there."""


def plain_name(generated: str | bytes) -> str:
    """Make `train_step` of TensorFlow's `__inference_train_step_1234`."""
    name = generated.decode() if isinstance(generated, bytes) else str(generated)
    parts = _GENERATED.fullmatch(name)
    if parts is None:
        return name
    return parts[2] if parts[1] == "inference" else f"{parts[2]}, {parts[1]}"
