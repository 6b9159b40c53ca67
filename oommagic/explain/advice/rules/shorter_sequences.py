"""Shorter sequences: what layers compute of each word is computed of fewer."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from oommagic.explain.advice.examples import MODEL, STEP_OF_96, with_model
from oommagic.explain.advice.fitting import is_guess
from oommagic.explain.advice.nodes import argument, keyword
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import growing
from oommagic.explain.advice.training import trains
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import LayerFacts, Named
from oommagic.report import Edit, Holding, Saving
from oommagic.units import MIB, format_bytes

_SHARES = (0.75, 0.5)
"""Of the length; the first with which the step is expected to fit."""
_SHORTEST = 16
_MOST_OF_LIMIT = 0.95
_LEAST, _MOST = 0.7, 1.1
_WHOLE_STEP = 2
"""What a step may take at its fullest, by what it had when it ran out on its way forward."""
_RECURRENT = ("LSTM", "GRU", "RNN", "Cell")
_RECURS = (
    "Recurrent layers keep something of each word for the backward pass, so that a step of fewer "
    "takes less. How much is not foretold: %oomtry tells."
)
_OF_TEXTS = "output_sequence_length"
_ARGUMENTS = (_OF_TEXTS, "sequence_length")
_NAMES = re.compile(r"(max_?)?(seq(uence)?_?)?len(gth)?", re.IGNORECASE)
_WITH_SHAPE = ("array", "tensor")

_WORDS = replace(
    STEP_OF_96,
    holdings=(
        Holding("weights", 100 * MIB, layer="embedding"),
        Holding("activations", 1100 * MIB, layer="conv1d", shape=(128, 200, 64)),
        Holding("gradients", 700 * MIB, layer="conv1d", shape=(128, 200, 64)),
    ),
)
_WORDS_OF_200 = replace(
    _WORDS, names={**_WORDS.names, "x": Named("array", 40 * MIB, "int32", (50_000, 200))}
)
_RECURRENT_NET = with_model(
    STEP_OF_96, replace(MODEL, layers=(LayerFacts("lstm_cell", "LSTMCell", MIB),))
)


class ShorterSequences(Rule):
    """Fewer words of each text, where the cell says how many."""

    name = "shorter-sequences"
    title = "Shorter sequences"
    what = (
        "Where the cell says to which length sequences are brought (`maxlen` of `pad_sequences`, "
        "`output_sequence_length`, `sequence_length`, or a number of such a name), it takes three "
        "quarters of it, or half where that does not suffice."
    )
    why = (
        "What recurrent layers and convolutions keep for the backward pass grows with the length, "
        "and an attention's scores with its square. Weights stay as they are. Padding costs as "
        "much as words: a length that nine of ten texts have may be a good one."
    )
    example = "x = keras.utils.pad_sequences(x, maxlen=400)"
    instead = "x = keras.utils.pad_sequences(x, maxlen=300)"
    safety = "changes results"
    fix_safety = (
        "The model does not see what is cut off: train it anew and look at what that costs. Texts "
        "for prediction need the same length."
    )
    cost = "the ends of long texts"
    effort = 3.0
    causes = STEP
    speaks = (
        Case(
            "maxlen = 200  # words\nz = keras.utils.pad_sequences(z, maxlen=maxlen)\n"
            "model = make(keras.Sequential([keras.Input((maxlen,))]))\nmodel.fit(z, y)\n",
            _WORDS,
            "maxlen = 150  # words\nz = keras.utils.pad_sequences(z, maxlen=maxlen)\n"
            "model = make(keras.Sequential([keras.Input((maxlen,))]))\nmodel.fit(z, y)\n",
        ),
        Case(
            "v = L.TextVectorization(output_sequence_length=200)\n"
            "model = keras.Model(i, head(v(i)))\nmodel.fit(texts, y)\n",
            _WORDS,
            "v = L.TextVectorization(output_sequence_length=150)\n"
            "model = keras.Model(i, head(v(i)))\nmodel.fit(texts, y)\n",
        ),
        Case(
            "def load():\n    return keras.utils.pad_sequences(words, maxlen=200)\n"
            "x = load()\nx, v = x[:90], x[90:]\n"
            "model = make(keras.Sequential([keras.Input((200,))]))\nmodel.fit(x, y)\n",
            _WORDS_OF_200,
            "def load():\n    return keras.utils.pad_sequences(words, maxlen=150)\n"
            "x = load()\nx, v = x[:90], x[90:]\n"
            "model = make(keras.Sequential([keras.Input((150,))]))\nmodel.fit(x, y)\n",
        ),
        Case(
            "maxlen = 200\nx = x[:1000]\n"
            "model = make(keras.Sequential([keras.Input((maxlen,))]))\nmodel.fit(x, y)\n",
            _WORDS_OF_200,
        ),
        Case(
            "maxlen = 200\nx = np.load('x.npy')\n"
            "model = make(keras.Sequential([keras.Input((maxlen,))]))\nmodel.fit(x, y)\n",
            _WORDS_OF_200,
        ),
        Case(
            "maxlen = 200\n"
            "def build(x):\n    return keras.Sequential([keras.Input((maxlen,)), x])\n"
            "model = build(head)\nmodel.fit(x, y)\n",
            _WORDS_OF_200,
        ),
        Case("z = keras.utils.pad_sequences(z, 200)\nmodel.fit(z, y)\n", _WORDS),
        Case("z = keras.utils.pad_sequences(z, 200)\nmodel.fit(z, y)\n", _RECURRENT_NET),
        Case(
            "z = keras.utils.pad_sequences(z, 200)\n"
            "model = keras.Sequential([L.Embedding(words, 64), L.LSTM(200)])\nmodel.fit(z, y)\n",
            _WORDS,
        ),
    )
    is_silent = (
        Case("z = keras.utils.pad_sequences(z, maxlen=200)\nmodel.predict(z)\n", _RECURRENT_NET),
        Case("d = collections.deque(maxlen=200)\nmodel.fit(x, y)\n", _WORDS),
        Case("z = keras.utils.pad_sequences(z, maxlen=200)\n", _WORDS),
        Case("z = keras.utils.pad_sequences(z, maxlen=20)\nmodel.fit(z, y)\n", _WORDS),
        Case("z = keras.utils.pad_sequences(z, maxlen=200)\nmodel.fit(z, y)\n", STEP_OF_96),
        Case("z = keras.utils.pad_sequences(z, maxlen=200)\nmodel.fit(z, y)\n"),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the length of sequences, and how much less a shorter one would take."""
        written = list(_lengths(cell))
        lengths = {cell.number(one) for one in written}
        if len(lengths) != 1 or not trains(cell):
            return
        length = lengths.pop() or 0
        held = _held(here, length)
        recurs = _is_recurrent(here)
        if length < 2 * _SHORTEST or not (held or recurs):
            return
        then = _shorter(here, held, length)
        yield Found(
            title=f"Sequences of {then} instead of {length}",
            message=_RECURS if recurs else _message(held, then, then / length),
            place=here.device,
            saving=None if recurs else _saving(here, held, then / length),
            edits=_edits(cell, here, written, length, then),
            line_number=written[0].lineno,
        )


def _lengths(cell: TypedCell) -> Iterator[ast.expr]:
    """Yield where the cell says how long sequences are."""
    given = [argument(call, 1, "maxlen") for call in cell.calls_of("pad_sequences")]
    given += [keyword(call, name) for call in cell.calls for name in _ARGUMENTS]
    given += [node for node in cell.nodes if isinstance(node, ast.Name) and _is_length(cell, node)]
    for value in given:
        if value is not None and cell.number(value) is not None:
            yield value


def _is_length(cell: TypedCell, name: ast.Name) -> bool:
    return bool(_NAMES.fullmatch(name.id)) and name.id != "len" and cell.number(name) is not None


@dataclass(frozen=True, slots=True)
class _Held:
    """What grows with the length, or as scores of each word with each do, with its square."""

    bytes: int
    power: int


def _held(here: Situation, length: int) -> list[_Held]:
    """Find what has the length in its shape."""
    grown = growing(here, "activations", "gradients", "workspace")
    held = [_Held(one.bytes, (one.shape or ()).count(length)) for one in grown]
    return [one for one in held if one.power]


def _is_recurrent(here: Situation) -> bool:
    """Say whether a model goes word by word: what it keeps of each has the length in no shape."""
    kinds = (layer.kind for _, model in here.models() for layer in model.layers)
    return any(kind.endswith(_RECURRENT) for kind in kinds)


def _message(held: list[_Held], then: int, share: float) -> str:
    size = sum(one.bytes for one in held)
    return (
        f"{format_bytes(size)} of the peak grow with the sequences' length. At {then} they are "
        f"expected to take {format_bytes(size - _less(held, share))}."
    )


def _shorter(here: Situation, held: list[_Held], length: int) -> int:
    """Take the greatest length that is expected to fit."""
    limit = here.limit(here.device) or 0
    then = length
    for share in _SHARES:
        then = int(length * share)
        if here.peak(here.device) - _less(held, then / length) <= _MOST_OF_LIMIT * limit:
            break
    return then


def _less(held: list[_Held], share: float) -> int:
    return int(sum(one.bytes * (1 - share**one.power) for one in held))


def _saving(here: Situation, held: list[_Held], share: float) -> Saving:
    """Say it of what was held; where a step ran out on its way forward, more was to come."""
    less = _less(held, share)
    rounding = here.held("rounding") * (1 - share)
    most = _MOST * (less + rounding) * (_WHOLE_STEP if is_guess(here) else 1)
    return Saving(here.device, int(_LEAST * less), int(less + rounding / 2), int(most))


def _edits(
    cell: TypedCell, here: Situation, written: list[ast.expr], length: int, then: int
) -> tuple[Edit, ...]:
    """Change the number where it is written, if data and model are made here and it is no other."""
    shapes = [argument(call, 0, "shape") for call in cell.calls_of("Input", "InputLayer")]
    inputs = [one.elts[0] for one in shapes if isinstance(one, ast.Tuple) and one.elts]
    lengths = [one for one in inputs if cell.number(one) == length]
    places = dict.fromkeys(cell.resolved(one) for one in (*written, *lengths))
    all_places = [
        one for one in cell.nodes if isinstance(one, ast.Constant) and one.value == length
    ]
    is_made_here = any(cell.calls_of("Sequential", "Model")) and not _is_given(cell, here, length)
    if not is_made_here or any(one not in places for one in all_places):
        return ()
    return tuple(cell.replace(one, str(then)) for one in places)


def _is_given(cell: TypedCell, here: Situation, length: int) -> bool:
    """Say whether the cell takes sequences that are of this length, or may be, from elsewhere."""
    are_texts = any(keyword(call, _OF_TEXTS) for call in cell.calls)
    given = [here.names[name] for name in cell.names & here.names.keys()
             if not _is_made_of(cell, name, length)]  # fmt: skip
    return any(
        (one.kind == "dataset" and not are_texts)
        or (one.kind in _WITH_SHAPE and length in (one.shape or ()))
        for one in given
    )


def _is_made_of(cell: TypedCell, name: str, length: int) -> bool:
    """Say whether the cell itself makes a value of that length: the number stands in its making."""
    made = list(cell.makers(name))
    made += [
        maker for one in made for used in cell.names_reached(one) for maker in cell.makers(used)
    ]
    parts = (part for one in made for part in ast.walk(one) if isinstance(part, ast.expr))
    return any(cell.number(part) == length for part in parts)
