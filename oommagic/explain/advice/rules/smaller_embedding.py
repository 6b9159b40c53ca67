"""A smaller embedding, where its table is a large part of the step."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.advice.examples import STEP_OF_96, with_model
from oommagic.explain.advice.layers import layer_made
from oommagic.explain.advice.nodes import argument
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import Part, layer_part
from oommagic.explain.advice.training import slots_of
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import LayerFacts, ModelFacts
from oommagic.report import Edit
from oommagic.units import MIB, format_bytes

_LARGE = 0.1
_SMALLEST = 16
_FILLED = {"weights", "embeddings_initializer"}
_TABLE = with_model(
    STEP_OF_96,
    ModelFacts(layers=(LayerFacts("embedding", "Embedding", 200 * MIB),), optimizer="Adam"),
)


class SmallerEmbedding(Rule):
    """Fewer numbers for each word."""

    name = "smaller-embedding"
    title = "A smaller embedding"
    what = (
        "Where an embedding's table, with its slots and gradients, is a large part of the peak, "
        "it halves `output_dim`. A smaller vocabulary (rare words hashed into some buckets) saves "
        "as much for each row that is not there."
    )
    why = (
        "The table has a row for each word, used or not, and Adam keeps two more of that size. "
        "Its update makes dense tensors of that size too, though a batch touches a few rows "
        "only: in a program with 20 MB of table, they came to 127 of 147 MB. "
        "With plain SGD, which keeps no slots, it took 88 MB."
    )
    example = "keras.layers.Embedding(200_000, 256)"
    instead = "keras.layers.Embedding(200_000, 128)"
    safety = "changes results"
    fix_safety = "It is another model, with fewer weights: train it from the start."
    cost = "another model"
    effort = 3.0
    causes = STEP
    speaks = (
        Case(
            "model = keras.Sequential([keras.layers.Embedding(200_000, 256),  # words\n"
            "    keras.layers.LSTM(64)])\nmodel.fit(x, y)\n",
            _TABLE,
            "model = keras.Sequential([keras.layers.Embedding(200_000, 128),  # words\n"
            "    keras.layers.LSTM(64)])\nmodel.fit(x, y)\n",
        ),
        Case(
            "dim = 300\nx = L.Embedding(input_dim=words, output_dim=dim)(i)\n"
            "model = keras.Model(i, L.LSTM(dim)(x))\n",
            _TABLE,
            "dim = 150\nx = L.Embedding(input_dim=words, output_dim=dim)(i)\n"
            "model = keras.Model(i, L.LSTM(dim)(x))\n",
        ),
        Case(
            "x = L.Embedding(words, 256)(i)\n"
            "model = keras.Model(i, L.MultiHeadAttention(4, 256)(x, x))\n",
            _TABLE,
        ),
    )
    is_silent = (
        Case("model = keras.Sequential([keras.layers.Embedding(200, 256)])\n", STEP_OF_96),
        Case("model = keras.Sequential([L.Embedding(words, 300, weights=[glove])])\n", _TABLE),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the cell's embeddings, and what their tables bring with them."""
        for _, model in here.models():
            for call in cell.calls_of("Embedding"):
                layer, size = layer_made(cell, model, call), argument(call, 1, "output_dim")
                is_filled = bool(_FILLED & {one.arg for one in call.keywords})
                if layer is not None and size is not None and not is_filled:
                    part = layer_part(here, layer, slots_of(model.optimizer))
                    number = cell.number(size) or 0
                    if number >= 2 * _SMALLEST and _is_large(here, part):
                        found = _found(here, layer, number, part)
                        yield replace(
                            found, edits=_edits(cell, size, number), line_number=size.lineno
                        )


def _found(here: Situation, layer: LayerFacts, number: int, part: Part) -> Found:
    """Say what half the numbers save."""
    all_bytes = int(part.lasting_bytes + part.passing_bytes)
    return Found(
        title=f"{number // 2} numbers for each word instead of {number}",
        message=(
            f"The table of `{layer.name}` takes {format_bytes(layer.weight_bytes)}; with slots, "
            f"gradients and what the update needs of that size it comes to "
            f"{format_bytes(all_bytes)}."
        ),
        place=here.device,
        saving=(part * (1 - number // 2 / number)).saving(here.device),
    )


def _is_large(here: Situation, part: Part) -> bool:
    return part.lasting_bytes > _LARGE * here.peak(here.device)


def _edits(cell: TypedCell, size: ast.expr, number: int) -> tuple[Edit, ...]:
    """Halve the number where it is written; not if it is written elsewhere once more."""
    written = cell.resolved(size)
    elsewhere = [
        node
        for node in cell.nodes
        if isinstance(node, ast.Constant) and node.value == number and node is not written
    ]
    return () if elsewhere else (cell.replace(written, str(number // 2)),)
