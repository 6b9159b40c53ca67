"""The report as a table in a terminal."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ipykernel.compiler import get_file_name
from samples import (
    HOSTILE,
    any_report,
    eight_gpus,
    empty_cell,
    failed_training,
    hostile,
    hot_loop,
    short_cell,
)

from oommagic.report import DeviceMemory, DeviceUsage, LineUsage, Outcome, Profile, Report
from oommagic.show.characters import cut, visible, width
from oommagic.show.text import render
from oommagic.units import MIB

SAMPLES = [failed_training, short_cell, hot_loop, empty_cell, eight_gpus, hostile]


def one_line(source: str) -> Report:
    """Make the report of a single line of that source."""
    line = LineUsage(1, source, hits=1, elapsed_s=1.0)
    return replace(empty_cell(), profile=Profile((line,)))


def row(text: str, number: int) -> str:
    """Find the table row of a line."""
    return next(line for line in text.splitlines() if re.match(rf"(→| )*{number} ", line))


@pytest.mark.parametrize("make", SAMPLES)
@pytest.mark.parametrize("columns", [80, 100, 120])
def test_nothing_is_wider_than_the_terminal(make: Callable[[], Report], columns: int) -> None:
    assert all(width(line) <= columns for line in render(make(), columns).splitlines())


@pytest.mark.parametrize("make", SAMPLES)
@pytest.mark.parametrize("columns", [80, 120])
def test_every_figure_stands_below_its_heading(make: Callable[[], Report], columns: int) -> None:
    lines = render(make(), columns).splitlines()
    for rule in (line for line in lines if "─┼─" in line):
        crossings = [i for i, sign in enumerate(rule) if sign == "┼"]
        table = lines[lines.index(rule) + 1 :]
        rows = table[: table.index("")]
        for line in rows:
            bars = [width(line[:i]) for i, sign in enumerate(line) if sign == "│"]
            assert bars[: len(crossings)] == crossings


def test_a_failed_cell_says_where_it_ran_out_and_how_full_it_was() -> None:
    text = render(failed_training(), 120)
    said = " ".join(text.splitlines())
    assert said.startswith(
        "Ran out of memory at line 25 after 14.2 s. Host peak 1.21 GB of 23.5 GB; CPU:0 peak "
        "190 MB of 512 MB at line 25; GPU:0 peak 7.75 GB of 7.81 GB at line 25. "
        "ResourceExhaustedError: OOM when allocating tensor with shape[256,256,128,128]"
    )
    assert row(text, 25).startswith("→ 25     1   11.4 s")
    assert "▲7.75 GB │ model.fit(" in row(text, 25)
    assert "[[more]]" not in text


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome("finished"), "Finished in 40 µs. Host peak"),
        (Outcome("failed", "ValueError", "no", 3), "Stopped by ValueError at line 3 after 40 µs."),
        (Outcome("failed", "MemoryError", "", 3), "Ran out of memory at line 3 after 40 µs."),
        (Outcome("failed", "a.InternalError", "CUDA: out of memory"), "Ran out of memory after"),
        (Outcome("interrupted", "KeyboardInterrupt", "", 2), "Interrupted at line 2 after 40 µs."),
    ],
)
def test_the_first_words_say_how_it_ended(outcome: Outcome, words: str) -> None:
    assert render(replace(empty_cell(), outcome=outcome)).startswith(words)


def test_a_line_that_did_not_run_shows_its_source_alone() -> None:
    assert re.fullmatch(r"\s+2[\s│]+# half a gigabyte", row(render(short_cell(), 100), 2))


def test_the_peak_is_marked_on_the_line_that_made_it_not_on_its_loop() -> None:
    lines = (
        LineUsage(1, "for i in range(9):", 10, 1.0, host_peak_bytes=900 * MIB),
        LineUsage(2, "    kept.append(make())", 9, 1.0, 0.1, 280 * MIB, 900 * MIB),
        LineUsage(3, "del kept", 1, 1.0, 1.0, -280 * MIB, 900 * MIB),
    )
    text = render(replace(empty_cell(), profile=Profile(lines)), 100)
    assert "▲900 MB" in row(text, 2)
    assert text.count("▲900 MB") == 1


def test_no_line_has_a_peak_that_was_there_before_the_cell() -> None:
    lines = tuple(
        LineUsage(number, "f()", 1, 1.0, devices={"GPU:0": DeviceUsage(0, peak * MIB)})
        for number, peak in ((1, 700), (2, 700), (3, 690))
    )
    report = replace(empty_cell(), profile=Profile(lines))
    held = DeviceMemory("GPU:0", 700 * MIB, 690 * MIB, 700 * MIB)
    text = render(replace(report, devices=(held,)), 100)
    assert "GPU:0 peak 700 MB.\n" in text
    assert "▲" not in text
    raised = render(replace(report, devices=(replace(held, before_bytes=9 * MIB),)), 100)
    assert "GPU:0 peak 700 MB at line 1.\n" in raised
    assert "▲700 MB" in row(raised, 1)


def test_file_pages_have_a_column_only_when_files_were_read() -> None:
    assert "file pages" in render(short_cell())
    assert "+200 MB │ b = np.memmap" in row(render(short_cell(), 100), 4)
    assert "file pages" not in render(failed_training())


def test_the_peak_of_file_pages_is_told_only_when_files_were_read() -> None:
    said = " ".join(render(short_cell(), 120).split())
    assert "File pages peak 210 MB; of mapped files and shared memory, not counted above." in said
    assert "File pages" not in render(failed_training())


def test_where_the_terminal_is_narrow_file_pages_give_way_to_the_source() -> None:
    report = failed_training()
    lines = tuple(replace(line, file_delta_bytes=20 * MIB) for line in report.profile.lines)
    read = replace(report, devices=report.devices[:1], profile=Profile(lines))
    assert "file pages" in render(read, 120)
    assert "file pages" not in render(read, 80)
    assert re.search("File pages +peak 210 MB", render(read, 80))


def test_an_error_is_told_without_what_only_tensorflow_understands() -> None:
    message = (
        "{{function_node __wrapped__Fill_device_/job:localhost/device:CPU:0}} OOM when "
        "allocating tensor with shape[3000,4000] [Op:Fill] name: "
    )
    failed = Outcome("failed", "a.ResourceExhaustedError", message, 3)
    text = render(replace(empty_cell(), outcome=failed), 120)
    assert "\nResourceExhaustedError: OOM when allocating tensor with shape[3000,4000] [Op" in text
    assert "name:" not in text


def test_children_have_a_column_only_when_they_were_measured() -> None:
    assert "children" in render(hot_loop())
    assert "children" not in render(short_cell())


def test_partial_figures_are_marked_and_explained_once() -> None:
    text = render(hot_loop(), 120)
    assert "≥8,991,203" in row(text, 3)
    assert "~2.05 s" in row(text, 3)
    assert text.count("not every run of the line was watched") == 1
    assert "ran too often" not in render(short_cell())


def test_a_function_has_its_own_table_with_its_note() -> None:
    text = render(hot_loop(), 100)
    assert "step in cell 3\nKeras traced it into a graph: its lines ran once, at tracing." in text
    assert "return i if i % 2" in text


@pytest.mark.parametrize(
    ("filename", "title"),
    [
        ("<cell>", "step"),
        ("<ipython-input-3-527061b5306c>", "step, from another cell"),
        (get_file_name("def step(i):\n    return i"), "step, from another cell"),
        ("mypkg/data.py", "step in mypkg/data.py"),
    ],
    ids=["this cell", "IPython's cell", "a kernel's cell", "a module"],
)
def test_a_function_says_where_it_stands_in_a_readers_words(filename: str, title: str) -> None:
    report = hot_loop()
    (function,) = report.profile.functions
    moved = replace(function, filename=filename)
    shown = replace(report, profile=replace(report.profile, functions=(moved,)))
    assert title in render(shown, 100).splitlines()


def test_many_devices_share_a_column_and_have_a_line_each() -> None:
    text = render(eight_gpus(), 120)
    assert "8 devices" in text
    assert "+28.0 MB  ▲16.0 GB │ model.fit(dataset)" in text
    assert "GPU:10 peak 16.0 GB of 24.0 GB at line 2 (the fullest of 8" in text
    named = re.findall(r"^(GPU:\d+) ", text, re.MULTILINE)
    assert named == [f"GPU:{i}" for i in (1, 2, 3, 4, 5, 6, 7, 8, 10)]
    assert "No line used it." in next(line for line in text.splitlines() if "GPU:1 " in line)


def test_an_empty_cell_says_so_and_has_no_table() -> None:
    text = render(empty_cell())
    assert "No line ran, so there is nothing to tell line by line." in text
    assert "│" not in text


def test_control_characters_and_turned_text_are_spelled_out() -> None:
    text = render(one_line("x = '\x1b[31m\u202e\x07' # \x85\ud800\u2028"))
    assert r"x = '␛[31m\u202e␇' # \u0085\ud800\u2028" in text


def test_a_hostile_report_prints_no_control_characters() -> None:
    text = render(hostile())
    assert HOSTILE not in text
    assert all(unicodedata.category(sign) not in {"Cc", "Cf"} for sign in text.replace("\n", ""))


def test_tabs_keep_their_columns_and_long_sources_end_in_an_ellipsis() -> None:
    assert "│     y" in render(one_line("\ty"))
    assert render(one_line("x" * 500), 80).count("x…") == 1


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("数据", 4), ("🚀", 2), ("e\u0301", 1), ("", 0)]
)
def test_wide_characters_count_for_the_columns_they_take(text: str, columns: int) -> None:
    assert width(text) == columns


@given(text=st.text(), room=st.integers(1, 60))
def test_a_cut_text_fits_and_begins_as_it_did(text: str, room: int) -> None:
    shown = visible(text)
    short = cut(shown, room)
    assert width(short) <= room
    assert short == shown or shown.startswith(short.removesuffix("…"))


@settings(deadline=None, max_examples=60)
@given(report=any_report())
def test_any_report_can_be_said(report: Report) -> None:
    assert "Host peak" in render(report, 120).replace("\n", " ")


def test_memory_that_was_read_for_several_lines_at_once_is_marked() -> None:
    report = short_cell()
    first, *rest = report.profile.lines
    shared = replace(first, host_delta_bytes=5 * MIB, is_shared=True)
    said = render(replace(report, profile=replace(report.profile, lines=(shared, *rest))))
    assert "~+5.00 MB" in said
    assert "~           memory was read for several lines at once" in said
