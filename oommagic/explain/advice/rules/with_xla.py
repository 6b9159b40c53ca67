"""A step that XLA compiles, for nets of which that was seen to need less."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.examples import MODEL, STEP_OF_96, with_model
from oommagic.explain.advice.nodes import dotted, keyword
from oommagic.explain.advice.rule import Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import computed_bytes
from oommagic.explain.advice.training import trains
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import LayerFacts, ModelFacts
from oommagic.report import Edit
from oommagic.units import MIB, format_bytes

_ARGUMENT = "jit_compile"
_FUSED = "LayerNormalization"
_GREW_WITH = frozenset({"Embedding", "LSTM", "GRU", "Bidirectional"})
_MOST_OF_IT = 0.5

_BLOCKS = with_model(
    STEP_OF_96,
    replace(MODEL, layers=(LayerFacts("norm", _FUSED, MIB), LayerFacts("dense", "Dense", MIB))),
)
_WITH_WORDS = with_model(
    STEP_OF_96, replace(MODEL, layers=(LayerFacts("norm", _FUSED, MIB),
                                       LayerFacts("embedding", "Embedding", MIB)))
)  # fmt: skip
_ON_A_GPU = replace(STEP_OF_96, is_on_gpu=True)


class WithXla(Rule):
    """`jit_compile=True`."""

    name = "with-xla"
    title = "A step with XLA"
    what = (
        "Where layers between normalisations fill the device, it says `jit_compile=True` in "
        "`compile`; on a GPU, where a cell has turned XLA off. It promises nothing: `%oomtry` "
        "measures what it does here."
    )
    why = (
        "XLA makes one kernel of many small ops, and what passes between them needs no memory. "
        "What it does need is asked for in one piece. Of fourteen nets on a CPU six took less, "
        "eight as much or more: an encoder of two blocks of attention 377 MB without and 294 with "
        "XLA, dense layers with `gelu` and normalisation 540 and 448; three such blocks with an "
        "embedding and an output for each of 4000 words 322 and 329, four convolutions with `relu` "
        "147 and 264, two LSTMs 45 and 263. On a GPU, where Keras has it on by default, nothing "
        "was measured."
    )
    example = 'model.compile("adam", "mse")'
    instead = 'model.compile("adam", "mse", jit_compile=True)'
    safety = "same results"
    fix_safety = "The same within float rounding: ops are fused rather than computed one by one."
    cost = "compiling takes time, and it may need more"
    effort = 2.0
    causes = frozenset({"step too big", "unknown"})
    speaks = (
        Case(
            'model.compile("adam", "mse")  # as ever\nmodel.fit(x, y)\n',
            _BLOCKS,
            'model.compile("adam", "mse", jit_compile=True)  # as ever\nmodel.fit(x, y)\n',
        ),
        Case(
            'model.compile("adam", "mse", jit_compile=False)\nmodel.fit(x, y)\n',
            _ON_A_GPU,
            'model.compile("adam", "mse", jit_compile=True)\nmodel.fit(x, y)\n',
        ),
    )
    is_silent = (
        Case('model.compile("adam", "mse")\nmodel.fit(x, y)\n', STEP_OF_96),
        Case('model.compile("adam", "mse")\nmodel.fit(x, y)\n', _WITH_WORDS),
        Case('model.compile("adam", "mse")\nmodel.fit(x, y)\n', _ON_A_GPU),
        Case('model.compile("adam", "mse", run_eagerly=True)\nmodel.fit(x, y)\n', _BLOCKS),
        Case('pattern = re.compile("a")\nmodel.fit(x, y)\n', _BLOCKS),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find a model whose step XLA does not compile, and may with less memory."""
        name = next((one for one, model in here.models() if _may_help(model, here)), None)
        compiling = [call for call in cell.calls_of("compile") if _is_of(call, name)]
        if len(compiling) != 1 or not trains(cell) or keyword(compiling[0], "run_eagerly"):
            return
        is_off = keyword(compiling[0], _ARGUMENT) is not None
        if here.is_on_gpu and not is_off:
            return
        total = computed_bytes(here)
        measured = "on a GPU" if here.is_on_gpu else "for this net"
        yield Found(
            title="Train with XLA",
            message=(
                f"What the layers of `{name}` compute takes {format_bytes(total)}. Compiled by XLA "
                f"it may take less, or more: not measured {measured}, %oomtry tells."
            ),
            place=here.device,
            edits=_edits(cell, compiling[0]),
            line_number=compiling[0].lineno,
        )


def _may_help(model: ModelFacts, here: Situation) -> bool:
    """Say whether nets like this one took less, or it is a GPU, for which Keras takes XLA."""
    kinds = {layer.kind for layer in model.layers}
    total = computed_bytes(here)
    is_like_them = _FUSED in kinds and not kinds & _GREW_WITH
    is_most = total >= _MOST_OF_IT * here.peak(here.device)
    return model.is_compiled_by_xla is False and is_most and (is_like_them or here.is_on_gpu)


def _is_of(call: ast.Call, name: str | None) -> bool:
    return name is not None and dotted(call.func) == f"{name}.compile"


def _edits(cell: TypedCell, call: ast.Call) -> tuple[Edit, ...]:
    edit = cell.set_keyword(call, _ARGUMENT, "True")
    return () if edit is None else (edit,)
