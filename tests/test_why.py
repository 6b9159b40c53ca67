"""A verdict, and what filled a device, in a terminal: exact, short, and figures that add up."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ipykernel.compiler import get_file_name
from samples import (
    any_composition,
    any_verdict,
    empty_cell,
    failed_training,
    hostile_composition,
    hostile_verdict,
    too_big_a_step,
    what_training_held,
)

from oommagic.report import Composition, Failure, Holding, HoldingKind, Verdict
from oommagic.show.characters import cut_before, visible, width
from oommagic.show.text import render
from oommagic.show.why_html import why_html
from oommagic.show.why_text import why_text
from oommagic.units import GIB, KIB, MIB

NOTHING = Verdict("none", "Nothing ran out; the peak was 412 MB on GPU:0 at line 3.", ("a", "b"))
FILLED = Composition("GPU:0", "peak", 0, (), "tape")


def held(*holdings: Holding) -> Composition:
    """Make a composition that adds up."""
    return replace(FILLED, total_bytes=sum(one.bytes for one in holdings), holdings=holdings)


def said(composition: Composition, columns: int = 100) -> str:
    """Say what filled a device, without a verdict's words."""
    return why_text(NOTHING, [composition], columns).removeprefix(NOTHING.sentence).strip()


def sections(composition: Composition) -> tuple[list[str], list[str]]:
    """Give the rows of the kinds and those of the holders, each with its sum as the last."""
    _, kinds, holders = said(composition).split("\n\n")
    without_rules = [
        [row for row in section.splitlines() if set(row) != {"─"}] for section in (kinds, holders)
    ]
    return without_rules[0], without_rules[1][1:]


def figures(rows: Sequence[str], unit: str) -> list[int]:
    """Read the figures of a column in tenths; what is said to be less than one counts nothing."""
    found = [re.search(rf"(<?)([-\d,.]+) {unit}(?= |$)", row) for row in rows]
    return [0 if one[1] else round(10 * float(one[2].replace(",", ""))) for one in found if one]


def test_a_verdict_says_the_cause_where_it_stands_and_what_shows_it() -> None:
    assert why_text(too_big_a_step(), columns=100).splitlines() == [
        "Why: One training step at batch size 256 needs more than the 7.81 GB that GPU:0 has:",
        "     block_0/conv2d_0 asked for 6.00 GB when 2.73 GB were in use.",
        f"     line 25: {too_big_a_step().line_source}",
        "     layer block_0/conv2d_0 · object model",
        "     This is certain:",
        "     • The first step ran out, so nothing had time to grow.",
        "     • Of what was held, 38 % were activations, which grow with the batch size.",
        "     • 5.08 GB were free, in one block.",
        "     What else was considered:",
        "     • memory that grows: no step had ended before.",
        "     • memory left behind by what ran before: 7.00 MB were in use when the line began.",
        "     • another process on the device: others hold 2.05 GB of the card, beyond that limit.",
        "     • fragmentation: all that was free was one block.",
    ]


def test_where_nothing_ran_out_there_is_one_line() -> None:
    assert why_text(NOTHING) == NOTHING.sentence


def test_a_verdict_without_evidence_still_says_how_sure_it_is() -> None:
    verdict = Verdict("unknown", "The error does not say why.", confidence="possible")
    assert why_text(verdict).splitlines() == [
        "Why: The error does not say why.",
        "     This is possible; other causes would fit, too.",
    ]


@pytest.mark.parametrize(
    ("filename", "words"),
    [
        ("mypkg/data.py", "line 12 of mypkg/data.py"),
        ("<cell>", "line 12 of the cell"),
        (get_file_name("x = 1"), "line 12 of another cell"),
        ("<ipython-input-3-527061b5306c>", "line 12 of another cell"),
        ("In [3]", "line 12 of another cell"),
        ("", "line 12"),
    ],
    ids=["a file", "the cell", "a kernel's cell", "a terminal's cell", "IPython's words", "ours"],
)
def test_a_line_is_said_with_the_file_or_the_cell_it_stands_in(filename: str, words: str) -> None:
    failure = Failure("python", "host", "", line_number=12, filename=filename)
    verdict = Verdict("host memory", "It is full.", line_number=12, failure=failure)
    assert f"     {words}\n" in why_text(verdict)
    assert "     line 9\n" in why_text(replace(verdict, line_number=9))


def test_a_report_says_the_verdict_below_its_headline_and_the_filling_below_its_lines() -> None:
    text = render(failed_training(), 100)
    places = [
        text.index(words) for words in ("by allocator", "Why: One", "│ source", "What filled")
    ]
    assert places == sorted(places)
    assert why_text(too_big_a_step(), columns=100) in text
    assert said(what_training_held()) in text
    assert "Why" not in render(empty_cell())


@pytest.mark.parametrize(
    ("change", "title"),
    [
        (
            {"moment": "peak"},
            "What filled GPU:0 at its peak of 412 MB\nFrom TensorFlow's own record",
        ),
        (
            {"moment": "recorded"},
            "What filled GPU:0 at the highest point that was recorded: 412 MB",
        ),
        ({"moment": "failure"}, "What filled GPU:0 when it ran out: 412 MB\nFrom TensorFlow's own"),
        (
            {"source": "compiled buffers"},
            "From TensorFlow's own record of every allocation, and the compiled step's buffers",
        ),
        ({"source": "names", "note": "So."}, "of 412 MB\nFrom the names in the notebook. So.\n"),
        ({"source": "names", "moment": "failure"}, "What is on GPU:0 now: 412 MB\nFrom the names"),
    ],
    ids=[
        "at its peak",
        "as recorded",
        "as it ran out",
        "compiled",
        "by names",
        "by names after it failed",
    ],
)
def test_a_filling_says_when_it_was_and_how_it_is_known(change: dict[str, str], title: str) -> None:
    composition = held(Holding("weights", 412 * MIB, "dense"))
    assert title in said(replace(composition, **change))  # type: ignore[arg-type]


def test_kinds_stand_by_size_with_rounding_and_the_unknown_last() -> None:
    kinds, _ = sections(what_training_held())
    assert [row.split("  ")[0] for row in kinds] == [
        "activations",
        "gradients",
        "workspace",
        "data",
        "weights",
        "optimizer slots",
        "loss and metrics",
        "not known",
        "the allocator's rounding",
        "in all",
    ]


def test_the_sum_is_said_to_the_byte() -> None:
    kinds, _ = sections(what_training_held())
    assert kinds[-1].endswith(f"= {what_training_held().total_bytes:,} bytes")


positive = st.integers(1, 2**45)
whole = st.lists(
    st.builds(Holding, st.sampled_from(("weights", "data", "unknown")), positive, st.text("ab")),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(holdings=whole)
def test_every_column_adds_up_to_its_sum(holdings: list[Holding]) -> None:
    for rows in sections(held(*holdings)):
        unit = re.search(r" [\d,.]+ ([KMGT]?B) ", rows[-1])
        assert unit is not None
        for column in (figures(rows, unit[1]), figures(rows, "%")):
            assert sum(column[:-1]) == column[-1]


@settings(deadline=None)
@given(holdings=whole)
def test_a_kind_of_one_holder_is_told_in_one_way(holdings: list[Holding]) -> None:
    kinds, holders = ([re.split("  +", row) for row in part] for part in sections(held(*holdings)))
    for kind, size, share, *_ in kinds:
        told = [row[2:4] for row in holders if row[1] == kind]
        if len({one.layer for one in holdings if one.kind == kind}) == 1:
            assert told in ([[size, share]], [])  # or it is among the others


def test_what_the_holdings_leave_of_the_total_is_not_known() -> None:
    composition = replace(held(Holding("weights", 300 * MIB, "dense")), total_bytes=400 * MIB)
    kinds, holders = sections(composition)
    assert re.fullmatch(r"not known +100 MB +25 %  █+▌", kinds[1])
    assert re.fullmatch(r"not known +100 MB +25 %", holders[1])


def test_one_holder_has_one_row_for_each_kind() -> None:
    first = Holding("weights", 5 * MIB, "dense", shape=(2, 3), dtype="float32")
    larger = replace(first, bytes=7 * MIB, shape=(4, 5), count=2)
    slots = replace(first, kind="optimizer slots")
    _, holders = sections(held(first, larger, slots))
    assert re.fullmatch(r"dense +weights +12\.0 MB +71 % +3  largest: 4×5 float32", holders[0])
    assert re.fullmatch(r"dense +optimizer slots +5\.0 MB +29 % +1  2×3 float32", holders[1])
    assert len(holders) == 3


@pytest.mark.parametrize(
    ("holding", "name"),
    [
        (Holding("weights", MIB, "dense", "ReadVariableOp", "model"), "dense of model "),
        (Holding("tensors", MIB, owner="losses"), "losses "),
        (Holding("workspace", MIB, op="Conv2D"), "Conv2D "),
        (Holding("tensors", MIB), "no name in the notebook "),
        (Holding("unknown", MIB, "dense", "xla_run"), "not known "),
        (Holding("rounding", MIB, "dense"), "the allocator's rounding "),
    ],
    ids=["a layer of a model", "a name", "an op", "nothing", "unknown", "rounding"],
)
def test_a_holder_has_the_best_name_there_is(holding: Holding, name: str) -> None:
    _, holders = sections(held(holding))
    assert holders[0].startswith(name)


@pytest.mark.parametrize(("count", "rows"), [(13, 14), (14, 14), (400, 14)])
def test_a_dozen_holders_stand_alone_and_the_others_together(count: int, rows: int) -> None:
    _, holders = sections(held(*(Holding("tensors", MIB, owner=f"t{i}") for i in range(count))))
    assert len(holders) == rows
    assert sum("more" in row for row in holders) == (count > 13)


@pytest.mark.parametrize(
    ("size", "words"),
    [(7 * GIB, "7,168 MB"), (100 * MIB, "100 MB"), (99 * MIB, "99.0 MB"), (5 * KIB, "5,120 B")],
)
def test_figures_have_at_least_three_digits_in_their_sum(size: int, words: str) -> None:
    kinds, _ = sections(held(Holding("data", size)))
    assert re.search(rf" {words} ", kinds[-1])


def test_a_device_that_held_nothing_is_passed_over() -> None:
    assert why_text(NOTHING, [FILLED]) == NOTHING.sentence


def test_holders_stand_by_the_size_that_is_said_of_them() -> None:
    sizes: dict[HoldingKind, tuple[float, ...]]
    sizes = {"activations": (7.5, 1.8), "gradients": (7.5, 5.2), "data": (80.0,)}
    holdings = [
        Holding(kind, int(size * MIB), layer=f"{kind}_{size}", count=1)
        for kind, of_kind in sizes.items()
        for size in of_kind
    ]
    _, rows = sections(held(*holdings))
    said_of_them = figures(rows[:-1], "MB")
    assert said_of_them == sorted(said_of_them, reverse=True)


def test_what_stands_between_backticks_is_code_in_a_page_and_stays_as_it_is_in_text() -> None:
    verdict = Verdict("growth", "It grows: `kept<i>` keeps `it.", ("`a`", "plain"))
    page = why_html(verdict)
    assert "It grows: <code class='oom-code'>kept&lt;i&gt;</code> keeps `it." in page
    assert "<li><code class='oom-code'>a</code></li><li>plain</li>" in page
    assert "It grows: `kept<i>` keeps `it." in why_text(verdict)


def test_a_long_layer_loses_its_beginning() -> None:
    name = "/".join(f"block_{i}" for i in range(40)) + "/query"
    _, holders = sections(held(Holding("weights", MIB, name, shape=(4,), dtype="float32")))
    assert re.match(r"…[\w/]+/query  weights ", holders[0])


@given(text=st.text(), room=st.integers(1, 60))
def test_a_text_cut_before_fits_and_ends_as_it_did(text: str, room: int) -> None:
    short = cut_before(visible(text), room)
    assert width(short) <= room
    assert visible(text).endswith(short.removeprefix("…"))


@pytest.mark.parametrize("columns", [80, 100, 120])
@pytest.mark.parametrize(
    ("verdict", "composition"),
    [(too_big_a_step, what_training_held), (hostile_verdict, hostile_composition)],
    ids=["a training", "hostile"],
)
def test_no_line_is_wider_than_the_terminal(
    verdict: Callable[[], Verdict], composition: Callable[[], Composition], columns: int
) -> None:
    text = why_text(verdict(), [composition()], columns)
    assert max(map(width, text.splitlines())) <= columns


@settings(deadline=None, max_examples=60)
@given(verdict=any_verdict(), compositions=st.lists(any_composition(), max_size=3))
def test_any_verdict_can_be_said(verdict: Verdict, compositions: list[Composition]) -> None:
    text = why_text(verdict, compositions)
    assert len(re.findall("What (?:filled|is on)", text)) >= sum(
        one.total_bytes > 0 for one in compositions
    )
