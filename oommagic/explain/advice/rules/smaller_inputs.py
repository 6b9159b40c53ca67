"""Smaller images: everything that the layers compute becomes smaller with them."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.examples import STEP_OF_96
from oommagic.explain.advice.nodes import argument, keyword
from oommagic.explain.advice.rule import STEP, Case, Found, Rule
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.step_costs import computed_bytes
from oommagic.explain.advice.training import trains
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit, Saving
from oommagic.units import format_bytes

_SHARES = (0.75, 0.5)
"""Of a side; the first with which the step is expected to fit."""
_EVEN = 8
_SMALLEST = 32
_MOST_OF_LIMIT = 0.95
_SIDES = 2
_LEAST, _MOST = 0.7, 1.1

_Size = tuple[ast.expr, ast.expr]


class SmallerInputs(Rule):
    """A lower resolution, where the cell says it."""

    name = "smaller-inputs"
    title = "Smaller inputs"
    what = (
        "Where the cell says to which size images are brought (`Resizing`, `image_size`, "
        "`target_size`, `tf.image.resize`), it takes three quarters of each side, or half where "
        "that does not suffice, in all places that say that size."
    )
    why = (
        "What convolutions compute grows with the number of pixels: at half the side it is a "
        "quarter. Weights stay as they are, but for a dense layer behind `Flatten`."
    )
    example = "x = keras.layers.Resizing(224, 224)(x)"
    instead = "x = keras.layers.Resizing(168, 168)(x)"
    safety = "changes results"
    fix_safety = (
        "The model sees less detail: train it anew and look at what that costs. Images for "
        "prediction need the same size."
    )
    cost = "less detail"
    effort = 3.0
    causes = STEP
    speaks = (
        Case(
            "h = keras.layers.Resizing(224, 224)(i)  # as trained\n"
            "model = keras.Model(i, head(h))\nmodel.fit(x, y)\n",
            STEP_OF_96,
            "h = keras.layers.Resizing(168, 168)(i)  # as trained\n"
            "model = keras.Model(i, head(h))\nmodel.fit(x, y)\n",
        ),
        Case(
            "SIDE = 128\n"
            "ds = keras.utils.image_dataset_from_directory(d, image_size=(SIDE, SIDE))\n"
            "model = make(keras.Input((SIDE, SIDE, 3)))\nmodel.fit(ds)\n",
            STEP_OF_96,
            "SIDE = 96\n"
            "ds = keras.utils.image_dataset_from_directory(d, image_size=(SIDE, SIDE))\n"
            "model = make(keras.Input((SIDE, SIDE, 3)))\nmodel.fit(ds)\n",
        ),
        Case(
            "ds = keras.utils.image_dataset_from_directory(d, image_size=(128, 128))\n"
            "model.fit(ds)\n",
            STEP_OF_96,
        ),
    )
    is_silent = (
        Case("fig.resize(640, 480)\nmodel.fit(x, y)\n", STEP_OF_96),
        Case("x = keras.layers.Resizing(224, 224)(x)\nmodel.fit(x, y)\n"),
        Case("x = keras.layers.Resizing(32, 32)(x)\nmodel.fit(x, y)\n", STEP_OF_96),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find the sizes of images, and how much less a smaller one would take."""
        sizes = list(_sizes(cell))
        sides = {(cell.number(high), cell.number(wide)) for high, wide in sizes}
        total = computed_bytes(here)
        if len(sides) != 1 or not trains(cell):
            return
        high, wide = sides.pop()
        if high is None or wide is None or not total:
            return
        then_high, then_wide = _smaller(here, high, wide, total)
        if min(then_high, then_wide) < _SMALLEST:
            return
        yield Found(
            title=f"Images of {then_high}×{then_wide} instead of {high}×{wide}",
            message=(
                f"{format_bytes(total)} of the peak grow with the number of pixels, of which "
                f"{then_high}×{then_wide} has {_share(high, wide, then_high, then_wide):.0%}."
            ),
            place=here.device,
            saving=_saving(here, total, 1 - _share(high, wide, then_high, then_wide)),
            edits=_edits(cell, sizes, {high: then_high, wide: then_wide}),
            line_number=sizes[0][0].lineno,
        )


def _sizes(cell: TypedCell) -> Iterator[_Size]:
    for call in cell.calls_of("Resizing"):
        high, wide = argument(call, 0, "height"), argument(call, 1, "width")
        if high is not None and wide is not None:
            yield high, wide
    for call in cell.calls_of("image.resize", "image.resize_with_pad"):
        yield from _pair(cell, argument(call, 1, "size"))
    for call in cell.calls:
        yield from _pair(cell, keyword(call, "image_size"))
        yield from _pair(cell, keyword(call, "target_size"))


def _pair(cell: TypedCell, value: ast.expr | None) -> Iterator[_Size]:
    meant = None if value is None else cell.resolved(value)
    if isinstance(meant, ast.Tuple | ast.List) and len(meant.elts) == _SIDES:
        yield meant.elts[0], meant.elts[1]


def _shapes(cell: TypedCell) -> Iterator[_Size]:
    """Yield the sides of the inputs that the cell's models have."""
    inputs = [argument(call, 0, "shape") for call in cell.calls_of("Input", "InputLayer")]
    for value in (*inputs, *(keyword(call, "input_shape") for call in cell.calls)):
        meant = None if value is None else cell.resolved(value)
        if isinstance(meant, ast.Tuple) and len(meant.elts) == _SIDES + 1:
            yield meant.elts[0], meant.elts[1]


def _smaller(here: Situation, high: int, wide: int, total: int) -> tuple[int, int]:
    """Take the largest size that is expected to fit."""
    limit = here.limit(here.device) or 0
    then = (high, wide)
    for share in _SHARES:
        then = (_even(high * share), _even(wide * share))
        left = here.peak(here.device) - total * (1 - _share(high, wide, *then))
        if left <= _MOST_OF_LIMIT * limit:
            break
    return then


def _even(side: float) -> int:
    return int(side) // _EVEN * _EVEN


def _share(high: int, wide: int, then_high: int, then_wide: int) -> float:
    return then_high * then_wide / (high * wide)


def _saving(here: Situation, total: int, share: float) -> Saving:
    rounding = here.held("rounding")
    expected = (total + rounding / 2) * share
    return Saving(
        here.device,
        int(_LEAST * total * share),
        int(expected),
        int(_MOST * (total + rounding) * share),
    )


def _edits(cell: TypedCell, sizes: list[_Size], then: dict[int, int]) -> tuple[Edit, ...]:
    """Change the size wherever it is written; nothing where the model's input stands elsewhere."""
    shapes = [pair for pair in _shapes(cell) if all(cell.number(one) in then for one in pair)]
    is_in_model = any(cell.calls_of("Resizing")) and any(cell.calls_of("Sequential", "Model"))
    if not (shapes or is_in_model) or any(keyword(call, "weights") for call in cell.calls):
        return ()
    written = dict.fromkeys(cell.resolved(one) for pair in (*sizes, *shapes) for one in pair)
    numbers = [(one, cell.number(one)) for one in written]
    return tuple(cell.replace(one, str(then[number])) for one, number in numbers if number in then)
