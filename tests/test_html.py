"""The report as a piece of HTML, right and harmless in any notebook."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chromium import running_chromium
from hypothesis import given, settings
from pages import CONTRASTS, PAGES, Tags, assert_harmless
from samples import (
    any_report,
    eight_gpus,
    empty_cell,
    failed_training,
    hostile,
    hostile_composition,
    hostile_verdict,
    hot_loop,
    short_cell,
    too_big_a_step,
    what_training_held,
)

from oommagic.report import Report, Verdict
from oommagic.show.html import render
from oommagic.show.why_html import why_html

SAMPLES = [failed_training, short_cell, hot_loop, empty_cell, eight_gpus, hostile]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Share one Chromium among the tests of this file."""
    with running_chromium() as started:
        yield started


def opened(browser: Any, report: Report, ground: str = "#ffffff", style: str = "") -> Any:
    """Show a report in a page of that ground, its folded facts unfolded."""
    page = browser.new_page(viewport={"width": 900, "height": 800})
    page.set_content(
        f"<!doctype html><html><body style='background:{ground};{style}'>"
        f"{render(report).replace('<details>', '<details open>')}</body></html>"
    )
    return page


@pytest.mark.parametrize("make", SAMPLES)
def test_a_page_has_only_harmless_tags(make: Callable[[], Report]) -> None:
    assert_harmless(render(make()))


@settings(deadline=None, max_examples=60)
@given(report=any_report())
def test_any_report_makes_a_harmless_page(report: Report) -> None:
    assert_harmless(render(report))


def test_bars_are_as_long_in_a_notebook_that_jupyterlab_does_not_trust() -> None:
    # Of a style it keeps lengths and shares, and no name of our own.
    shares = re.findall(r"oom-bar [^>]*style='([^']*)'", render(failed_training()))
    assert shares
    assert all(re.fullmatch(r"background-size:[\d.]+% 17px", share) for share in shares)


def test_a_page_fetches_nothing_and_runs_nothing() -> None:
    page = render(failed_training())
    assert not re.search(r"https?:|url\(|@import|javascript:|<script", page)


@pytest.mark.parametrize("make", SAMPLES)
def test_a_page_can_be_sent_as_utf_8(make: Callable[[], Report]) -> None:
    assert render(make()).encode()


def test_a_page_says_what_the_text_says() -> None:
    said = Tags(render(failed_training())).text
    assert "Ran out of memory at line 25 after 14.2 s." in said
    assert "▲7.75\N{NO-BREAK SPACE}GB" in said
    assert "the highest peak of its column" in said
    assert "TensorFlow was imported on line 1" in said


def test_a_verdict_stands_under_the_headline_its_rivals_folded() -> None:
    page = render(failed_training())
    places = [page.index(words) for words in ("oom-headline'", "<p class='oom-why'", "<table")]
    assert places == sorted(places)
    said = Tags(page).text
    assert "This is certain:The first step ran out" in said.replace("\n", "")
    assert "<summary>What else was considered</summary>\n<ul class='oom-notes'><li>memory" in page


def test_where_nothing_ran_out_a_page_has_one_quiet_line() -> None:
    page = why_html(Verdict("none", "Nothing ran out.", ("evidence",)))
    assert "<p>Nothing ran out.</p>" in page
    assert "oom-failure'" not in page
    assert "evidence" not in page


def test_kinds_are_named_with_figures_beside_their_bar() -> None:
    said = Tags(why_html(too_big_a_step(), [what_training_held()])).text
    assert "activations 1,067 MB (38 %)" in said.replace("\N{NO-BREAK SPACE}", " ")
    assert "in all 2,798 MB = 2,933,903,786 bytes" in said.replace("\N{NO-BREAK SPACE}", " ")


def test_a_verdict_by_itself_is_harmless_and_looks_as_in_a_report() -> None:
    assert_harmless(why_html(hostile_verdict(), [hostile_composition()]))
    alone = why_html(too_big_a_step(), [what_training_held()])
    _, _, body = alone.partition("<div class='oom-failure'>\n")
    assert "oom-why" in body
    assert "oom-stack" in body
    assert set(body.splitlines()) <= set(render(failed_training()).splitlines())


def test_table_heads_have_a_scope() -> None:
    heads = [attributes for tag, attributes in Tags(render(hot_loop())).tags if tag == "th"]
    assert {head["scope"] for head in heads} == {"col", "colgroup", "row"}


def test_moments_of_the_timeline_name_the_line_that_ran() -> None:
    titles = re.findall(r"<title>(.*?)</title>", render(failed_training()))
    assert titles[0] == "line 1: import keras"
    assert titles[-1].startswith("line 25: model.fit(")
    assert "outside the cell&#x27;s lines" in titles


def test_lanes_that_never_moved_are_named_in_one_line() -> None:
    said = Tags(render(failed_training())).text
    assert "Nothing to show over time for disk write, network received: always 0." in said


@pytest.mark.browser
@pytest.mark.parametrize("make", SAMPLES)
def test_no_script_runs_and_nothing_is_fetched(browser: Any, make: Callable[[], Report]) -> None:
    requests: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.set_content(f"<!doctype html><title>mine</title>{render(make())}")
    page.wait_for_load_state("networkidle")
    assert page.evaluate("window.pwned") is None
    assert page.title() == "mine"
    assert page.locator("script, img, iframe, link").count() == 0
    assert requests == []


@pytest.mark.browser
def test_a_script_in_a_page_would_have_been_noticed(browser: Any) -> None:
    page = browser.new_page()
    page.set_content("<!doctype html><script>window.pwned=1</script>")
    assert page.evaluate("window.pwned") == 1


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("make", [failed_training, hot_loop])
def test_every_text_has_enough_contrast(
    browser: Any, name: str, make: Callable[[], Report]
) -> None:
    ground, style = PAGES[name]
    page = opened(browser, make(), ground, style)
    red, green, blue = (int(ground[i : i + 2], 16) for i in (1, 3, 5))
    contrasts = page.evaluate(CONTRASTS, f"rgb({red}, {green}, {blue})")
    assert len(contrasts) > 50
    assert min(contrasts) >= 4.5


@pytest.mark.browser
def test_lanes_keep_their_height_where_the_notebook_styles_pictures(browser: Any) -> None:
    page = opened(browser, failed_training())
    # JupyterLab's own rule for what stands in an output.
    page.add_style_tag(content="body svg { max-width: 100%; height: auto; }")
    heights = page.eval_on_selector_all(
        ".oom-plot path", "paths => paths.map((path) => path.getBoundingClientRect().height)"
    )
    assert max(heights) < 40


@pytest.mark.browser
def test_bars_are_as_long_as_their_share(browser: Any) -> None:
    page = opened(browser, failed_training())
    sizes = page.eval_on_selector_all(
        "tbody td.oom-host.oom-bar", "cells => cells.map((c) => getComputedStyle(c).backgroundSize)"
    )
    assert sizes[-1].startswith("100% ")
    assert sizes[0].startswith(f"{100 * (930 - 612) / (1240 - 612):.1f}% ")


@pytest.mark.browser
def test_stretches_of_the_bar_are_as_long_as_their_share(browser: Any) -> None:
    page = opened(browser, failed_training())
    sizes = page.eval_on_selector_all(
        ".oom-stack span", "all => all.map((s) => s.offsetWidth / s.parentElement.offsetWidth)"
    )
    held = what_training_held()
    activations = sum(one.bytes for one in held.holdings if one.kind == "activations")
    assert sizes[0] == pytest.approx(activations / held.total_bytes, abs=0.002)
    assert sum(sizes) == pytest.approx(1, abs=0.01)


@pytest.mark.browser
@pytest.mark.parametrize("make", SAMPLES)
def test_a_page_is_no_wider_than_its_notebook(browser: Any, make: Callable[[], Report]) -> None:
    page = opened(browser, make())
    assert page.evaluate("document.documentElement.scrollWidth") <= 900
