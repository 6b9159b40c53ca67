"""A file that is read in pieces stays on the disk: `mmap_mode="r"`."""

import ast
from collections.abc import Iterator

from oommagic.explain.advice.arrays import (
    bound_to,
    is_changed,
    is_in_a_magic,
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


class MemoryMapped(Rule):
    """An array of a file, of which only the pieces that are used come into memory."""

    name = "memory-mapped"
    title = "A memory-mapped file, read in pieces"
    what = (
        "Where an array is loaded from an `.npy` file and then used only piece by piece, in a loop "
        "or a function, it maps the file instead of reading it."
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
        "The values are the same; the array can't be written into, and the file must stay as it is."
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
            'x = np.load(\n    path, mmap_mode="r",  # of the whole year\n)\n\n'
            "def pieces():\n    for i in range(0, len(x), 64):\n        yield x[i : i + 64]\n",
        ),
    )
    is_silent = (
        Case('x = np.load("x.npy")\nx = x.astype("float32")\n', HOST_RAN_OUT),
        Case('x = np.load("x.npy")\nfor i in range(9):\n    x[i] -= 1\n', HOST_RAN_OUT),
        Case(
            'x = np.load("x.npy")\nfor i in range(9):\n    part = x[i]\n    part -= part.mean()\n',
            HOST_RAN_OUT,
        ),
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
                edit = cell.set_keyword(call, "mmap_mode", '"r"')
                if edit is not None and _is_used_in_pieces(cell, name):
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
    uses = [read for read in reads(cell, name) if not only_asks_about(cell, read)]
    return bool(uses) and all(_is_a_piece(cell, use) for use in uses)


def _is_a_piece(cell: TypedCell, use: ast.Name) -> bool:
    piece = cell.parents[use]
    if not isinstance(piece, ast.Subscript) or piece.value is not use:
        return False
    if not (cell.is_repeated(piece) or cell.function_of(piece)):
        return False
    name = bound_to(cell, piece)
    return not name or not is_changed(cell, name)
