"""The report as a piece of HTML, right and harmless in any notebook."""

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from chromium import running_chromium
from hypothesis import given, settings
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

# What JupyterLab, VS Code and a bare page give a cell's output, light and dark.
PAGES = {
    "bare, light": ("#ffffff", ""),
    "JupyterLab light": ("#ffffff", "--jp-content-font-color1: rgba(0, 0, 0, 0.87)"),
    "JupyterLab dark": ("#111111", "--jp-content-font-color1: rgba(255, 255, 255, 1)"),
    "VS Code light": ("#ffffff", "--vscode-editor-foreground: #3b3b3b"),
    "VS Code dark": ("#1f1f1f", "--vscode-editor-foreground: #cccccc"),
    "Colab dark": ("#383838", "color: #d5d5d5"),
}

# For each text of the page: its contrast with the darkest or lightest ground that it stands on,
# bars and what the style sheet writes included.
CONTRASTS = """(ground) => {
  const parse = (text) => {
    const [r, g, b, a] = text.match(/[\\d.]+%?/g);
    return [+r, +g, +b, a === undefined ? 1 : a.endsWith('%') ? parseFloat(a) / 100 : +a];
  };
  const over = (top, below) => below.map((c, i) => top[3] * top[i] + (1 - top[3]) * c);
  const light = (c) => {
    const [r, g, b] = c.map((v) => v / 255).map(
      (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const colours = (element) => {
    const style = getComputedStyle(element);
    const bars = style.backgroundImage.match(/rgba?\\([^)]*\\)/g) ?? [];
    return new Set([style.backgroundColor, ...bars]);
  };
  const page = parse(ground).slice(0, 3);
  const texts = [...document.querySelectorAll('.oommagic *')].filter((element) =>
    [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
    && element.tagName !== 'STYLE' && element.tagName !== 'title'
    || !['none', '""'].includes(getComputedStyle(element, '::after').content));
  return texts.map((element) => {
    let grounds = [page];
    const chain = [];
    for (let e = element; e; e = e.parentElement) chain.unshift(e);
    for (const e of chain) for (const colour of colours(e))
      grounds.push(over(parse(colour), grounds.at(-1)));
    const style = getComputedStyle(element);
    const opacity = chain.reduce((all, e) => all * getComputedStyle(e).opacity, 1);
    const ink = parse(style.color);
    ink[3] *= opacity;
    return Math.min(...grounds.map((below) => ratio(over(ink, below), below)));
  });
}"""


class Tags(HTMLParser):
    """All tags of a page with their attributes, its text, and whether each tag is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


HARMLESS_TAGS = {
    *("div", "span", "p", "style", "details", "summary", "ul", "li", "dl", "dt", "dd"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "svg", "path", "rect", "title"),
}


def assert_harmless(page: str) -> None:
    """Check that a page has only tags and attributes of ours, each tag closed."""
    parsed = Tags(page)
    assert not parsed.open
    assert {tag for tag, _ in parsed.tags} <= HARMLESS_TAGS
    names = {name for _, attributes in parsed.tags for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in {"href", "src"}]


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
