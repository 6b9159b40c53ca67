"""A notebook's cell written a little differently: what advice does may not depend on that."""

import ast
import io
import re
import tokenize
from collections.abc import Callable
from itertools import pairwise

from hypothesis import strategies as st

from oommagic.cell import edited, parse_typed, physical_lines
from oommagic.report import Edit

Draw = st.DrawFn
_MAGIC = re.compile(r"\s*[%!?].*|.*\?\s*|[\w\s.,\[\]'\"]+=\s*[%!].*")
_TIMED = re.compile(r"%time[ \t]")
_NAMES = ("net", "modèle", "x_2", "训练", "_tmp", "BATCH_SIZE", "o")
_REMARKS = (
    "# a remark",
    "#tight",
    "# (open, 'quote, {brace",
    "# 数 é 🎉",
    "#%% not a magic",
    "# batch_size=128)",
)
_MAGIC_LINES = (
    "%matplotlib inline",
    "!nvidia-smi | grep 'MiB' | head -n 1",
    "!pip install -q 'keras>=3' \"numpy\"",
    "listing = !ls *.npy",
    "model?",
    "?tf.data.Dataset",
    "%time print('(')",
    "%cd ..",
)
_CELL_MAGICS = ("%%time", "%%capture out", "%%oomprofile", "%%oomprofile -f f\n%%time")


def is_magic(line: str) -> bool:
    """Say whether a line is IPython's own."""
    return _MAGIC.fullmatch(line.rstrip("\r\n")) is not None


def magics(text: str) -> list[str]:
    """Give the lines of a cell that are IPython's own; what is timed is Python's."""
    own = (line.strip() for line in physical_lines(text) if is_magic(line))
    return ["%time" if _TIMED.match(line) else line for line in own]


def comments(text: str) -> list[str]:
    """Give every comment of a cell; nothing if it is not Python."""
    lines = (_as_python(line) if is_magic(line) else line for line in physical_lines(text))
    try:
        return [
            token.string
            for token in tokenize.generate_tokens(io.StringIO("".join(lines)).readline)
            if token.type == tokenize.COMMENT
        ]
    except (tokenize.TokenError, SyntaxError):
        return []


def _as_python(magic: str) -> str:
    return f"{magic[: len(magic) - len(magic.lstrip())]}pass{_end(magic)}"


def _end(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


# ---- Ways to write it differently ---------------------------------------------------------------


def _simple_lines(text: str) -> list[tuple[int, ast.stmt]]:
    """Find the statements that have one line, alone: where that begins, and the statement."""
    lines = physical_lines(text)
    found = []
    for node in ast.walk(parse_typed(text)):
        if not isinstance(node, ast.stmt) or hasattr(node, "body") or hasattr(node, "cases"):
            continue
        line = lines[node.lineno - 1]
        written = line.encode()[node.col_offset : node.end_col_offset].decode(errors="ignore")
        if node.lineno == node.end_lineno and line.strip() == written and not is_magic(line):
            found.append((sum(map(len, lines[: node.lineno - 1])), node))
    return sorted(found, key=lambda pair: pair[0])


def with_remarks(draw: Draw, text: str) -> str:
    """Add comments above and behind statements."""
    edits: list[Edit] = []
    for at, node in _simple_lines(text):
        remark = draw(st.sampled_from(_REMARKS))
        where = draw(st.sampled_from(["", "above", "behind", "both"]))
        end = at + len(physical_lines(text[at:])[0].rstrip("\r\n"))
        if where in {"above", "both"}:
            edits.append(Edit(at, at, f"{' ' * node.col_offset}{remark} {len(edits)}\n\n"))
        if where in {"behind", "both"}:
            edits.append(Edit(end, end, f"  {remark} {len(edits)}"))
    return edited(text, edits)


def with_magics(draw: Draw, text: str) -> str:
    """Add lines of IPython's own between statements, and a cell magic on top."""
    edits = [
        Edit(at, at, f"{' ' * node.col_offset}{draw(st.sampled_from(_MAGIC_LINES))}\n")
        for at, node in _simple_lines(text)
        if draw(st.integers(0, 3)) == 0
    ]
    changed = edited(text, edits)
    if draw(st.booleans()) and not changed.lstrip().startswith("%%"):
        return f"{draw(st.sampled_from(_CELL_MAGICS))}\n{changed}"
    return changed


def with_timed_lines(draw: Draw, text: str) -> str:
    """Time some statements."""
    edits = [
        Edit(at + node.col_offset, at + node.col_offset, "%time ")
        for at, node in _simple_lines(text)
        if draw(st.integers(0, 2)) == 0
    ]
    return edited(text, edits)


def with_other_names(draw: Draw, text: str) -> str:
    """Give another name to one that the cell uses."""
    names = sorted({node.id for node in ast.walk(parse_typed(text)) if isinstance(node, ast.Name)})
    if not names:
        return text
    old, new = draw(st.sampled_from(names)), draw(st.sampled_from(_NAMES))
    return "".join(
        line if is_magic(line) else re.sub(rf"(?<![\w.'\"]){re.escape(old)}\b", new, line)
        for line in physical_lines(text)
    )


def with_shared_lines(draw: Draw, text: str) -> str:
    """Put statements on one line, some behind text that is not ASCII."""
    edits = []
    for (at, node), (at_next, following) in pairwise(_simple_lines(text)):
        end = at + len(physical_lines(text[at:])[0])
        if end == at_next and node.col_offset == following.col_offset and draw(st.booleans()):
            edits.append(Edit(end - len(_end(text[at:end])), at_next + node.col_offset, "; "))
    for at, node in _simple_lines(text):
        if draw(st.integers(0, 2)) == 0 and not any(one.end > at >= one.start for one in edits):
            place = at + node.col_offset
            edits.append(Edit(place, place, "_ = 'naïve 日本 🎉'; "))
    return edited(text, edits)


def in_a_block(draw: Draw, text: str) -> str:
    """Indent all of it under a head."""
    if text.lstrip().startswith("%%") or not text.strip():
        return text
    head = draw(st.sampled_from(["if True:", "for run in range(2):  # twice", "def main():"]))
    indent = draw(st.sampled_from(["    ", "\t", "  ", " "]))
    lines = (indent + line if line.strip() else line for line in physical_lines(text))
    return f"{head}\n{''.join(lines)}"


def with_tabs(_draw: Draw, text: str) -> str:
    """Indent by tabs."""
    return re.sub(
        r"^(?: {4})+", lambda found: "\t" * (len(found[0]) // 4), text, flags=re.MULTILINE
    )


def with_calls_spread_out(draw: Draw, text: str) -> str:
    """Write each argument of some calls on a line of its own, with trailing commas and comments."""
    lines = physical_lines(text)
    edits: list[Edit] = []
    for call in ast.walk(parse_typed(text)):
        if not isinstance(call, ast.Call) or draw(st.booleans()):
            continue
        edit = _spread_out(draw, lines, call)
        if edit and all(edit.end <= one.start or one.end <= edit.start for one in edits):
            edits.append(edit)
    return edited(text, edits)


def _spread_out(draw: Draw, lines: list[str], call: ast.Call) -> Edit | None:
    line = lines[call.lineno - 1].encode()
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    arguments.sort(key=lambda one: one.col_offset)
    if not arguments or call.lineno != call.end_lineno or re.search(rb"f['\"]", line):
        return None
    if any(isinstance(one, ast.GeneratorExp) for one in arguments):
        return None
    texts = [line[one.col_offset : one.end_col_offset].decode() for one in arguments]
    remark = draw(st.sampled_from(["", "  # ) why, so"]))
    comma = draw(st.sampled_from([",", ""]))
    inside = f",{remark}\n        ".join(texts)
    head = line[call.col_offset : arguments[0].col_offset].decode().rstrip()
    written = f"{head}\n        {inside}{comma}{remark}\n    )"
    before = sum(map(len, lines[: call.lineno - 1]))
    start = before + len(line[: call.col_offset].decode())
    return Edit(start, before + len(line[: call.end_col_offset].decode()), written)


def with_windows_lines(_draw: Draw, text: str) -> str:
    """End lines as Windows does."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def with_other_edges(draw: Draw, text: str) -> str:
    """Begin and end with blank lines, or without a newline."""
    top = "" if text.lstrip().startswith("%%") else draw(st.sampled_from(["", "\n", "\n  \n"]))
    return f"{top}{text.rstrip()}{draw(st.sampled_from(['', chr(10), '   ', ';', chr(10) * 3]))}"


def with_half_of_it(draw: Draw, text: str) -> str:
    """Cut it off somewhere, as a cell that is being typed."""
    return text[: draw(st.integers(0, len(text)))]


VARIATIONS: tuple[Callable[[Draw, str], str], ...] = (
    with_remarks,
    with_calls_spread_out,
    with_shared_lines,
    with_other_names,
    with_magics,
    with_timed_lines,
    in_a_block,
    with_tabs,
    with_other_edges,
    with_half_of_it,
    with_windows_lines,
)
"""In the order in which they are made."""


@st.composite
def varied(draw: Draw, text: str) -> str:
    """Write a cell a little differently, in a few ways at once."""
    chosen = draw(st.sets(st.sampled_from(range(len(VARIATIONS))), max_size=4))
    for number in sorted(chosen):
        text = VARIATIONS[number](draw, text)
    return text
