"""A step without XLA, where XLA's one piece of memory is too large."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.examples import MODEL, STEP_OF_96, with_model
from oommagic.explain.advice.rule import STEP, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import computed_bytes
from oommagic.explain.advice.training import may_be_on_model
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import Named
from oommagic.report import Edit
from oommagic.units import format_bytes

_ARGUMENT = "jit_compile"
_SAVED, _RANGE = 0.4, (0.125, 1.75)
"""Of what XLA took, what was saved without it: measured on a CPU alone."""
_COMPILED = with_model(STEP_OF_96, replace(MODEL, is_compiled_by_xla=True))
_COMPILED_ON_GPU = replace(_COMPILED, is_on_gpu=True)
_WITH_REGEX = replace(
    _COMPILED_ON_GPU, names={**_COMPILED.names, "regex": Named("module", text="regex")}
)


class Xla(Rule):
    """`jit_compile=False`."""

    name = "xla"
    title = "A step without XLA"
    what = (
        "Where XLA compiles the training step, it says `jit_compile=False` in `compile`. Whether "
        "that saves is measured for a CPU only; on a GPU `%oomtry` tells."
    )
    why = (
        "A compiled step asks for its memory in one piece, which must be free in one piece. On a "
        "CPU it is the larger one for convolutions: a net of five took 262 MB without XLA and "
        "564 MB with it, with `gelu` 598 and 652, four dense layers 169 and 186. Blocks of "
        "attention took less with it, as `with-xla` says. Keras has it on by default on a GPU, "
        "where nothing was measured."
    )
    example = 'model.compile("adam", "mse", jit_compile=True)'
    instead = 'model.compile("adam", "mse", jit_compile=False)'
    safety = "same results"
    fix_safety = "The same within float rounding: ops are computed one by one rather than fused."
    cost = "it may be slower"
    effort = 1.2
    causes = STEP
    speaks = (
        Case(
            'model.compile("adam", "mse", jit_compile=True)  # fast\nmodel.fit(x, y)\n',
            _COMPILED,
            'model.compile("adam", "mse", jit_compile=False)  # fast\nmodel.fit(x, y)\n',
        ),
        Case(
            'model.compile("adam", "mse")\nmodel.fit(x, y)\n',
            _COMPILED_ON_GPU,
            'model.compile("adam", "mse", jit_compile=False)\nmodel.fit(x, y)\n',
        ),
        Case("model.fit(x, y)\n", _COMPILED_ON_GPU),
        Case('import regex\nwords = regex.compile("a+")\nmodel.fit(x, y)\n', _COMPILED_ON_GPU),
        Case('words = regex.compile("a+")\nmodel.fit(x, y)\n', _WITH_REGEX),
    )
    is_silent = (
        Case('model.compile("adam", "mse")\nmodel.fit(x, y)\n', STEP_OF_96),
        Case('model.compile("adam", "mse", jit_compile=False)\nmodel.fit(x, y)\n', STEP_OF_96),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find a model whose step XLA compiles."""
        model = next((name for name, one in here.models() if one.is_compiled_by_xla), None)
        if model is None:
            return
        total = computed_bytes(here)
        compiling = [
            call
            for call in cell.calls_of("compile")
            if may_be_on_model(cell, here, call) and (call.args or call.keywords)
        ]
        where = (
            "On a CPU a compiled step has taken more than one that is not in most that was measured"
            if not here.is_on_gpu
            else "Whether less is needed without it was not measured on a GPU: %oomtry tells"
        )
        yield Found(
            title="Train without XLA",
            message=(
                f"XLA compiles the step of `{model}`, and asks for what it computes in one piece: "
                f"{format_bytes(total)}. {where}."
            ),
            place=here.device,
            saving=None if here.is_on_gpu else expected(here.device, _SAVED * total, *_RANGE),
            edits=_edits(cell, compiling),
            line_number=compiling[0].lineno if compiling else None,
        )


def _edits(cell: TypedCell, compiling: list[ast.Call]) -> tuple[Edit, ...]:
    if len(compiling) != 1 or any(one.arg is None for one in compiling[0].keywords):
        return ()
    edit = cell.set_keyword(compiling[0], _ARGUMENT, "False")
    return () if edit is None else (edit,)
