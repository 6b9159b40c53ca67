"""Mixed precision: layers compute in float16, weights stay in float32."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from oommagic.explain.advice.arrays import bound_to, reads
from oommagic.explain.advice.examples import MODEL, STEP_OF_96, with_model
from oommagic.explain.advice.keras_names import spelled
from oommagic.explain.advice.layers import last_layer
from oommagic.explain.advice.nodes import argument, called, dotted, keyword
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import growing
from oommagic.explain.advice.training import only_optimizer, trains
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import ModelFacts, Named
from oommagic.report import Edit, Saving
from oommagic.units import format_bytes

_SAVED, _SAVED_BESIDE_NORMALIZATION = 0.5, 0.25
"""Of what layers computed in float32. Keras normalises batches in float32, and keeps both."""
_LEAST, _MOST = 0.5, 1.7
_CAST = 0.5
"""Of the weights: a copy in float16."""
_BY_HAND = (
    ' Write `keras.mixed_precision.set_global_policy("mixed_float16")` before the model is made, '
    'and `dtype="float32"` in its last layer. A loop with `apply_gradients` needs `keras.'
    "mixed_precision.LossScaleOptimizer` around its optimizer, built before the first step, and "
    "the gradients of `optimizer.scale_loss(loss)`; what it clips or adds up has to be divided by "
    "the scale first."
)
_MAKERS = ("Sequential", "Model", "Input", "Dense")
_POLICIES = ("set_global_policy", "set_dtype_policy")
_NET = """\
model = keras.Sequential([
    keras.layers.Conv2D(32, 3),
    keras.layers.Dense(10),  # the head
])
model.compile("adam", "mse")
model.fit(x, y)
"""
_LOOP = """\
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(10)])
optimizer = keras.optimizers.Adam()
for a, b in ds:
    with tf.GradientTape() as tape:
        loss = loss_fn(b, model(a))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
"""
_POLICY = 'keras.mixed_precision.set_global_policy("mixed_float16")\n'
_INSIDE = _LOOP.replace("    grads", "        grads")
_KERAS_3 = _LOOP.replace("apply_gradients(zip(grads, model.trainable_variables))", "apply(grads)")
_CLIPPED = "grads, _ = tf.clip_by_global_norm(grads, 1.0)"
_HEAD = "keras.layers.Dense"
_EITHER_HEAD = f"if two:\n    model.add({_HEAD}(1))\nelse:\n    model.add({_HEAD}(10))\n"
_WITH_AN_OPTIMIZER = replace(
    STEP_OF_96, names={**STEP_OF_96.names, "opt": Named("optimizer", text="Adam")}
)


def _scaled_loop(loop: str) -> str:
    """Write a loop as it becomes."""
    made, loss = "keras.optimizers.Adam()", "loss = loss_fn(b, model(a))\n"
    scaling = f"keras.mixed_precision.LossScaleOptimizer({made})"
    return _POLICY + (
        loop.replace("Dense(10)", 'Dense(10, dtype="float32")')
        .replace(made, f"{scaling}\noptimizer.build(model.trainable_variables)")
        .replace(loss, f"{loss}        scaled_loss = optimizer.scale_loss(loss)\n")
        .replace("gradient(loss", "gradient(scaled_loss")
    )


class MixedPrecision(Rule):
    """What layers compute has half the size."""

    name = "mixed-precision"
    title = "Mixed precision"
    what = (
        "Where what layers compute is a large part of the peak and the model is made in the cell, "
        "it sets Keras's policy to `mixed_float16` before that, and keeps the last layer in "
        "float32. In a loop of one's own it scales the loss too: `LossScaleOptimizer`, "
        "`scale_loss`, and the optimizer built before the first step. Where such a loop does more "
        "with its gradients than apply them, it is a hint: they are scaled."
    )
    why = (
        "In float16 activations and their gradients take half. Weights and slots stay in float32, "
        "and another copy of the weights in float16 comes with each step: where weights are what "
        "counts it takes more, not less (four dense layers: 169 and 179 MB). On a training "
        "device on the CPU it saved 0.35 of a net of five convolutions, and 0.18 with batch "
        "normalisation, which Keras computes in float32. Nothing was measured on a GPU."
    )
    example = _NET
    instead = _POLICY + _NET.replace("Dense(10)", 'Dense(10, dtype="float32")')
    safety = "changes results"
    fix_safety = (
        "Results differ in the third digit, and usually no worse a model comes of it. The "
        "last layer stays in float32, since a softmax or a loss in float16 overflows. `fit` scales "
        "the loss by itself. The policy holds for all models that are made after it."
    )
    cost = "less precision; on a CPU several times slower, on a newer GPU faster"
    effort = 2.0
    causes = STEP
    speaks = (
        Case(_NET, STEP_OF_96, instead),
        Case(_LOOP, STEP_OF_96, _scaled_loop(_LOOP)),
        Case(_INSIDE, STEP_OF_96, _scaled_loop(_INSIDE)),
        Case(_KERAS_3, STEP_OF_96, _scaled_loop(_KERAS_3)),
        Case("model.fit(x, y)\n", STEP_OF_96),
        Case(_LOOP.replace("    opt", f"    {_CLIPPED}\n    opt"), STEP_OF_96),
        Case(_INSIDE.replace("    opt", "        loss += penalty\n    opt"), STEP_OF_96),
        Case(_NET.replace(_HEAD, "head"), STEP_OF_96),
        Case("class Dense(Layer): ...\n\n" + _NET.replace(_HEAD, "Dense"), STEP_OF_96),
        Case(_NET.replace("model.c", _EITHER_HEAD + "model.c"), STEP_OF_96),
        Case("def train(data):\n    opt.apply(grads, weights)\n" + _NET, _WITH_AN_OPTIMIZER),
    )
    is_silent = (
        Case(instead, STEP_OF_96),
        Case(
            _NET,
            with_model(STEP_OF_96, replace(MODEL, policy="mixed_float16")),
        ),
        Case("model.summary()\n", STEP_OF_96),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find what layers computed in float32, and where the model is made."""
        model = next((one for _, one in here.models()), None)
        if model is None or not trains(cell) or _is_mixed(cell, model):
            return
        computed = sum(
            one.bytes
            for one in growing(here, "activations", "gradients")
            if one.dtype in ("", "float32")
        )
        saving = _saving(here, computed, model)
        if saving.bytes <= 0:
            return
        edits = _edits(cell, here)
        yield Found(
            title="Compute in float16, keep weights in float32",
            message=(
                f"{format_bytes(computed)} of the peak are what layers computed in float32, and "
                "its gradients; in float16 they take half. A copy of the weights in float16 comes "
                f"on top: {format_bytes(int(_CAST * model.weight_bytes))}."
                + ("" if edits else _BY_HAND)
            ),
            place=here.device,
            saving=saving,
            edits=edits,
        )


def _is_mixed(cell: TypedCell, model: ModelFacts) -> bool:
    is_said = any(cell.calls_of(*_POLICIES)) or "float16" in cell.text
    return is_said or model.policy.startswith("mixed")


def _saving(here: Situation, computed: int, model: ModelFacts) -> Saving:
    normalizes = any(layer.kind == "BatchNormalization" for layer in model.layers)
    share = _SAVED_BESIDE_NORMALIZATION if normalizes else _SAVED
    least, expected, most = (computed * share * one for one in (_LEAST, 1.0, _MOST))
    copy = _CAST * model.weight_bytes
    return Saving(here.device, int(max(0, least - copy)), int(expected - copy), int(most))


def _edits(cell: TypedCell, here: Situation) -> tuple[Edit, ...]:
    """Set the policy above the first layer, keep the last in float32, and scale a loop's loss."""
    last, policies = last_layer(cell), spelled(cell, here, "mixed_precision")
    if last is None or keyword(last, "dtype") is not None:
        return ()
    in_float32 = cell.set_keyword(last, "dtype", '"float32"')
    first = next(one for one in cell.tree.body if _makes_layers(one))
    policy = cell.insert_before(first, f'{policies.text}.set_global_policy("mixed_float16")')
    scaling = _scaled(cell, policies.text) if _has_own_steps(cell, here) else ()
    if in_float32 is None or scaling is None:
        return ()
    return (*policies.imports, policy, in_float32, *scaling)


def _makes_layers(statement: ast.stmt) -> bool:
    calls = (dotted(one.func) for one in ast.walk(statement) if isinstance(one, ast.Call))
    return any("layers." in one or one.rpartition(".")[2] in _MAKERS for one in calls)


def _has_own_steps(cell: TypedCell, here: Situation) -> bool:
    """Say whether the cell computes or applies gradients by itself."""
    methods = (one.func for one in cell.calls_of("apply") if isinstance(one.func, ast.Attribute))
    applying = (here.known(method.value) for method in methods)
    return any(cell.calls_of("gradient", "apply_gradients", "minimize")) or any(
        one is not None and one.kind == "optimizer" for one in applying
    )


def _scaled(cell: TypedCell, policies: str) -> tuple[Edit, ...] | None:
    """Scale the loss of a loop; None where that is not surely right."""
    written, gradients = only_optimizer(cell), list(cell.calls_of("gradient"))
    call = None if written is None else written.call
    if call is None or len(gradients) != 1:
        return None
    made, loss = cell.statement(call), argument(gradients[0], 0, "target")
    name = bound_to(cell, call)
    weights = argument(gradients[0], 1, "sources")
    if not name or not isinstance(loss, ast.Name) or weights is None:
        return None
    given, built = _loss_given(cell, loss), _when_both(cell, made, weights)
    if given is None or built is None or not _is_built(cell):
        return None
    if not _is_applied_as_it_is(cell, gradients[0], name):
        return None
    return (
        cell.replace(call, f"{policies}.LossScaleOptimizer({cell.text_of(call)})"),
        cell.insert_after(built, f"{name}.build({cell.text_of(weights)})"),
        cell.insert_after(given, f"scaled_{loss.id} = {name}.scale_loss({loss.id})"),
        cell.replace(loss, f"scaled_{loss.id}"),
    )


def _is_applied_as_it_is(cell: TypedCell, gradient: ast.Call, optimizer: str) -> bool:
    """Say whether nothing is done with gradients but this optimizer's step, which unscales them."""
    applying = list(cell.calls_of(f"{optimizer}.apply_gradients", f"{optimizer}.apply"))
    name = bound_to(cell, gradient)
    uses: Sequence[ast.expr] = reads(cell, name) if name else [gradient]
    if len(applying) != 1 or len(uses) != 1 or (name and len(cell.assignments(name)) != 1):
        return False
    above = cell.parents[uses[0]]
    if called(applying[0]) == "apply":
        return above is applying[0]
    is_zipped = isinstance(above, ast.Call) and called(above) == "zip"
    return is_zipped and cell.parents[above] is applying[0]


def _is_built(cell: TypedCell) -> bool:
    """Say whether the model has its weights when it is made, so that they can be given slots."""
    has_shape = any(keyword(call, "input_shape") is not None for call in cell.calls)
    return has_shape or any(cell.calls_of("Input", "InputLayer"))


def _loss_given(cell: TypedCell, loss: ast.Name) -> ast.stmt | None:
    """Find where the loss has its value, in `with tf.GradientTape()`, before it is used there."""
    given = cell.assignments(loss.id)
    blocks = {cell.parents.get(one) for one in given}
    block = blocks.pop() if len(blocks) == 1 else None
    if not isinstance(block, ast.With) or block.body[0].lineno == block.lineno:
        return None
    is_taped = "GradientTape" in cell.text_of(block.items[0].context_expr)
    return given[-1] if is_taped and cell.end(given[-1]) <= cell.start(loss) else None


def _when_both(cell: TypedCell, optimizer: ast.stmt, weights: ast.expr) -> ast.stmt | None:
    """Find the statement after which there are an optimizer and a model, on top of the cell."""
    model = dotted(weights).rpartition(".")[0]
    given = [one for one in cell.assignments(model) if cell.function_of(one) is None]
    if optimizer not in cell.tree.body or any(one not in cell.tree.body for one in given):
        return None
    return max([optimizer, *given], key=lambda one: one.lineno)
