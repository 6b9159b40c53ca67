"""A file that is read in pieces stays on the disk: `mmap_mode`."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.arrays import (
    bound_to,
    is_changed,
    is_in_a_magic,
    makes_new,
    names_given,
    numpys,
    only_asks_about,
    reads,
)
from oommagic.explain.advice.examples import HOST_RAN_OUT
from oommagic.explain.advice.host_memory import lower_from
from oommagic.explain.advice.nodes import keyword
from oommagic.explain.advice.rule import HOST_CAUSES, Case, Found, Rule, expected
from oommagic.explain.advice.situation import Situation
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import HOST, Edit
from oommagic.units import format_bytes

_SUMMING = frozenset({"mean", "std", "min", "max", "var", "sum", "argmax", "any", "all", "copy"})
_IN_A_LOOP = 'x = np.load("x.npy")\nfor i in range(9):\n'
_WRITING = (
    "a, b = x[i], y[i]; a /= 255",
    "x[i][x[i] < 0] = 0",
    "x[i].sort()",
    "x[i].T[0] = 0",
    "np.sqrt(z, out=x[i])",
    "for row in x[i:]: row -= 1",
)
"""What would write into the file's pages."""


class MemoryMapped(Rule):
    """An array of a file, of which only the pieces that are used come into memory."""

    name = "memory-mapped"
    title = "A memory-mapped file, read in pieces"
    what = (
        "Where an array is loaded from an `.npy` file and then used only piece by piece, in a loop "
        'or a function, it maps the file instead of reading it: `mmap_mode="r"` where the pieces '
        'are only read, `"c"` where others get them, who may write into them.'
    )
    why = (
        "`np.load` reads all of the file into the process's own memory. With `mmap_mode` the "
        "file's pages are read when they are used, and the kernel drops them when memory is short: "
        "they are no memory of the process. It helps as long as nothing makes a copy of the whole: "
        "`astype`, arithmetic, `fit(x, y)` and `from_tensor_slices` do. To open the file anew for "
        "each piece is not needed, and `del` of a piece frees no more than its next value would."
    )
    example = (
        'x = np.load("x.npy")\n'
        "for i in range(0, len(x), 1000):\n    total += x[i : i + 1000].sum(axis=0)"
    )
    instead = (
        'x = np.load("x.npy", mmap_mode="r")\n'
        "for i in range(0, len(x), 1000):\n    total += x[i : i + 1000].sum(axis=0)"
    )
    safety = "same results"
    fix_safety = (
        "The values are the same, and the file must stay as it is. Where pieces are handed on, "
        'they are mapped by `"c"`: what is written into them stays in memory, and the file is '
        "never changed. A file that did not fit is mapped for reading alone, and who writes into "
        "a piece of it gets an error."
    )
    cost = "reads from the disk as it goes"
    causes = HOST_CAUSES
    speaks = (
        Case(
            'x = np.load("x.npy")\nfor i in range(9):\n    print(x[i].mean())\n',
            HOST_RAN_OUT,
            'x = np.load("x.npy", mmap_mode="r")\nfor i in range(9):\n    print(x[i].mean())\n',
        ),
        Case(
            "x = np.load(\n    path,  # of the whole year\n)\n\n"
            "def pieces():\n    for i in range(0, len(x), 64):\n        yield x[i : i + 64]\n",
            HOST_RAN_OUT,
            'x = np.load(\n    path, mmap_mode="c",  # of the whole year\n)\n\n'
            "def pieces():\n    for i in range(0, len(x), 64):\n        yield x[i : i + 64]\n",
        ),
        Case(
            _IN_A_LOOP.replace("x", "z") + "    step(z[i])\n",
            HOST_RAN_OUT,
            _IN_A_LOOP.replace("x", "z").replace('")', '", mmap_mode="r")') + "    step(z[i])\n",
        ),
        Case(
            _IN_A_LOOP + "    total += x[i] / 255 + x[i].astype(int)\n",
            HOST_RAN_OUT,
            'x = np.load("x.npy", mmap_mode="r")\n'
            "for i in range(9):\n    total += x[i] / 255 + x[i].astype(int)\n",
        ),
    )
    is_silent = (
        Case('x = np.load("x.npy")\nx = x.astype("float32")\n', HOST_RAN_OUT),
        Case('x = np.load("x.npy")\nfor i in range(9):\n    x[i] -= 1\n', HOST_RAN_OUT),
        Case(
            'x = np.load("x.npy")\nfor i in range(9):\n    part = x[i]\n    part -= part.mean()\n',
            HOST_RAN_OUT,
        ),
        *(Case(_IN_A_LOOP + f"    {line}\n", HOST_RAN_OUT) for line in _WRITING),
        Case(
            'x = np.load("x.npy")\n%time f(x)\nfor i in range(9):\n    print(x[i])\n', HOST_RAN_OUT
        ),
        Case('x = np.load("x.npz")\nfor i in range(9):\n    print(x["a"])\n'),
    )

    def look(self, cell: TypedCell, here: Situation) -> Iterator[Found]:
        """Find files that are loaded whole, and used in pieces alone."""
        for call in cell.calls_of("load"):
            name = bound_to(cell, call)
            did_not_fit = here.line_number == call.lineno
            if here.array(name) is None and not did_not_fit:
                continue
            if numpys(here, call) == "load" and _may_be_mapped(call):
                mode = _mode(cell, here, name) if _is_used_in_pieces(cell, name) else ""
                edit = cell.set_keyword(call, "mmap_mode", f'"{mode}"')
                if edit is not None and mode:
                    yield _found(cell, here, call, edit)


def _found(cell: TypedCell, here: Situation, call: ast.Call, edit: Edit) -> Found:
    name, saving, told = bound_to(cell, call), None, "did not fit"
    array = here.array(name)
    if array is not None:
        lower = lower_from(here, cell.statement(call).lineno, array.bytes)
        saving, told = expected(HOST, lower, 0.85, 1.05), f"takes {format_bytes(array.bytes)}"
    return Found(
        title=f"Map the file of `{name}` instead of reading it whole",
        message=(
            f"`{name}` {told}, and is used in pieces alone: mapped, its file stays on the disk, "
            "and each piece is read when it is used."
        ),
        place=HOST,
        saving=saving,
        edits=(edit,),
        line_number=call.lineno,
    )


def _may_be_mapped(call: ast.Call) -> bool:
    if len(call.args) != 1 or any(one.arg in {None, "mmap_mode"} for one in call.keywords):
        return False
    pickled = keyword(call, "allow_pickle")
    path = call.args[0]
    is_text = isinstance(path, ast.Constant) and isinstance(path.value, str)
    return pickled is None and not (is_text and not str(path.value).endswith(".npy"))  # type: ignore[attr-defined]  # just seen to be a constant


def _is_used_in_pieces(cell: TypedCell, name: str) -> bool:
    """Say whether it is used, and each use takes a piece of it in a loop or a function."""
    if not name or len(cell.assignments(name)) != 1 or is_changed(cell, name):
        return False
    if is_in_a_magic(cell, name) or cell.function_of(cell.assignments(name)[0]) is not None:
        return False
    uses = _uses(cell, name)
    return bool(uses) and all(_is_a_piece(cell, use) for use in uses)


def _uses(cell: TypedCell, name: str) -> list[ast.Name]:
    return [read for read in reads(cell, name) if not only_asks_about(cell, read)]


def _mode(cell: TypedCell, here: Situation, name: str) -> str:
    """Give `r` where the pieces are surely only read; else `c`, with which they can be written.

    But Linux grants `c` only for a file that would fit into memory, as all of it may be written.
    """
    is_sure = all(_is_only_read(cell, here, cell.parents[use]) for use in _uses(cell, name))
    return "r" if is_sure or here.array(name) is None else "c"


def _is_only_read(cell: TypedCell, here: Situation, piece: ast.AST) -> bool:
    """Say whether something new is made of a piece: by arithmetic, a sum, or a copy."""
    above = cell.parents[piece]
    if isinstance(above, ast.AugAssign):
        return True  # by what stands there: one that writes into the piece was seen before
    if not isinstance(above, ast.Attribute):
        return isinstance(above, ast.BinOp | ast.Compare)
    call = cell.parents[above]
    is_new = isinstance(call, ast.Call) and makes_new(here, call)
    return is_new or above.attr in _SUMMING


def _is_a_piece(cell: TypedCell, use: ast.Name) -> bool:
    piece = cell.parents[use]
    if not isinstance(piece, ast.Subscript) or piece.value is not use:
        return False
    if not (cell.is_repeated(piece) or cell.function_of(piece)):
        return False
    return not any(is_changed(cell, name) for name in names_given(cell, piece))
