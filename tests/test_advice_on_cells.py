"""Advice on cells of real notebooks' kind, each written in several ways: it can't do harm."""

import ast
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager
from notebook_cells import cells
from situations import healthy, situations
from variations import comments, magics, varied

from oommagic.cell import edited, parse_typed
from oommagic.explain.advice.engine import findings_of, with_all
from oommagic.explain.advice.rule import Rule
from oommagic.explain.advice.rules import RULES
from oommagic.explain.advice.typed import TypedCell
from oommagic.report import Edit, Finding

CELLS = cells()
WAYS_OF_EACH = 8
"""Each cell in so many ways: with some ninety cells, more than seven hundred."""
FALSE_ALARMS = 0.02
WRONG = {"accumulation that accumulates nothing"}
"""Cells with a mistake that can be seen in the code alone: to name it is no false alarm."""

pytestmark = pytest.mark.of_ipython

# The same examples everywhere: with many of them, a new one now and then tells nothing of a change.
# They are not made smaller where one fails: each is a cell that can be read as it is.
ways_of_each = settings(
    max_examples=WAYS_OF_EACH,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)


def is_python(source: str, flags: int = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT) -> bool:
    """Say whether IPython makes something of it that compiles."""
    python = TransformerManager().transform_cell(source)
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(python, "<cell>", "exec", flags, dont_inherit=True)
    except SyntaxError:
        return False
    return True


def can_be_read(source: str) -> bool:
    """Say so of what may not compile: without its value, a name can't be `nonlocal`."""
    return is_python(source, ast.PyCF_ONLY_AST)


def come_in_order(pieces: Iterable[str], among: Iterable[str]) -> bool:
    rest = iter(among)
    return all(piece in rest for piece in pieces)


def assert_keeps(text: str, changed: str) -> None:
    """Whatever was Python is Python, comments are there, and magics where they stood."""
    assert parse_typed(changed).body, f"not Python any more:\n{changed}"
    assert can_be_read(changed) or not can_be_read(text), f"IPython can't read it:\n{changed}"
    lost = Counter(comments(text)) - Counter(comments(changed))
    assert not lost, f"a comment is lost:\n{changed}"
    assert come_in_order(magics(text), magics(changed)), f"a magic is lost:\n{changed}"


def assert_sound(finding: Finding, number: int) -> None:
    assert finding.title
    assert finding.message.endswith(".")
    assert finding.instead_of is None or 1 <= finding.instead_of < number
    if finding.saving is not None:
        assert 0 <= finding.saving.low_bytes <= finding.saving.bytes <= finding.saving.high_bytes


@pytest.mark.parametrize("name", CELLS)
@ways_of_each
@given(data=st.data())
def test_advice_on_a_cell_does_no_harm_however_it_is_written(
    name: str, data: st.DataObject
) -> None:
    text = data.draw(varied(CELLS[name]))
    assert_harmless(text, findings_of(TypedCell(text), data.draw(situations(text))))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@settings(ways_of_each, max_examples=5 * WAYS_OF_EACH)
@given(data=st.data())
def test_a_rule_does_no_harm_to_its_own_cells_however_they_are_written(
    rule: Rule, data: st.DataObject
) -> None:
    case = data.draw(st.sampled_from(rule.speaks))
    text = data.draw(varied(case.source))
    assert_harmless(text, findings_of(TypedCell(text), case.here))


def assert_harmless(text: str, findings: Sequence[Finding]) -> None:
    for number, finding in enumerate(findings, start=1):
        assert_sound(finding, number)
        if finding.fix is not None:
            assert_runs(text, finding.fix.source)
    free = [one.fix for one in findings if one.fix is not None and one.instead_of is None]
    if free:
        assert_runs(text, with_all(text, free))


def assert_runs(text: str, changed: str) -> None:
    assert_keeps(text, changed)
    assert is_python(changed) or not is_python(text), f"Python can't run it:\n{changed}"


def test_a_cell_whose_run_had_memory_enough_gets_no_suggestion() -> None:
    told: list[str] = []
    looked_at = 0

    @settings(max_examples=600, derandomize=True, suppress_health_check=[*HealthCheck])
    @given(data=st.data(), name=st.sampled_from(sorted(CELLS.keys() - WRONG)))
    def look(data: st.DataObject, name: str) -> None:
        nonlocal looked_at
        looked_at += 1
        text = data.draw(varied(CELLS[name]))
        found = findings_of(TypedCell(text), data.draw(healthy(text)))
        told.extend(one.title for one in found[:1])

    look()
    assert looked_at >= 300
    assert len(told) <= FALSE_ALARMS * looked_at, told


EDITS: Mapping[str, Callable[[TypedCell, ast.stmt], Edit | None]] = {
    "a line before": lambda cell, at: cell.insert_before(at, "new()"),
    "a block before": lambda cell, at: cell.insert_before(at, "if new:\n    new()"),
    "a line behind": lambda cell, at: cell.insert_after(at, "new()"),
    "a block behind": lambda cell, at: cell.insert_after(at, "for a in new():\n    new(a)"),
    "nothing": lambda cell, at: cell.remove(at),
    "an import": lambda cell, _at: cell.add_import("import gc"),
}


@pytest.mark.parametrize("name", CELLS)
@ways_of_each
@given(data=st.data(), what=st.sampled_from(sorted(EDITS)))
def test_a_statement_is_edited_anywhere_in_a_cell(
    name: str, data: st.DataObject, what: str
) -> None:
    text = data.draw(varied(CELLS[name]))
    cell = TypedCell(text)
    mine = [one for one in cell.nodes if isinstance(one, ast.stmt) and not is_ipythons(cell, one)]
    if what == "nothing":
        mine = [one for one in mine if is_plain(cell.text_of(one)) and cell.tree.body != [one]]
    if not mine:
        return
    edit = EDITS[what](cell, data.draw(st.sampled_from(mine)))
    if edit is not None:
        assert_keeps(text, edited(text, [edit]))


def is_plain(text: str) -> bool:
    return "#" not in text and not magics(text)


def is_ipythons(cell: TypedCell, statement: ast.stmt) -> bool:
    written = cell.text_of(statement)
    return written == "%tim" or (isinstance(statement, ast.Pass) and written != "pass")


@pytest.mark.parametrize("name", CELLS)
@ways_of_each
@given(data=st.data())
def test_an_argument_is_given_anywhere_in_a_cell(name: str, data: st.DataObject) -> None:
    text = data.draw(varied(CELLS[name]))
    cell = TypedCell(text)
    if not cell.calls:
        return
    call = data.draw(st.sampled_from(cell.calls))
    given_one = cell.set_keyword(call, "new", "f(1)")
    if given_one is not None:
        changed = edited(text, [given_one])
        assert_keeps(text, changed)
        assert arguments(parse_typed(changed)) == arguments(cell.tree) + Counter(["new"])


def arguments(tree: ast.AST) -> Counter[str | None]:
    return Counter(one.arg for one in ast.walk(tree) if isinstance(one, ast.keyword))
