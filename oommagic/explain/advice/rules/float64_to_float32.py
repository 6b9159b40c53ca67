"""Arrays of float32 from the beginning, where NumPy would make float64."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from oommagic.explain.advice.arrays import bound_to, numpys
from oommagic.explain.advice.examples import HOST_RAN_OUT, host_peaks
from oommagic.explain.advice.host_memory import lower_peak
from oommagic.explain.advice.nodes import keyword, names_in
from oommagic.explain.advice.rule import HOST_CAUSES, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.recording import Named
from oommagic.report import HOST, Edit
from oommagic.units import GIB, format_bytes

_SMALL_INTEGERS = frozenset({"uint8", "int8", "uint16", "int16", "bool"})
_FILLED = frozenset({"zeros", "ones", "empty"})
_DRAWN = frozenset({"rand", "randn", "random", "random_sample", "normal", "uniform"})
_NARROW = '"float32"'

_IMAGES = replace(
    HOST_RAN_OUT,
    names={**HOST_RAN_OUT.names, "images": Named("array", GIB // 2, "uint8", (10_000, 224, 224))},
)
_GENERATOR = Named("other", text="Generator")
_MADE_AND_FITTED = replace(HOST_RAN_OUT, cause="none", place="", lines=host_peaks(5, 12))


@dataclass(frozen=True, slots=True)
class _Making:
    """How an array would be made as float32."""

    edit: Edit
    line_share: float
    """How much less the line itself takes then, as a share of the float64 array."""


class Float64ToFloat32(Rule):
    """Half the bytes for each number, from where the array is made."""

    name = "float64-to-float32"
    title = "float32 instead of float64"
    what = (
        "Where the cell makes a large array of float64, by NumPy's defaults or by dividing an "
        "array of integers, it makes one of float32 at the same place."
    )
    why = (
        "NumPy computes in float64 unless told otherwise: `images / 255.0` makes 8 bytes of each "
        "byte of an image. Keras then makes a float32 copy of the whole, so float64 costs the "
        "array twice over. Divided by `np.float32(255.0)`, integers of 8 and 16 bits become "
        'float32 at once; `(images / 255.0).astype("float32")` has made the float64 array before.'
    )
    example = "x = images / 255.0"
    instead = "x = images / np.float32(255.0)"
    safety = "changes results"
    fix_safety = (
        "Values are rounded to 7 digits, as Keras does with float64 data anyway; a generator that "
        "draws float32 draws other numbers."
    )
    cost = ""
    causes = HOST_CAUSES
    speaks = (
        Case("x = images / 255.0\n", _IMAGES, "x = images / np.float32(255.0)\n"),
        Case(
            "x = (images - 127.5) / 127.5\n",
            _IMAGES,
            "x = (images - np.float32(127.5)) / 127.5\n",
        ),
        Case(
            "x = np.zeros((n, 224, 224, 1))  # filled below\nmodel.fit(x, y)\n",
            _MADE_AND_FITTED,
            'x = np.zeros((n, 224, 224, 1), dtype="float32")  # filled below\nmodel.fit(x, y)\n',
        ),
        Case(
            "x = raw.astype(float)\nmodel.fit(x, y)\n",
            _MADE_AND_FITTED,
            'x = raw.astype("float32")\nmodel.fit(x, y)\n',
        ),
        Case(
            "x = x / 255.0\nmodel.fit(x, y)\n",
            _MADE_AND_FITTED,
            'x = x.astype("float32") / 255.0\nmodel.fit(x, y)\n',
        ),
        Case(
            "x = np.random.rand(n, 224, 224, 1)\nmodel.fit(x, y)\n",
            _MADE_AND_FITTED,
            'x = np.random.rand(n, 224, 224, 1).astype("float32")\nmodel.fit(x, y)\n',
        ),
        Case(
            "x = rng.random((n, 224, 224, 1))\n",
            replace(HOST_RAN_OUT, names={**HOST_RAN_OUT.names, "rng": _GENERATOR}),
            'x = rng.random((n, 224, 224, 1), dtype="float32")\n',
        ),
        Case(
            "x = np.array(rows, dtype=np.float64)\n",
            HOST_RAN_OUT,
            'x = np.array(rows, dtype="float32")\n',
        ),
    )
    is_silent = (
        Case('x = np.zeros((n, 224, 224, 1), "float32")\n', HOST_RAN_OUT),
        Case("y = np.zeros(n)\n", HOST_RAN_OUT),
        Case("x = frame / 255.0\n", replace(HOST_RAN_OUT, names={})),
        Case("x = images / 255.0\n"),
        Case("x = (images & 15) / 15.0\n", _IMAGES),
        Case("x = (images - 128) / 128\n", _IMAGES),
        Case("x = x // 2\n", HOST_RAN_OUT),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find where large arrays of float64 are made."""
        for name in sorted(cell.names):
            array = here.array(name)
            if array is not None and array.dtype == "float64":
                made = ((value, _making(cell, here, value)) for value in _values(cell, name))
                found = next(((value, making) for value, making in made if making), None)
                if found is not None:
                    yield _found(cell, here, name, *found)


def _found(cell: TypedCell, here: Situation, name: str, value: ast.expr, making: _Making) -> Found:
    size = here.names[name].bytes
    return Found(
        title=f"Make `{name}` as float32",
        message=(
            f"`{name}` is of float64 and takes {format_bytes(size)}; as float32 "
            f"{format_bytes(size // 2)}, and Keras computes with that."
        ),
        place=HOST,
        saving=expected(HOST, _lower(cell, here, name, value, making.line_share), 0.85, 1.15),
        edits=(making.edit,),
        line_number=value.lineno,
    )


def _values(cell: TypedCell, name: str) -> Iterator[ast.expr]:
    """Yield what the cell gives to a name; what is float32 at first stays so."""
    for statement in cell.assignments(name):
        if not isinstance(statement, ast.Assign) or cell.function_of(statement) is not None:
            continue
        if bound_to(cell, statement.value) == name:
            yield statement.value


def _making(cell: TypedCell, here: Situation, value: ast.expr) -> _Making | None:
    if isinstance(value, ast.BinOp):
        return _of_arithmetic(cell, here, value)
    if not isinstance(value, ast.Call):
        return None
    if isinstance(value.func, ast.Attribute) and value.func.attr == "astype" and value.args:
        return _of_wide(cell, value.args[0])
    if _is_of_a_generator(here, value) and keyword(value, "dtype") is None:
        return _narrow(cell, value)
    return _of_numpy(cell, value, numpys(here, value))


def _is_of_a_generator(here: Situation, call: ast.Call) -> bool:
    """Say whether it draws from `np.random.default_rng()`, by a method that can do float32."""
    if not isinstance(call.func, ast.Attribute):
        return False
    known = here.known(call.func.value)
    is_generator = known is not None and known.text == "Generator"
    return is_generator and call.func.attr in {"random", "standard_normal"} and len(call.args) < 2  # noqa: PLR2004 (the second is the type)


def _narrow(cell: TypedCell, call: ast.Call) -> _Making | None:
    edit = cell.set_keyword(call, "dtype", _NARROW)
    return None if edit is None else _Making(edit, 0.5)


def _of_numpy(cell: TypedCell, call: ast.Call, called: str) -> _Making | None:
    wide = keyword(call, "dtype")
    if called and wide is not None:
        return _of_wide(cell, wide)
    if called in _FILLED and len(call.args) == 1:
        return _narrow(cell, call)
    if called.startswith("random.") and called.removeprefix("random.") in _DRAWN:
        # Float64 is drawn first: while it is converted, both are there.
        end = cell.end(call)
        return _Making(Edit(end, end, f".astype({_NARROW})"), -0.5)
    return None


def _of_wide(cell: TypedCell, wide: ast.expr) -> _Making | None:
    is_wide = ast.unparse(wide).rpartition(".")[2].strip("'\"") in {"float", "float64", "double"}
    return _Making(cell.replace(wide, _NARROW), 0.5) if is_wide else None


def _of_arithmetic(cell: TypedCell, here: Situation, value: ast.BinOp) -> _Making | None:
    """Let the innermost step, of an array and a number, give float32: the others keep it."""
    while isinstance(value.left, ast.BinOp):
        value = value.left
    left, right = value.left, value.right
    if not isinstance(left, ast.Name) or not _gives_floats(value.op, right):
        return None
    array, numpy = here.array(left.id), here.module("numpy")
    if array is not None and array.dtype in _SMALL_INTEGERS and numpy is not None:
        return _Making(cell.replace(right, f"{numpy}.float32({cell.text_of(right)})"), 0.5)
    if array is not None and array.dtype != "float64":
        return None
    end = cell.end(left)
    return _Making(Edit(end, end, f".astype({_NARROW})"), 0.0)


def _gives_floats(operator: ast.operator, number: ast.expr) -> bool:
    """Say whether integers become floats by this step, so that it is the same but for rounding.

    Small integers less a whole number stay integers, and begin anew where they are too large.
    """
    kind = type(number.value) if isinstance(number, ast.Constant) else None
    is_of_floats = isinstance(operator, ast.Add | ast.Sub | ast.Mult) and kind is float
    return is_of_floats or (isinstance(operator, ast.Div) and kind in {int, float})


def _lower(cell: TypedCell, here: Situation, name: str, value: ast.expr, line_share: float) -> int:
    """Take half of it away from where it is made on; and the copy that Keras makes of it."""
    size, line_number = here.names[name].bytes, value.lineno
    fed = {
        cell.statement(call).lineno
        for call in cell.calls_of("fit", "evaluate", "predict")
        if name in names_in(call)
    }

    def less(line: int) -> int:
        if line <= line_number:
            return int(size * line_share) if line == line_number else 0
        return size if line in fed else size // 2

    return lower_peak(here, less, line_number)
