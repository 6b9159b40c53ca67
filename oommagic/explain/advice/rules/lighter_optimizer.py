"""An optimizer that keeps less for each weight."""

from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.examples import MODEL, STEP_OF_96, with_model
from oommagic.explain.advice.keras_names import spelled_beside
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import Part, update_bytes
from oommagic.explain.advice.training import WrittenOptimizer, only_optimizer, slots_of, trains
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import LayerFacts
from oommagic.report import Edit
from oommagic.units import MIB, format_bytes

_INSTEAD_SLOTS = 1.0
"""SGD with momentum."""
_SURE = 0.75
_OF_EVERY_OPTIMIZER = frozenset({
    "weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum",
    "ema_overwrite_frequency", "loss_scale_factor", "gradient_accumulation_steps",
})  # fmt: skip

_LARGE = with_model(STEP_OF_96, replace(MODEL, layers=(LayerFacts("dense", "Dense", 400 * MIB),)))


class LighterOptimizer(Rule):
    """SGD with momentum instead of Adam, where slots are a large part."""

    name = "lighter-optimizer"
    title = "A lighter optimizer"
    what = (
        "Where Adam, or another optimizer with two slots for each weight, is written in the cell "
        "and its slots are a large part of the peak, it puts SGD with momentum in its place. What "
        "every optimizer can do stays as it is said: clipping, weight decay, accumulation."
    )
    why = (
        "Adam keeps two slots for each weight, SGD with momentum one, plain SGD none: that much is "
        "exact. Its update needs workspace as well. Folklore has Adafactor and Lion as light "
        "too: Keras's Adafactor keeps a whole slot beside its small factors, and Lion's update "
        "took as much workspace as its slot saved (a model with 34 MB of weights: Adam 169 MB, "
        "Lion 176, Adafactor 135, SGD with momentum 111, SGD 69)."
    )
    example = 'model.compile(optimizer="adam", loss="mse")'
    instead = (
        "model.compile(optimizer=keras.optimizers.SGD(learning_rate=0.01, momentum=0.9), "
        'loss="mse")'
    )
    safety = "changes results"
    fix_safety = (
        "Training takes another course, and needs another learning rate than Adam did: try some "
        "around 0.01. Slots that were trained or saved are lost."
    )
    cost = "a learning rate to be found"
    effort = 3.0
    causes = STEP
    speaks = (
        Case(
            'model.compile(optimizer="adam", loss="mse")\nmodel.fit(x, y)\n',
            _LARGE,
            "model.compile(optimizer=keras.optimizers.SGD(learning_rate=0.01, momentum=0.9), "
            'loss="mse")\nmodel.fit(x, y)\n',
        ),
        Case(
            "opt = tf.keras.optimizers.Adam(1e-3)  # default\n"
            "model.compile(opt, 'mse')\nmodel.fit(x, y)\n",
            _LARGE,
            "opt = tf.keras.optimizers.SGD(learning_rate=0.01, momentum=0.9)  # default\n"
            "model.compile(opt, 'mse')\nmodel.fit(x, y)\n",
        ),
        Case(
            "opt = keras.optimizers.Adam(1e-3, beta_1=0.8, clipnorm=1.0,\n"
            "    gradient_accumulation_steps=(4))\nmodel.compile(opt, 'mse')\nmodel.fit(x, y)\n",
            _LARGE,
            "opt = keras.optimizers.SGD(learning_rate=0.01, momentum=0.9, clipnorm=1.0, "
            "gradient_accumulation_steps=(4))\nmodel.compile(opt, 'mse')\nmodel.fit(x, y)\n",
        ),
        Case(
            "opt = keras.optimizers.Adam(**options)\nmodel.compile(opt, 'mse')\nmodel.fit(x, y)\n",
            _LARGE,
        ),
        Case("model.fit(x, y)\n", _LARGE),
    )
    is_silent = (
        Case('model.compile(optimizer="sgd", loss="mse")\nmodel.fit(x, y)\n', _LARGE),
        Case('re.compile("adam")\n', _LARGE),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the cell's optimizer, and the model that it trains."""
        written = only_optimizer(cell)
        for name, model in here.models():
            kind = written.kind if written is not None else model.optimizer
            slots = slots_of(kind)
            if model.optimizer != kind or slots <= _INSTEAD_SLOTS or not trains(cell):
                continue
            saved = model.trainable_bytes * (slots - _INSTEAD_SLOTS)
            yield Found(
                title=f"SGD with momentum instead of {kind}",
                message=(
                    f"{kind} keeps {format_bytes(int(model.trainable_bytes * slots))} of slots for "
                    f"the {format_bytes(model.trainable_bytes)} of weights in `{name}`; SGD "
                    f"with momentum keeps {format_bytes(model.trainable_bytes)}."
                ),
                place=here.device,
                saving=_part(here, saved).saving(here.device),
                edits=() if written is None else _sgd(cell, here, written),
                line_number=None if written is None else written.written.lineno,
            )
            return


def _part(here: Situation, slots_bytes: float) -> Part:
    """Say what goes: a slot for each weight, and at most the update's workspace.

    Updates race with each other and with the backward pass, so steps differ by much.
    """
    surely = _SURE * slots_bytes
    return Part(surely, slots_bytes - surely + update_bytes(here))


def _sgd(cell: TypedCell, here: Situation, written: WrittenOptimizer) -> tuple[Edit, ...]:
    given = written.call.keywords if written.call is not None else []
    if any(one.arg is None for one in given):
        return ()  # `**options` may have what only Adam takes
    was = written.written if written.call is None else written.call.func
    sgd = spelled_beside(cell, here, was, "optimizers.SGD")
    kept = (f", {cell.text_of(one)}" for one in given if one.arg in _OF_EVERY_OPTIMIZER)
    made = f"{sgd.text}(learning_rate=0.01, momentum=0.9{''.join(kept)})"
    return (*sgd.imports, cell.replace(written.written, made))
