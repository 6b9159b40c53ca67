"""The large nameless allocation on a tape of a compiled step: what XLA says lies in it."""

from oommagic.own_builtins import keep_builtins
from oommagic.recording import CompiledMemory, Tape
from oommagic.tf import xla
from oommagic.units import MIB, format_seconds

keep_builtins(globals())

_LEAST_BYTES = MIB
_LEAST_SHARE = 0.05
"""Of the peak: what is smaller is not worth compiling the step again."""


def look_inside(tape: Tape, budget_s: float) -> CompiledMemory | None:
    """Tell what the largest allocation without an op holds, if a compiled step has asked for it.

    The step is compiled once more for that, within `budget_s`. It does not run again.
    """
    requested_bytes = _largest_nameless(tape)
    least = max(_LEAST_BYTES, _LEAST_SHARE * max(tape.in_use_bytes, default=0))
    if budget_s <= 0 or requested_bytes < least or not xla.has_compiled_steps():
        return None
    step = xla.compiled_step(requested_bytes, tape.tensors, budget_s=budget_s)
    if isinstance(step, xla.NotCompiled):
        return CompiledMemory(tape.device, requested_bytes, note=step.reason)
    note = f"The step was compiled once more for this, in {format_seconds(step.compile_s)}."
    return CompiledMemory(tape.device, requested_bytes, step.temporary, note)


def _largest_nameless(tape: Tape) -> int:
    unknown = {number for number, role in enumerate(tape.roles) if role.kind == "unknown"}
    events = zip(tape.op_numbers, tape.bytes, tape.requested_bytes, strict=True)
    return max(
        (requested for op, size, requested in events if size > 0 and op in unknown), default=0
    )
