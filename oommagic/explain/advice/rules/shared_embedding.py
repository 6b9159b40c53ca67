"""One table of words where a model has two of the same size."""

from collections.abc import Iterator
from itertools import combinations

from oommagic.explain.advice.examples import STEP_OF_96, with_model
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import layer_part
from oommagic.explain.advice.training import slots_of
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import LayerFacts, ModelFacts
from oommagic.units import MIB, format_bytes

_LEAST_SHARE = 0.1
_ALIKE = 0.02
"""By how much a dense layer may be larger: its bias, one number for each word."""

_WORDS = LayerFacts("embedding", "Embedding", 200 * MIB)
_ENCODER_AND_DECODER = with_model(
    STEP_OF_96,
    ModelFacts(
        layers=(_WORDS, LayerFacts("embedding_1", "Embedding", 200 * MIB)), optimizer="Adam"
    ),
)
_WITH_OUTPUT = with_model(
    STEP_OF_96,
    ModelFacts(layers=(_WORDS, LayerFacts("dense", "Dense", 201 * MIB)), optimizer="Adam"),
)
_OF_ONE_TABLE = with_model(
    STEP_OF_96,
    ModelFacts(layers=(_WORDS, LayerFacts("dense", "Dense", 90 * MIB)), optimizer="Adam"),
)


class SharedEmbedding(Rule):
    """The same layer called twice, or turned round for the output."""

    name = "shared-embedding"
    title = "One table for two embeddings"
    what = (
        "Where two embeddings of a model have tables of the same size, or an embedding and the "
        "dense layer of the output have, it says what one table for both would save."
    )
    why = (
        "A table brings its slots and gradients with it, so that one less counts several times: "
        "with two of 10 MB and Adam a step took 113 MB, with one 74 MB; with an embedding and an "
        "output of that size 119 MB, with one table for both 74 MB. "
        "Two embeddings of the same words can be one layer that is called twice. For the output, "
        "Keras has `ReversibleEmbedding`, which multiplies by its own table when it is called with "
        "`reverse=True`; in a Keras without it, multiply by the transpose of "
        "`embedding.embeddings`. What the output itself takes, a number for each word and each "
        "place in the text, stays."
    )
    example = (
        "h = keras.layers.Embedding(20_000, 128)(i)\no = keras.layers.Dense(20_000)(decoder(h))"
    )
    instead = (
        "words = keras.layers.ReversibleEmbedding(20_000, 128)\nh = words(i)\n"
        "o = words(decoder(h), reverse=True)"
    )
    safety = "hint"
    fix_safety = "It is another model, with fewer weights: train it from the start."
    cost = "another model"
    effort = 3.0
    causes = STEP
    speaks = (
        Case("model.fit([x, z], y)\n", _ENCODER_AND_DECODER),
        Case("model.fit(x, y, batch_size=128)\n", _WITH_OUTPUT),
    )
    is_silent = (
        Case("model.fit(x, y)\n", _OF_ONE_TABLE),
        Case("model.fit(x, y)\n", STEP_OF_96),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find two tables of one size, one of them an embedding's."""
        for name, model in here.models():
            for table, other in combinations(model.layers, 2):
                part = layer_part(here, other, slots_of(model.optimizer))
                if name not in cell.names or not _can_be_one(table, other):
                    continue
                if part.lasting_bytes >= _LEAST_SHARE * here.peak(here.device):
                    yield Found(
                        title=f"One table for `{table.name}` and `{other.name}`",
                        message=(
                            f"Both have weights of {format_bytes(table.weight_bytes)}, and the "
                            "second brings slots and gradients of that size, too. If both are of "
                            f"the same words, one can serve both: {_how(other)}."
                        ),
                        place=here.device,
                        saving=part.saving(here.device),
                    )
                    return


def _can_be_one(table: LayerFacts, other: LayerFacts) -> bool:
    """Say whether the second may be the first one over again, or what turns it round."""
    if table.kind != "Embedding" or other.kind not in {"Embedding", "Dense"}:
        return False
    more = other.weight_bytes - table.weight_bytes
    return more == 0 or (other.kind == "Dense" and 0 < more <= _ALIKE * table.weight_bytes)


def _how(other: LayerFacts) -> str:
    if other.kind == "Embedding":
        return "call one layer twice"
    return "`keras.layers.ReversibleEmbedding`, called with `reverse=True` for the output"
