"""Which batch fits: as text, as HTML, and on a slider that needs no kernel."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from chromium import running_chromium
from front_end import all_hostile, opened_widget
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab import Lab, SavedWidget, opened_notebook, reopened_notebook, run_cell, running_lab
from pages import CLUTTER, CONTRASTS, PAGES, Tags, assert_harmless
from samples import (
    HOSTILE,
    any_forecast,
    hostile_forecast,
    planned_batch,
    planned_training,
    too_large_a_model,
    tried_training,
    unlimited_training,
)

from oommagic.devices import Card
from oommagic.forecasts import Limit, Rows, fit_of, largest, planned, rows_of
from oommagic.report import BatchTrial, Forecast, PlannedBatch
from oommagic.show.characters import width
from oommagic.show.plan_html import plan_html
from oommagic.show.plan_state import limits_of
from oommagic.show.plan_text import plan_text
from oommagic.show.plan_view import reading
from oommagic.show.planner import bundle, slider
from oommagic.show.widgets import planner
from oommagic.units import GIB, MIB, format_bytes

SAMPLES = [
    planned_training,
    tried_training,
    too_large_a_model,
    unlimited_training,
    hostile_forecast,
]
CARDS = (Card("P100", 15511 * MIB, "a log"), Card("laptop-4GB", 2156 * MIB, "a log"))
T4 = Limit("T4", 13757 * MIB, 102)

# What planner.js makes of each size: the figures, whether they fit, and the sentence.
SUMS = """([plan, sizes]) => plan.limits.map((limit) => ({
  largest: widget.largest(plan.rows, limit),
  sizes: sizes.map((size) => {
    const row = widget.planned(plan.rows, size);
    if (!row) return null;
    return [row, widget.fitOf(row, limit, plan.trials),
      widget.reading(row, limit, plan.ran, plan.trials)];
  }),
}))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Share one Chromium among the tests of this file."""
    with running_chromium() as started:
        yield started


@pytest.fixture(scope="module")
def blank(browser: Any) -> Any:
    """Share one page in which the widget's module is loaded."""
    return shown(browser, planned_training())


def shown(browser: Any, forecast: Forecast, across: int = 1200, style: str = "") -> Any:
    """Show a forecast's slider in a page as a front end would."""
    return opened_widget(browser, planner(forecast, CARDS), ("plan", "batch"), across, style)


def verdict(page: Any) -> str:
    """Read what the slider says just now."""
    return str(page.locator(".oom-verdict").inner_text())


def drag(page: Any, start: float, end: float) -> None:
    """Drag the slider from one share of its length to another."""
    box = page.get_by_role("slider", name="batch size").bounding_box()
    height = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * start, height)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, height, steps=4)
    page.mouse.up()


# ---- Between the rows ----------------------------------------------------------------------------


def test_between_two_rows_a_size_lies_on_the_line_between_them() -> None:
    rows = (PlannedBatch(10, 90, 100, 120, {"data": 100}), PlannedBatch(20, 180, 300, 320, {}))
    assert planned(rows, 15) == PlannedBatch(15, 135, 200, 220, {"data": 50})
    assert planned(rows, 10) == rows[0]
    assert planned(rows, 9) is None
    assert planned(rows, 21) is None


def test_a_size_fits_where_the_whole_range_does() -> None:
    limit = Limit("a card", 100)
    assert fit_of(PlannedBatch(1, 80, 90, 100, {}), limit) == "fits"
    assert fit_of(PlannedBatch(1, 90, 99, 101, {}), limit) == "may not fit"
    assert fit_of(PlannedBatch(1, 101, 110, 120, {}), limit) == "does not fit"


def test_beyond_the_largest_batch_nothing_is_promised_even_if_its_sum_fits() -> None:
    row = replace(planned_batch(103), high_bytes=13700 * MIB)
    assert fit_of(row, T4) == "may not fit"
    assert "a large block may find no room in one piece" in reading(row, T4, ())


@pytest.mark.parametrize(
    ("outcome", "fit"),
    [
        ("fits", "fits"),
        ("ran out", "does not fit"),
        ("died", "may not fit"),
        ("timed out", "may not fit"),
        ("failed", "may not fit"),
    ],
)
def test_real_steps_count_for_more_than_the_prediction(outcome: Any, fit: str) -> None:
    row, trial = planned_batch(64), BatchTrial(64, T4.bytes, outcome)
    assert fit_of(row, T4) == "fits"
    assert fit_of(row, T4, (trial,)) == fit


def test_steps_on_another_device_tell_only_what_follows_from_them() -> None:
    row = planned_batch(102)
    smaller = replace(T4, bytes=T4.bytes // 2, max_batch=None)
    assert fit_of(row, smaller, (BatchTrial(102, T4.bytes, "fits"),)) == "does not fit"
    assert fit_of(row, T4, (BatchTrial(102, smaller.bytes, "ran out"),)) == "fits"
    assert fit_of(row, smaller, (BatchTrial(102, T4.bytes, "ran out"),)) == "does not fit"


def test_the_largest_batch_for_another_limit_is_the_last_whose_range_fits() -> None:
    rows = rows_of(planned_training())
    limit = Limit("P100", 15511 * MIB)
    most = largest(rows, limit)
    at, beyond = planned(rows, most), planned(rows, most + 1)
    assert at is not None
    assert beyond is not None
    assert at.high_bytes <= limit.bytes < beyond.high_bytes
    assert largest(rows, Limit("nothing", 1)) == 0
    assert largest(rows, Limit("everything", 999 * GIB)) == 512


# ---- Text ----------------------------------------------------------------------------------------


def test_the_answer_stands_in_the_first_line() -> None:
    first = plan_text(planned_training(), 80).splitlines()[0]
    assert first == "Batch 102 fits T4: 13.0 GB (12.7 to 13.4 GB) of 13.4 GB."
    proven = plan_text(tried_training(), 80).splitlines()[0]
    assert proven == f"{first} Real steps fit."


def test_a_size_that_was_not_looked_beyond_is_not_called_the_largest() -> None:
    forecast = replace(planned_training(), max_batch=512, limit_bytes=80 * GIB)
    assert "of 80.0 GB. Larger ones were not looked at." in plan_text(forecast, 120)


def test_weights_that_do_not_fit_are_named_as_the_reason() -> None:
    first = plan_text(too_large_a_model(), 120).splitlines()[0]
    assert first == ("No batch fits a tiny card (64.0 MB): the weights alone take 98.0 MB.")


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (300 * MIB, "what stays from step to step takes 404 MB"),
        (450 * MIB, "batch 1 takes 531 MB (518 to 547 MB)"),
    ],
)
def test_where_no_batch_fits_the_reason_is_told(limit: int, reason: str) -> None:
    forecast = replace(too_large_a_model(), limit_bytes=limit)
    assert reason in " ".join(plan_text(forecast, 120).split())


def test_without_a_limit_the_peak_of_each_size_is_told() -> None:
    text = plan_text(unlimited_training(), 120)
    assert text.startswith("No limit is known for CPU:0: batch 1 takes 531 MB (518 to 547 MB);")
    assert re.search(r"^ *256 +32\.1 GB +31\.3–33\.1 GB +█+▒$", text, re.MULTILINE)
    assert "fit" not in text.partition("\n\n")[2]


def test_the_table_stands_around_the_answer_with_the_limit_across_its_bars() -> None:
    lines = plan_text(planned_training(), 100).splitlines()
    rows = [line for line in lines if re.match(r"(→ | )*\d+  ", line)]
    assert [line.split()[0] for line in rows[:4]] == ["1", "25", "51", "76"]
    assert rows[4].startswith("→ 102  13.0 GB")
    assert rows[-1].endswith("does not fit")
    assert len({line.index("│") for line in rows}) == 1


def test_what_ran_and_what_was_tried_is_said() -> None:
    said = " ".join(plan_text(tried_training(), 120).split())
    assert "batches 5, 7 and 13; what other sizes take is predicted from them." in said
    assert "batch 102 on a device of 13.4 GB: fits, peak 12.9 GB, 3 real steps in 8.40 s." in said
    assert "batch 64 on a device of 13.4 GB: did not end in time, so nothing is proven." in said
    assert "• The plan is for sequences of 512 tokens, the longest in the data." in said
    assert "404 MB stay from step to step; each further sample adds about 127 MB." in said


@pytest.mark.parametrize("make", SAMPLES)
@pytest.mark.parametrize("columns", [80, 100, 120])
def test_nothing_is_wider_than_the_terminal(make: Callable[[], Forecast], columns: int) -> None:
    assert all(width(line) <= columns for line in plan_text(make(), columns).splitlines())


@settings(deadline=None, max_examples=150)
@given(forecast=any_forecast())
def test_any_forecast_has_a_text_that_fits_the_terminal(forecast: Forecast) -> None:
    # Lines are wrapped by their characters: wide ones of other scripts can stand out.
    assert all(len(line) <= 80 for line in plan_text(forecast, 80).splitlines())


# ---- HTML ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(forecast=any_forecast())
def test_any_forecast_makes_a_harmless_page(forecast: Forecast) -> None:
    assert_harmless(plan_html(forecast))


@pytest.mark.parametrize("make", SAMPLES)
def test_a_page_says_what_the_text_says(make: Callable[[], Forecast]) -> None:
    page = plan_html(make())
    assert_harmless(page)
    said = " ".join(Tags(page).text.split())
    headline = plan_text(make(), 120).partition("\n\n")[0]
    assert " ".join(headline.split()) in said
    assert not re.search(r"https?:|url\(|@import|javascript:|<script", page)


@pytest.mark.browser
@pytest.mark.parametrize("across", [400, 1200])
@pytest.mark.parametrize("make", SAMPLES)
def test_no_text_of_a_page_is_cut_or_covered(
    browser: Any, make: Callable[[], Forecast], across: int
) -> None:
    page = browser.new_page(viewport={"width": across, "height": 800})
    page.set_content(f"<!doctype html><body>{plan_html(make())}</body>")
    assert page.evaluate(CLUTTER) == []
    assert page.evaluate("window.pwned") is None


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_every_text_has_enough_contrast(browser: Any, name: str) -> None:
    ground, style = PAGES[name]
    red, green, blue = (int(ground[i : i + 2], 16) for i in (1, 3, 5))
    page = shown(browser, tried_training(), style=f"background:{ground};{style}")
    contrasts = page.evaluate(CONTRASTS, f"rgb({red}, {green}, {blue})")
    page.set_content(
        f"<!doctype html><body style='background:{ground};{style}'>{plan_html(tried_training())}"
    )
    contrasts += page.evaluate(CONTRASTS, f"rgb({red}, {green}, {blue})")
    assert len(contrasts) > 90
    assert min(contrasts) >= 4.5


# ---- The slider ----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(forecast=any_forecast())
def test_any_forecast_has_a_slider_that_can_be_saved(forecast: Forecast) -> None:
    state = planner(forecast, CARDS).get_state()["plan"]
    assert json.loads(json.dumps(state, allow_nan=False)).keys() == state.keys()


def test_there_is_a_form_for_every_front_end() -> None:
    forms = bundle(planned_training())
    assert str(forms["text/plain"]).startswith("Batch 102 fits T4")
    assert_harmless(str(forms["text/html"]))
    view = slider(planned_training(), CARDS)["application/vnd.jupyter.widget-view+json"]
    assert isinstance(view, dict)
    assert view["version_major"] == 2
    assert view["model_id"]


def any_sensible_forecast() -> st.SearchStrategy[Forecast]:
    """Draw forecasts of any figures that a device could have, in any order."""
    size = st.integers(0, 2**52)
    batch = st.integers(1, 2000)
    kinds = st.dictionaries(st.sampled_from(["weights", "activations", "data"]), size)
    row = st.builds(PlannedBatch, batch, size, size, size, kinds)
    limit_bytes = st.one_of(size, st.sampled_from([card.usable_bytes for card in CARDS]))
    outcome = st.sampled_from(["fits", "ran out", "failed", "died", "timed out"])
    trial = st.builds(BatchTrial, batch, limit_bytes, outcome, st.none() | size, batch)
    return st.builds(
        replace,
        st.just(planned_training()),
        rows=st.lists(row, min_size=1, max_size=8).map(tuple),
        ran=st.lists(batch, max_size=5).map(tuple),
        limit_bytes=limit_bytes,
        max_batch=st.none() | st.integers(0, 2000),
        trials=st.lists(trial, max_size=4).map(tuple),
    )


def sums(forecast: Forecast, sizes: list[int]) -> Any:
    """Do what SUMS does, in Python."""
    rows, trials = rows_of(forecast), forecast.trials
    return [
        {
            "largest": largest(rows, limit),
            "sizes": [_sums_at(rows, size, limit, forecast, trials) for size in sizes],
        }
        for limit in limits_of(forecast, CARDS)
    ]


def _sums_at(
    rows: Rows, size: int, limit: Limit, forecast: Forecast, trials: tuple[BatchTrial, ...]
) -> Any:
    row = planned(rows, size)
    if row is None:
        return None
    state = planner(forecast).get_state()["plan"]
    figures = {
        "batch": size,
        "low": row.low_bytes,
        "peak": row.peak_bytes,
        "high": row.high_bytes,
        "kinds": [row.kinds.get(kind["kind"], 0) for kind in state["kinds"]],
    }
    return [figures, fit_of(row, limit, trials), reading(row, limit, forecast.ran, trials)]


@pytest.mark.browser
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(forecast=any_sensible_forecast(), sizes=st.lists(st.integers(1, 2000), max_size=12))
def test_the_slider_says_of_any_size_what_python_says(
    blank: Any, forecast: Forecast, sizes: list[int]
) -> None:
    plan = planner(forecast, CARDS).get_state()["plan"]
    sizes += [row.batch for row in forecast.rows]
    assert blank.evaluate(SUMS, [plan, sizes]) == sums(forecast, sizes)


@pytest.mark.browser
@settings(deadline=None, max_examples=60)
@given(counts=st.lists(st.integers(-(2**50), 2**50), max_size=50))
def test_the_slider_says_any_number_of_bytes_as_python_does(blank: Any, counts: list[int]) -> None:
    # Powers of two and their eighths are where rounding meets ties.
    counts += [odd * 2**power // 8 for power in range(10, 45, 5) for odd in range(1, 200, 2)]
    said = blank.evaluate("(counts) => counts.map(widget.formatBytes)", counts)
    assert said == [format_bytes(count) for count in counts]


@pytest.mark.browser
def test_dragging_the_slider_says_at_once_what_fits(browser: Any) -> None:
    page = shown(browser, planned_training())
    assert verdict(page).startswith("Batch 102 fits T4: 13.0 GB (12.7 to 13.4 GB) of 13.4 GB.")
    drag(page, 0.67, 0.2)
    batch = page.evaluate("sent.at(-1).batch")
    row = planned(rows_of(planned_training()), batch)
    assert row is not None
    assert 20 < batch < 45
    assert verdict(page) == reading(row, T4, planned_training().ran)
    drag(page, 0.2, 1)
    assert verdict(page).startswith("Batch 153 does not fit T4")


@pytest.mark.browser
def test_the_keyboard_reaches_every_size_and_a_reader_hears_it(browser: Any) -> None:
    page = shown(browser, planned_training())
    slider = page.get_by_role("slider", name="batch size")
    slider.focus()
    for batch in range(103, 107):
        page.keyboard.press("ArrowRight")
        assert slider.get_attribute("aria-valuetext").startswith(f"{batch}: may not fit, 1")
    page.keyboard.press("Home")
    assert verdict(page).startswith("Batch 1 fits T4: 531 MB")
    assert slider.get_attribute("aria-valuetext") == "1: fits, 531 MB"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.browser
def test_a_typed_size_is_shown_and_one_beyond_the_plan_is_put_right(browser: Any) -> None:
    page = shown(browser, planned_training())
    field = page.get_by_role("spinbutton", name="Batch size")
    field.fill("400")
    assert verdict(page).startswith("Batch 400 does not fit T4")
    assert page.get_by_role("slider", name="batch size").input_value() == "400"
    field.fill("100000")
    field.blur()
    assert field.input_value() == "512"
    field.fill("")
    field.blur()
    assert field.input_value() == "512"
    assert page.evaluate("sent.at(-1).batch") == 512


@pytest.mark.browser
def test_a_size_that_ran_says_so_and_a_tried_one_says_what_came_of_it(browser: Any) -> None:
    page = shown(browser, tried_training())
    field = page.get_by_role("spinbutton", name="Batch size")
    field.fill("7")
    assert verdict(page).endswith("This size really ran.")
    field.fill("8")
    assert verdict(page).endswith("Predicted.")
    field.fill("110")
    assert "Tried on a device of 13.4 GB: ran out of memory." in verdict(page)


@pytest.mark.browser
def test_another_limit_can_be_chosen_and_its_largest_batch_taken(browser: Any) -> None:
    page = shown(browser, planned_training())
    page.get_by_label("Limit").select_option(label="laptop-4GB (2.11 GB)")
    assert verdict(page).startswith("Batch 102 does not fit laptop-4GB: 13.0 GB")
    page.get_by_role("button").click()
    most = largest(rows_of(planned_training()), Limit("laptop-4GB", 2156 * MIB))
    assert page.get_by_role("button").inner_text() == f"Largest that fits: {most}"
    assert verdict(page).startswith(f"Batch {most} fits laptop-4GB: ")


@pytest.mark.browser
def test_the_bar_is_as_long_as_the_peak_beside_the_limit(browser: Any) -> None:
    page = shown(browser, planned_training())
    page.emulate_media(reduced_motion="reduce")
    ends = page.evaluate(
        """() => {
          const box = (name) => document.querySelector(name).getBoundingClientRect();
          const bar = box('.oom-live-gauge .oom-stack');
          const last = [...document.querySelectorAll('.oom-live-gauge .oom-stack span')].at(-1);
          return [last.getBoundingClientRect().right, box('.oom-limit').left,
            box('.oom-range span').left, box('.oom-range span').right].map((x) => x - bar.left);
        }"""
    )
    row = planned_batch(102)
    expected = [row.peak_bytes, T4.bytes, row.low_bytes, row.high_bytes]
    scale = ends[1] / T4.bytes
    assert ends == [pytest.approx(size * scale, abs=3) for size in expected]


@pytest.mark.browser
def test_nothing_moves_by_itself_for_who_asked_for_that(browser: Any) -> None:
    page = shown(browser, planned_training())
    motion = "getComputedStyle(document.querySelector('.oom-stack span')).transitionDuration"
    assert page.evaluate(motion) == "0.08s"
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(motion) == "0s"


@pytest.mark.browser
@pytest.mark.parametrize("across", [400, 1200])
@pytest.mark.parametrize("make", SAMPLES)
def test_no_text_of_the_slider_is_cut_or_covered(
    browser: Any, make: Callable[[], Forecast], across: int
) -> None:
    page = shown(browser, make(), across)
    for batch in ("1", "102", "110", "512"):
        page.get_by_role("spinbutton", name="Batch size").fill(batch)
        assert page.evaluate(CLUTTER) == []


@pytest.mark.browser
def test_a_hostile_state_runs_nothing(browser: Any) -> None:
    page = shown(browser, hostile_forecast())
    plan = planner(hostile_forecast(), CARDS).get_state()["plan"]
    # A notebook's saved state can say anything, also what we would have spelled out or cut.
    page.evaluate("(plan) => model.change('plan', plan)", all_hostile(plan))
    page.evaluate("model.change('batch', 'many')")
    page.get_by_role("slider").focus()
    page.keyboard.press("End")
    assert HOSTILE in verdict(page)
    assert page.evaluate("window.pwned") is None
    assert page.locator("body script, img").count() == 0


@pytest.mark.browser
def test_a_plan_without_sizes_says_so_and_a_closed_slider_listens_no_more(browser: Any) -> None:
    page = shown(browser, replace(planned_training(), rows=()))
    assert page.inner_text("body") == "Nothing was predicted for resnet50."
    page.evaluate("model.change('batch', 3)")
    page.evaluate("close_widget()")
    assert page.evaluate("listeners.size") == 0


# ---- In JupyterLab -------------------------------------------------------------------------------

CELL = """\
from samples import planned_training
from oommagic.show.planner import bundle, slider
from IPython.display import publish_display_data
publish_display_data(bundle(planned_training()))
publish_display_data(slider(planned_training()))"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start one JupyterLab for the tests of this file."""
    with running_lab(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.mark.browser
def test_in_jupyterlab_the_slider_moves_and_moves_again_before_any_cell_has_run(
    browser: Any, lab: Lab
) -> None:
    lab.write("plan.ipynb", CELL)
    page = opened_notebook(browser, lab, "plan.ipynb")
    run_cell(page, 0)
    page.get_by_role("slider", name="batch size").wait_for()
    drag(page, 0.67, 1)
    assert verdict(page).startswith("Batch 153 does not fit T4")
    cells = page.locator(".jp-CodeCell").count()
    for key in ("b", "ArrowLeft", "Control+s"):
        page.keyboard.press(key)
    lab.wait_for_saved_widgets(page, "plan.ipynb")
    assert page.locator(".jp-CodeCell").count() == cells
    assert saved_batch(lab.saved("plan.ipynb")) == 152
    page.close()
    lab.end_kernels()
    reopened = reopened_notebook(browser, lab, "plan.ipynb", '[aria-label="batch size"]')
    assert verdict(reopened).startswith("Batch 152 does not fit T4")
    drag(reopened, 0.99, 0)
    assert verdict(reopened).startswith("Batch 1 fits T4: 531 MB")


@pytest.mark.browser
def test_without_any_kernel_what_the_notebook_saved_moves(browser: Any, lab: Lab) -> None:
    """JupyterLab itself shows no widget without a kernel; pages made from a notebook do."""
    widget = SavedWidget(lab.saved("plan.ipynb"), "plan")
    page = opened_widget(browser, widget, ("plan", "batch"), 1200)
    drag(page, 0.99, 0)
    assert verdict(page).startswith("Batch 1 fits T4: 531 MB")


def saved_batch(notebook: Any) -> int:
    """Read the size at which the slider stood when the notebook was saved."""
    return int(SavedWidget(notebook, "plan").get_state()["batch"])
