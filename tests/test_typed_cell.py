"""Edits of a cell as typed: what they write is what one would write by hand, and nothing else."""

import ast

import pytest

from oommagic.cell import edited, parse_typed
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit


def changed(text: str, edit: Edit | None) -> str:
    assert edit is not None
    after = edited(text, [edit])
    assert parse_typed(after).body, f"not Python:\n{after}"
    return after


def first_call(cell: TypedCell, name: str = "f") -> ast.Call:
    return next(cell.calls_of(name))


def statement(cell: TypedCell, text: str) -> ast.stmt:
    """Find the innermost statement that is written so."""
    found = [one for one in cell.nodes if isinstance(one, ast.stmt) and cell.text_of(one) == text]
    return found[-1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "f(n=1)\n"),
        ("f(  )\n", "f(  n=1)\n"),
        ("f(a)\n", "f(a, n=1)\n"),
        ("f(a,)\n", "f(a, n=1,)\n"),
        ("f(n=2)\n", "f(n=1)\n"),
        ("f(n=(2))\n", "f(n=(1))\n"),
        ("f((a))\n", "f((a), n=1)\n"),
        ("f((a) )\n", "f((a), n=1 )\n"),
        ("f((\n    a\n))\n", "f((\n    a\n), n=1)\n"),
        ("f((  # )\n    a  # )\n))\n", "f((  # )\n    a  # )\n), n=1)\n"),
        ("f(a, (b for b in c))\n", "f(a, (b for b in c), n=1)\n"),
        ("f(*a)\n", "f(*a, n=1)\n"),
        ("f(g(a), h(b)(c))\n", "f(g(a), h(b)(c), n=1)\n"),
        ("f(\n    a,\n    b  # last\n)\n", "f(\n    a,\n    b, n=1  # last\n)\n"),
        (
            "f(\n    a,  # first\n    b,  # last\n)\n",
            "f(\n    a,  # first\n    b, n=1,  # last\n)\n",
        ),
        ("é = 'ü'; f('ß', 'x')\n", "é = 'ü'; f('ß', 'x', n=1)\n"),
        ("x = 1\r\nf(a)\r\n", "x = 1\r\nf(a, n=1)\r\n"),
        ("f(a,\\\n  b)", "f(a,\\\n  b, n=1)"),
        ("!ls ü\nf(a)\n", "!ls ü\nf(a, n=1)\n"),
        ("%%time\nf(a)\n", "%%time\nf(a, n=1)\n"),
    ],
)
def test_a_call_gets_a_keyword_argument(before: str, after: str) -> None:
    cell = TypedCell(before)
    assert changed(before, cell.set_keyword(first_call(cell), "n", "1")) == after


@pytest.mark.parametrize("text", ["f(a for a in b)\n", "f(a, **options)\n"])
def test_a_call_that_can_not_take_one_more_argument_is_left_alone(text: str) -> None:
    cell = TypedCell(text)
    assert cell.set_keyword(first_call(cell), "n", "1") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "new()\nf()\n"),
        ("f()", "new()\nf()"),
        ("if x:\n\tf()\n", "if x:\n\tnew()\n\tf()\n"),
        ("a = 1; f()\n", "a = 1; new(); f()\n"),
        ("if x: f()\n", "if x: new(); f()\n"),
        ("if x: g()\nelse: f()  # no\n", "if x: g()\nelse: new(); f()  # no\n"),
        ("if (x and\n    y): f()\n", "if (x and\n    y): new(); f()\n"),
        ("x = 1\r\nf()\r\n", "x = 1\r\nnew()\r\nf()\r\n"),
        ("%time g()\nf()\n", "%time g()\nnew()\nf()\n"),
    ],
)
def test_a_line_is_written_before_a_statement(before: str, after: str) -> None:
    cell = TypedCell(before)
    assert changed(before, cell.insert_before(statement(cell, "f()"), "new()")) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "if y:\n    new()\nf()\n"),
        ("a = 1; f()  # c\n", "a = 1\nif y:\n    new()\nf()  # c\n"),
        ("if x: f(); g()\n", "if x:\n    if y:\n        new()\n    f(); g()\n"),
        ("for x in y: g(); f()\n", "for x in y:\n    g()\n    if y:\n        new()\n    f()\n"),
        ("if x:\n\ta = 1; f()\n", "if x:\n\ta = 1\n\tif y:\n\t    new()\n\tf()\n"),
        ("if x:\n    %time f()\n", "if x:\n    if y:\n        new()\n    %time f()\n"),
    ],
)
def test_a_block_is_written_before_a_statement(before: str, after: str) -> None:
    cell = TypedCell(before)
    assert changed(before, cell.insert_before(statement(cell, "f()"), "if y:\n    new()")) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "f()\nnew()\n"),
        ("f()", "f()\nnew()"),
        ("f()  # c\ng()\n", "f()  # c\nnew()\ng()\n"),
        ("f();\ng()\n", "f();\nnew()\ng()\n"),
        ("x = 1\r\nf()\r\ng()", "x = 1\r\nf()\r\nnew()\r\ng()"),
        ("x = 1\rf()\rg()", "x = 1\rf()\rnew()\ng()"),
        ("a = 1; f()\n", "a = 1; f()\nnew()\n"),
        ("f(); b = g(\n    1)\n", "f(); new(); b = g(\n    1)\n"),
        ("if x: f()  # c\n", "if x: f(); new()  # c\n"),
        ("if x: f(); g()\n", "if x: f(); new(); g()\n"),
        ("if x:\n    f()\n", "if x:\n    f()\n    new()\n"),
    ],
)
def test_a_line_is_written_behind_a_statement(before: str, after: str) -> None:
    cell = TypedCell(before)
    assert changed(before, cell.insert_after(statement(cell, "f()"), "new()")) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "f()\nif y:\n    new()\n"),
        ("f(); g()\n", "f()\nif y:\n    new()\ng()\n"),
        ("for x in y: f(); g()\n", "for x in y:\n    f()\n    if y:\n        new()\n    g()\n"),
        ("for x in y: f()\ng()\n", "for x in y:\n    f()\n    if y:\n        new()\ng()\n"),
    ],
)
def test_a_block_is_written_behind_a_statement(before: str, after: str) -> None:
    cell = TypedCell(before)
    assert changed(before, cell.insert_after(statement(cell, "f()"), "if y:\n    new()")) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\ng()\n", "g()\n"),
        ("f()  # c\ng()\n", "# c\ng()\n"),
        ("if x:\n    f()  # c\n", "if x:\n    pass  # c\n"),
        ("f();\ng()\n", "pass;\ng()\n"),
        ("f(); g()\n", "pass; g()\n"),
        ("if x:\n    f()\n", "if x:\n    pass\n"),
        ("if x: f()\n", "if x: pass\n"),
        ("if x:\n    f()\n    g()\n", "if x:\n    g()\n"),
        ("a = 1; \\\nf()\ng()\n", "a = 1; \\\npass\ng()\n"),
        ("x = 1\r\nf()\r\ng()\r\n", "x = 1\r\ng()\r\n"),
    ],
)
def test_a_statement_goes_and_what_shares_its_line_stays(before: str, after: str) -> None:
    cell = TypedCell(before)
    assert changed(before, cell.remove(statement(cell, "f()"))) == after


def test_a_function_goes_with_its_decorators() -> None:
    text = "x = 1\n@tf.function\n@other\ndef f():\n    pass\n"
    cell = TypedCell(text)
    assert changed(text, cell.remove(cell.tree.body[1])) == "x = 1\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "import gc\nf()\n"),
        ("# What this does\nf()\n", "# What this does\nimport gc\nf()\n"),
        ('"""Words."""\nf()\n', '"""Words."""\nimport gc\nf()\n'),
        ('"""Words."""', '"""Words."""\nimport gc'),
        ("from __future__ import annotations\n", "from __future__ import annotations\nimport gc\n"),
        ("%%time\nf()\n", "%%time\nimport gc\nf()\n"),
        ("%%oomprofile -f g\n%%time\nf()\n", "%%oomprofile -f g\n%%time\nimport gc\nf()\n"),
        ("%matplotlib inline\nf()\n", "import gc\n%matplotlib inline\nf()\n"),
        ("@a\ndef f(): pass\n", "import gc\n@a\ndef f(): pass\n"),
    ],
)
def test_an_import_comes_on_top_but_below_what_has_to_be_there(before: str, after: str) -> None:
    assert changed(before, TypedCell(before).add_import("import gc")) == after


def test_an_import_that_is_there_is_not_written_again() -> None:
    assert TypedCell("import gc\nf()\n").add_import("import gc") is None


@pytest.mark.parametrize(
    "text",
    [
        "n = 1\nn += 1\n",
        "n = 1\ndef f(n): g(n)\n",
        "n = 1\nfrom sizes import n\n",
        "n = 1\nfor n in x: f(n)\n",
        "n = 1\nif (n := f()): pass\n",
        "n = 1\nwith open(x) as n: pass\n",
        "match x:\n    case [n, *_]: pass\nn = 1\n",
    ],
)
def test_a_name_with_several_values_has_no_value_to_go_by(text: str) -> None:
    cell = TypedCell(text)
    assert cell.value_of(last_name(cell, "n")) is None


def test_a_functions_parameter_does_not_hide_the_name_outside() -> None:
    cell = TypedCell("n = 1\ndef f(n): g(n)\nf(n)\n")
    assert cell.number(last_name(cell, "n")) == 1


def last_name(cell: TypedCell, name: str) -> ast.Name:
    """Find the last place at which a name stands."""
    names = [node for node in cell.nodes if isinstance(node, ast.Name) and node.id == name]
    return names[-1]


@pytest.mark.parametrize(
    ("text", "is_repeated"),
    [
        ("f()\n", False),
        ("for x in f(): pass\n", False),
        ("for x in y: f()\n", True),
        ("while f(): pass\n", True),
        ("[x for x in f()]\n", False),
        ("[f() for x in y]\n", True),
        ("[x for x in y if f()]\n", True),
        ("for a in b: [x for x in f()]\n", True),
        ("for a in b:\n    def g(): f()\n", False),
    ],
)
def test_a_call_is_known_to_be_repeated(text: str, is_repeated: bool) -> None:  # noqa: FBT001
    cell = TypedCell(text)
    assert cell.is_repeated(first_call(cell)) == is_repeated
