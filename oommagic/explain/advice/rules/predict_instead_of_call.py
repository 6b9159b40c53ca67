"""`model.predict(x)` where a whole array is one batch: `model(x)`."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.rule import STEP, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import Named
from oommagic.units import format_bytes

_BATCH = 32
"""What `predict` takes where nobody says otherwise."""


class PredictInsteadOfCall(Rule):
    """Batches instead of one batch of everything."""

    name = "predict-instead-of-call"
    title = "`predict` instead of calling the model"
    what = (
        "Where a model is called with a whole array, as in `model(x)`, it takes `predict`, which "
        "goes over it in batches."
    )
    why = (
        "`model(x)` is one batch of all there is: every layer's output for all samples is on the "
        "device at once. `predict` keeps those of one batch."
    )
    example = "p = model(x).numpy()"
    instead = "p = model.predict(x, batch_size=32)"
    safety = "same results"
    fix_safety = (
        "The same within rounding, in inference mode; the outputs are on the host, and no gradient "
        "goes through them."
    )
    cost = ""
    causes = STEP
    speaks = (
        Case(
            "p = model(x).numpy()  # all\n",
            STEP_OF_96,
            "p = model.predict(x, batch_size=32)  # all\n",
        ),
        Case(
            "p = model(x, training=False)\nq = p + 1\n",
            STEP_OF_96,
            "p = tf.convert_to_tensor(model.predict(x, batch_size=32))\nq = p + 1\n",
        ),
    )
    is_silent = (
        Case("p = model(x, training=True)\n", STEP_OF_96),
        Case("with tf.GradientTape() as tape:\n    p = model(x)\n", STEP_OF_96),
        Case("def step(x):\n    return model(x)\n", STEP_OF_96),
        Case("p, q = model(x)\n", STEP_OF_96),
        Case("p = model(x)\n"),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find models that are called with a whole array."""
        for call in cell.calls:
            data = _data(cell, here, call)
            if data is None or not data.shape or data.shape[0] <= _BATCH:
                continue
            rows, name = data.shape[0], cell.text_of(call.func)
            taken = _taken(here, cell.statement(call).lineno)
            code = f"{name}.predict({cell.text_of(call.args[0])}, batch_size={_BATCH})"
            written = _written(cell, here, call, code)
            if written is None or not taken:
                continue
            size = int(max(0, taken - data.bytes) * (1 - _BATCH / rows))
            yield Found(
                title=f"Let `{name}` predict in batches",
                message=(
                    f"`{cell.text_of(call)}` is one batch of {rows}, and took up to "
                    f"{format_bytes(taken)}; `predict` goes over it in batches of {_BATCH}."
                ),
                place=here.device,
                saving=expected(here.device, size, 0.7, 1.25),
                edits=(cell.replace(*written),),
                line_number=call.lineno,
            )


def _data(cell: TypedCell, here: Situation, call: ast.Call) -> Named | None:
    """Give what a model is called with, if it is one array, outside of any training."""
    if len(call.args) != 1:
        return None
    model, data = here.known(call.func), here.known(call.args[0])
    if model is None or model.kind != "model":
        return None
    if data is None or data.kind not in {"array", "tensor"}:
        return None
    is_plain = all(
        one.arg == "training" and isinstance(one.value, ast.Constant) and not one.value.value
        for one in call.keywords
    )
    inside = (ast.With, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    is_outside = not any(isinstance(above, inside) for above in cell.around(call))
    return data if is_plain and is_outside and not cell.is_repeated(call) else None


def _written(
    cell: TypedCell, here: Situation, call: ast.Call, code: str
) -> tuple[ast.Call, str] | None:
    """Say what is to be replaced by what: outputs as an array, or else as the tensor they were."""
    above = cell.parents[call]
    outer = cell.parents.get(above)
    if isinstance(above, ast.Attribute) and above.attr == "numpy" and isinstance(outer, ast.Call):
        return outer, code
    tensorflow = here.module("tensorflow")
    if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple | ast.List):
        return None  # it has several outputs
    return None if tensorflow is None else (call, f"{tensorflow}.convert_to_tensor({code})")


def _taken(here: Situation, line_number: int) -> int:
    """Say how much of the device the line took."""
    if here.ran_out:
        is_it = here.place == here.device and here.line_number == line_number
        return here.device_needs_bytes - here.device_before_bytes if is_it else 0
    peaks = [
        line.devices[here.device].peak_bytes
        for line in here.lines
        if line.line_number == line_number and here.device in line.devices
    ]
    return max(0, max(peaks, default=0) - here.device_before_bytes)
