"""Activation functions that are computed again, rather than kept in parts."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.activations import EXPENSIVE, kept_beyond, with_activation
from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.keras_names import Spelled, spelled
from oommagic.explain.advice.rule import STEP, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit, Holding
from oommagic.units import MIB, format_bytes

_SCOPE = "RematScope"
_KEPT_THEN = 2
"""What goes into the function, and what comes out."""
_GELU = replace(
    STEP_OF_96,
    holdings=(
        Holding("activations", 1200 * MIB, layer="conv2d", op="mul", count=4),
        Holding("activations", 300 * MIB, layer="conv2d_1", op="Relu"),
    ),
    keras_has=frozenset({_SCOPE}),
)
_NET = """\
model = keras.Sequential([
    keras.layers.Conv2D(32, 3, activation="gelu"),  # smooth
    keras.layers.Conv2D(32, 3, activation="relu"),
])
"""


class RecomputeActivations(Rule):
    """`keras.RematScope` around layers whose activation function keeps several tensors."""

    name = "recompute-activations"
    title = "Recomputing activation functions"
    what = (
        "Where layers with `gelu` or `mish` hold a large part of the peak, it puts "
        '`keras.RematScope(mode="activations")` around what makes them. Only where the installed '
        "Keras has it, and XLA does not compile the step."
    )
    why = (
        "TensorFlow computes these functions in several ops, and keeps what each gives for the "
        "backward pass: 3.5 tensors of the layer's output, instead of the one that `relu` "
        "keeps. Computed again from what went in, two are kept. That is all that it brings with "
        "TensorFlow: measured on a net of convolutions (Keras 3.15, graph mode), `gelu` fell from "
        "598 to 374 MB, `relu` rose from 262 to 343, `swish` stayed, and whole blocks of "
        "layers in `keras.remat` saved nothing (324 and 344 MB). "
        '`mode="full"` fails for a `Sequential` model in `fit`.'
    )
    example = _NET
    instead = (
        'with keras.RematScope(mode="activations"):\n'
        "    model = keras.Sequential([\n"
        '        keras.layers.Conv2D(32, 3, activation="gelu"),  # smooth\n'
        '        keras.layers.Conv2D(32, 3, activation="relu"),\n'
        "    ])\n"
    )
    safety = "same results"
    fix_safety = (
        "The same numbers are computed, some of them twice. A model that is loaded from a file "
        "keeps everything again, unless it is loaded within the scope."
    )
    cost = "the activation functions are computed twice"
    effort = 1.2
    causes = STEP
    speaks = (
        Case(_NET, _GELU, instead),
        Case(
            "x = L.Dense(8, 'relu')(i)\nx = L.Dense(8, activation=keras.activations.gelu)(x)\n"
            "model = keras.Model(i, x)\n",
            _GELU,
            "x = L.Dense(8, 'relu')(i)\n"
            'with keras.RematScope(mode="activations"):\n'
            "    x = L.Dense(8, activation=keras.activations.gelu)(x)\n"
            "model = keras.Model(i, x)\n",
        ),
    )
    is_silent = (
        Case(_NET, replace(_GELU, keras_has=frozenset())),
        Case(_NET.replace("gelu", "relu"), _GELU),
        Case(
            f"with keras.{_SCOPE}():\n    model = keras.Sequential([L(activation='gelu')])\n", _GELU
        ),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the layers with such functions, and what they keep beside the two tensors."""
        calls = [call for call, name in with_activation(cell) if EXPENSIVE[name] > _KEPT_THEN]
        is_compiled = any(model.is_compiled_by_xla for _, model in here.models())
        if not calls or _SCOPE not in here.keras_has or _SCOPE in cell.text or is_compiled:
            return
        saved = kept_beyond(here, _KEPT_THEN)
        if not saved:
            return
        yield Found(
            title="Compute activation functions again in the backward pass",
            message=(
                f"At the peak, {format_bytes(saved)} are what the ops of an activation function "
                "gave, kept for the backward pass beside what went into it and what came out."
            ),
            place=here.device,
            saving=expected(here.device, saved, 0.6, 1.4),
            edits=_around(cell, calls, spelled(cell, here, _SCOPE)),
            line_number=calls[0].lineno,
        )


def _around(cell: TypedCell, calls: list[ast.Call], scope: Spelled) -> tuple[Edit, ...]:
    """Put a `with` around the statements that make these layers, if they stand in one block."""
    statements = [cell.statement(call) for call in calls]
    block = cell.block_of(statements[0])
    if not all(one in block for one in statements) or isinstance(statements[0], ast.FunctionDef):
        return ()
    inside = block[block.index(statements[0]) : block.index(statements[-1]) + 1]
    within = cell.put_within(inside, f'with {scope.text}(mode="activations"):')
    return (*scope.imports, *within) if within else ()
