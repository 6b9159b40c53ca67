"""The moving pictures of a report: the widget in a browser, and the figure to save."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from chromium import running_chromium
from front_end import all_hostile, opened_widget
from hypothesis import given, settings
from IPython.core.formatters import DisplayFormatter
from samples import HOSTILE, any_report, empty_cell, failed_training, hostile, hot_loop

import oommagic
from oommagic.report import Lane, Report, Timeline
from oommagic.show.lanes import draw
from oommagic.show.widgets import timeline


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Share one Chromium among the tests of this file."""
    with running_chromium() as started:
        yield started


def shown(browser: Any, report: Report) -> Any:
    """Show a report's widget in a page as a front end would."""
    return opened_widget(browser, timeline(report), ("drawing",), width=900)


def test_the_widget_carries_all_that_it_shows() -> None:
    drawing = timeline(failed_training()).get_state()["drawing"]
    assert [lane["name"] for lane in drawing["lanes"]][:3] == ["host", "CPU:0", "GPU:0"]
    assert drawing["words"][0] == "line 1: import keras"
    assert drawing["duration"] == "14.2 s"
    assert "NaN" not in json.dumps(drawing)


@settings(deadline=None, max_examples=60)
@given(report=any_report())
def test_any_report_has_a_widget_that_can_be_saved(report: Report) -> None:
    state = timeline(report).get_state()["drawing"]
    assert json.loads(json.dumps(state, allow_nan=False)).keys() == state.keys()


def test_where_no_widget_is_shown_it_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    words = "The run over time: a notebook shows it once it is trusted, or the cell has run."
    shown, _ = DisplayFormatter().format(timeline(failed_training()))
    # A widget of ipywidgets 7 shows itself: without a shell it prints what it would send.
    assert shown.get("text/plain", "") == words or f"'text/plain': {words!r}" in (
        capsys.readouterr().out
    )


def test_a_lane_whose_only_reading_is_past_the_last_moment_is_left_out() -> None:
    lanes = (
        Lane("host", "bytes", (1.0, 2.0), (1.0, 2.0)),
        Lane("GPU 0 power", "watts", (None, None), (None, None, 1.0)),
    )
    report = replace(hot_loop(), timeline=Timeline((0.0, 1.0), (0, 0), lanes))
    assert [lane["name"] for lane in timeline(report).get_state()["drawing"]["lanes"]] == ["host"]


def test_a_long_run_keeps_its_shape_and_its_highest_moment() -> None:
    count = 20_000
    values = tuple(float(i == 12_345) * 2**30 for i in range(count))
    long_run = Timeline(
        tuple(float(i + 1) for i in range(count)),
        (1,) * count,
        (Lane("GPU:0", "bytes", values, values),),
    )
    drawing = timeline(replace(failed_training(), timeline=long_run)).get_state()["drawing"]
    (lane,) = drawing["lanes"]
    assert len(lane["highs"]) == 480
    assert max(lane["highs"]) == 1
    assert lane["ceiling"] == "1.00 GB"
    assert drawing["moments"][lane["highs"].index(1)] == pytest.approx(12_346 / count, abs=0.003)


def test_a_line_runs_from_its_first_moment_to_the_next_lines_first() -> None:
    values = (1.0, 2.0, 3.0, 4.0)
    lane = Lane("host", "bytes", values, values)
    report = replace(
        failed_training(),
        elapsed_s=10.0,
        timeline=Timeline((0.0, 2.0, 4.0, 6.0), (1, 1, 5, 25), (lane,)),
    )
    drawn = draw(report)
    assert drawn is not None
    assert [(part.start, part.end, part.line_number) for part in drawn.stretches] == [
        (0.0, 0.4, 1),
        (0.4, 0.6, 5),
        (0.6, 1.0, 25),
    ]


@pytest.mark.browser
def test_pointing_at_a_moment_says_what_stood_and_ran_then(browser: Any) -> None:
    page = shown(browser, failed_training())
    box = page.get_by_role("slider").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + 5)
    reading = page.locator(".oom-reading").inner_text()
    assert re.fullmatch(r"1\.4\d s  line 1: import keras", reading)
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 5)
    assert "line 25: model.fit(" in page.locator(".oom-reading").inner_text()
    assert page.locator(".oom-value").first.inner_text().endswith("GB")


@pytest.mark.browser
def test_lanes_have_room_on_a_narrow_page(browser: Any) -> None:
    page = opened_widget(browser, timeline(failed_training()), ("drawing",), 240)
    widths = page.locator(".oom-plot").evaluate_all("(all) => all.map((one) => one.clientWidth)")
    assert min(widths) > 100
    assert page.locator(".oom-lane").first.is_visible()


@pytest.mark.browser
def test_the_keyboard_moves_the_cursor_and_a_reader_hears_it(browser: Any) -> None:
    page = shown(browser, failed_training())
    slider = page.get_by_role("slider", name="moment of the run")
    slider.focus()
    page.keyboard.press("End")
    assert slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("PageDown")
    assert slider.get_attribute("aria-valuenow") == str(
        int(slider.get_attribute("aria-valuemax")) - 11
    )
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert slider.get_attribute("aria-valuenow") == "0"
    assert "line 1: import keras, host 61" in slider.get_attribute("aria-valuetext")


@pytest.mark.browser
@pytest.mark.parametrize("make", [empty_cell, hot_loop])
def test_a_run_without_readings_says_so(browser: Any, make: Callable[[], Report]) -> None:
    page = shown(browser, make())
    assert page.inner_text("body") == "The run was too short for readings over time."


@pytest.mark.browser
def test_a_hostile_state_runs_nothing(browser: Any) -> None:
    page = shown(browser, hostile())
    drawing = timeline(hostile()).get_state()["drawing"]
    # A notebook's saved state can say anything, also what we would have spelled out or cut.
    page.evaluate("(drawing) => model.change('drawing', drawing)", all_hostile(drawing))
    page.get_by_role("slider").focus()
    page.keyboard.press("End")
    assert page.inner_text(".oom-lane") == HOSTILE
    assert HOSTILE in page.inner_text(".oom-reading")
    assert page.evaluate("window.pwned") is None
    assert page.locator("body script, img").count() == 0


@pytest.mark.browser
def test_a_gap_in_the_readings_is_a_gap_in_the_line(browser: Any) -> None:
    values = (1.0, 2.0, *(None,) * 20, 3.0, 4.0)
    times = tuple(float(i) for i in range(24))
    gapped = Timeline(times, (1,) * 24, (Lane("x", "watts", values, values),))
    page = shown(browser, replace(failed_training(), timeline=gapped))
    paths = page.eval_on_selector_all("path", "paths => paths.map((p) => p.getAttribute('d'))")
    assert [path.count("M") for path in paths] == [2, 2]
    page.keyboard.press("Tab")
    page.keyboard.press("PageUp")
    assert page.locator(".oom-value").inner_text() == "no reading"
    page.keyboard.press("End")
    assert page.locator(".oom-value").inner_text() == "4 W"


def test_a_figure_read_less_often_than_the_others_is_one_unbroken_line() -> None:
    values = tuple(50.0 if i % 4 == 0 else None for i in range(24))
    times = tuple(float(i) for i in range(24))
    sparse = Timeline(times, (1,) * 24, (Lane("CPU", "percent", values, values),))
    drawing = timeline(replace(failed_training(), timeline=sparse)).get_state()["drawing"]
    assert set(drawing["lanes"][0]["highs"]) == {0.5}


@pytest.mark.browser
def test_a_changed_drawing_is_drawn_and_a_closed_widget_listens_no_more(browser: Any) -> None:
    page = shown(browser, failed_training())
    page.evaluate("model.change('drawing', {})")
    assert "too short" in page.inner_text("body")
    page.evaluate("close_widget()")
    assert page.evaluate("listeners.size") == 0


def test_the_figure_can_be_saved_in_any_format() -> None:
    drawn = oommagic.figure(failed_training())
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        file = BytesIO()
        drawn.savefig(file, format=kind)
        assert file.getvalue().startswith(start)


def test_the_figure_has_an_axis_for_each_lane_that_moved() -> None:
    drawn = oommagic.figure(failed_training())
    assert [axes.get_title("left") for axes in drawn.axes] == [
        "host",
        "CPU:0",
        "GPU:0",
        "CPU",
        "disk read",
        "GPU 0 busy",
        "GPU 0 temperature",
    ]


@pytest.mark.parametrize("make", [hostile, empty_cell])
def test_a_figure_of_any_names_or_of_nothing_can_be_saved(make: Callable[[], Report]) -> None:
    file = BytesIO()
    report = make()
    lanes = tuple(replace(lane, name="$\\frac{") for lane in report.timeline.lanes)
    oommagic.figure(replace(report, timeline=replace(report.timeline, lanes=lanes))).savefig(file)
    assert file.getvalue()


def test_a_notebook_shows_a_figure_though_nobody_chose_a_backend() -> None:
    data, _ = DisplayFormatter().format(oommagic.figure(failed_training()))
    assert data["image/png"].startswith(b"\x89PNG")


def test_a_figure_leaves_pyplot_and_the_backend_alone() -> None:
    program = (
        "import sys; from samples import failed_training; "
        "from oommagic.show import figures, html, text; "
        "assert 'matplotlib' not in sys.modules and 'numpy' not in sys.modules; "
        "text.render(failed_training()); html.render(failed_training()); "
        "assert 'matplotlib' not in sys.modules and 'anywidget' not in sys.modules; "
        "figures.figure(failed_training()).savefig('/dev/null', format='png'); "
        "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True False\n"
