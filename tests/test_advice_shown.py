"""Suggestions in reports: as text, and as HTML that runs nothing."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from advised import CELL, in_vain, measured, rescued, suggested
from chromium import running_chromium
from hypothesis import given, settings
from pages import CLUTTER, CONTRASTS, PAGES, Tags, assert_harmless
from samples import (
    HOSTILE,
    any_findings,
    any_trials,
    failed_training,
    hostile,
    hostile_finding,
    hostile_trial,
    too_big_a_step,
)

from oommagic.report import Finding, Report, Trial
from oommagic.show import html, text
from oommagic.show.advice_html import advice_parts
from oommagic.show.advice_text import advice_lines
from oommagic.show.advice_view import AdviceView, Suggestion, advice_view
from oommagic.show.characters import width
from oommagic.show.why_html import why_html
from oommagic.show.why_text import why_text


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Share one Chromium among the tests of this file."""
    with running_chromium() as started:
        yield started


def advised(*trials: Trial) -> Report:
    """Make the report of a training with suggestions."""
    return replace(failed_training(), source=CELL, findings=suggested(), trials=trials)


def said(*trials: Trial) -> AdviceView:
    """Put the suggestions into words."""
    view = advice_view(suggested(), trials)
    assert view is not None
    return view


def first(finding: Finding, *trials: Trial) -> Suggestion:
    """Put one suggestion into words."""
    view = advice_view([finding], trials)
    assert view is not None
    return view.front[0]


# ---- Words ---------------------------------------------------------------------------------------


def test_a_predicted_saving_says_so_with_its_range_and_place() -> None:
    assert said().front[1].terms[0] == "saves about 760 MB (500 to 900 MB) of GPU:0, predicted"
    assert said().front[3].terms[0] == (
        "saves about 601 MB (600 to 602 MB) of host memory, predicted"
    )


def test_a_measured_saving_shows_both_figures_and_what_was_predicted() -> None:
    measured_one = said(measured()).front[1]
    assert measured_one.terms[0] == "GPU:0 1.90 GB → 1.12 GB (799 MB less), measured in 4 steps"
    assert measured_one.trial is not None
    assert "Predicted was a saving of about 760 MB (500 to 900 MB)." in measured_one.trial.notes
    figures = {one.name: (one.before, one.after) for one in measured_one.trial.figures}
    assert figures["time per step"] == ("120 ms", "131 ms")
    assert figures["loss"] == ("0.6931", "0.6935")
    assert figures["host peak"] == ("812 MB", "790 MB")


def test_what_saves_host_memory_shows_the_hosts_figures() -> None:
    finding = replace(suggested()[3], instead_of=None)
    assert first(finding, measured(1)).terms[0].startswith("host 812 MB → 790 MB (22.0 MB less)")


def test_what_takes_more_than_before_says_so() -> None:
    turned = replace(measured(), before=measured().after, after=measured().before)
    assert "1.12 GB → 1.90 GB (799 MB more)" in said(turned).front[1].terms[0]
    same = replace(measured(), after=measured().before)
    assert "1.90 GB → 1.90 GB (no less)" in said(same).front[1].terms[0]


def test_the_last_trial_of_a_suggestion_counts() -> None:
    words = "GPU:0 ran out of memory both times, measured"
    assert said(measured(), in_vain()).front[1].terms[0] == words


def test_a_cell_that_should_run_and_one_that_did_are_told_apart() -> None:
    batch = suggested()[0]
    assert batch.runs_then
    assert first(batch).mark == "should make this cell run"
    assert first(batch, measured(1)).mark == "should make this cell run"
    assert first(batch, rescued(1)).mark == "makes this cell run"
    assert first(batch, in_vain(1)).mark == ""
    assert first(replace(batch, is_guess=True)).mark == "may make this cell run"
    assert first(replace(batch, runs_then=False)).mark == ""


def test_a_trial_that_ran_out_says_where_and_promises_no_difference() -> None:
    trial = said(rescued()).front[0].trial
    assert trial is not None
    assert trial.headline == "GPU:0 ran out of memory → 1.12 GB, measured in 4 steps"
    assert trial.figures[0].before == "ran out of memory"
    assert "As it is: OOM when allocating 300 MB." in trial.notes


def test_where_a_trial_ran_out_is_not_told_in_tensorflows_words() -> None:
    words = "OOM when allocating tensor with shape[512,10] and type float"
    place = "on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
    trial = replace(rescued(), before=replace(rescued().before, message=f"{words} {place}"))
    shown = said(trial).front[0].trial
    assert shown is not None
    assert f"As it is: {words}" in shown.notes


def test_safety_is_said_in_words_and_how_results_change() -> None:
    batch, half, _, to_file, _ = said().front
    assert "changes results" in batch.terms
    assert half.changes == "Results change: Activations keep 3 digits; weights stay float32."
    assert "same results" in to_file.terms
    assert "cost: reading the file in each epoch" in to_file.terms


def test_a_hint_has_no_change_to_copy_and_promises_nothing() -> None:
    hint = said().behind[0]
    assert hint.terms == ("a hint", "line 5")
    assert not hint.source
    assert not hint.diff


def test_a_change_without_a_known_saving_says_so() -> None:
    assert said().front[4].terms[0] == "no saving predicted"


def test_one_of_two_that_change_the_same_lines_names_the_other() -> None:
    assert said().front[2].instead == "Instead of suggestion 1: both change the same lines."


def test_no_more_than_five_stand_in_front() -> None:
    assert [one.number for one in said().front] == [1, 2, 3, 4, 5]
    assert [one.number for one in said().behind] == [6, 7, 8]
    assert said().more == "3 more suggestions"
    view = advice_view(suggested()[:6])
    assert view is not None
    assert view.more == "1 more suggestion"


def test_trials_of_several_suggestions_stand_by_themselves() -> None:
    view = said(replace(measured(), numbers=(1, 2, 4)))
    assert all(one.trial is None for one in view.front)
    (together,) = view.together
    assert together.headline.startswith("Suggestions 1, 2 and 4 together: GPU:0 1.90 GB → 1.12 GB")


def test_a_diff_says_where_it_stands_and_keeps_its_signs() -> None:
    lines = said().front[3].diff
    assert (lines[0].sign, lines[0].text) == ("@", "line 3")
    assert [line.sign for line in lines] == ["@", " ", " ", "-", "+", " "]
    assert lines[4].text.endswith('.cache("/tmp/cache").batch(BATCH)')


def test_what_is_copied_is_the_cell_as_it_would_be() -> None:
    fix = suggested()[0].fix
    assert fix is not None
    assert said().front[0].source == fix.source


# ---- In reports ----------------------------------------------------------------------------------


def test_suggestions_stand_right_below_the_verdict() -> None:
    page = html.render(advised())
    places = [page.index(words) for words in ("<p class='oom-why'", "oom-advice'", "<table")]
    assert places == sorted(places)
    report = text.render(advised(), 100)
    assert report.index("Why:") < report.index("1. Batches of 96") < report.index("│ source")


def test_a_report_without_suggestions_says_nothing_of_them() -> None:
    assert "uggestion" not in text.render(failed_training())
    assert "<div class='oom-advice'" not in html.render(failed_training())


def test_the_text_shows_each_change_and_how_to_take_it() -> None:
    lines = text.render(advised(), 100).splitlines()
    assert "     - BATCH = 128" in lines
    assert "     + BATCH = 96" in lines
    assert "1. Batches of 96 instead of 128 [should make this cell run]" in lines
    assert "7. Integer labels: no saving predicted" in lines
    assert lines.index("3 more suggestions:") > lines.index("5. SGD instead of Adam")
    assert any("%oomfix 1 puts change 1 into a new cell" in line for line in lines)


def test_a_page_says_what_the_text_says_with_the_rest_folded() -> None:
    page = html.render(advised(measured(), replace(measured(), numbers=(1, 2))))
    told = Tags(page).text.replace("\N{NO-BREAK SPACE}", " ")
    for words in ("1. Batches of 96", "- BATCH = 128", "+ BATCH = 96", "(799 MB less)"):
        assert words in told
    front, _, behind = page.partition("<summary>3 more suggestions</summary>")
    assert "5. SGD instead of Adam" in front
    assert "6. Train adapters alone" in behind


def test_beside_a_panel_the_pages_suggestions_are_folded() -> None:
    folded = "<div class='oom-advice'>\n<details><summary>Suggestions, the best first</summary>"
    assert folded in html.render(advised(), beside_panel=True)
    assert folded not in html.render(advised())


def test_why_says_what_would_help() -> None:
    told = why_text(too_big_a_step(), columns=100, findings=suggested(), trials=[measured()])
    assert "\n2. Compute in half precision" in told
    page = why_html(too_big_a_step(), findings=suggested(), trials=[measured()])
    assert "2. Compute in half precision" in page
    assert_harmless(page)


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_nothing_is_wider_than_the_terminal(columns: int) -> None:
    report = advised(measured(), rescued(), replace(measured(), numbers=(1, 4)))
    assert all(width(line) <= columns for line in text.render(report, columns).splitlines())


# ---- Hostile cells -------------------------------------------------------------------------------


def test_a_hostile_suggestion_is_text_and_nothing_else() -> None:
    view = advice_view([hostile_finding()] * 6, [hostile_trial((1,)), hostile_trial((1, 2))])
    assert view is not None
    page = "".join(advice_parts(view))
    assert_harmless(page)
    assert Tags(page).text.count("</style></title><script>window.pwned=1</script>") > 40
    lines = "".join(advice_lines(view, 100))
    assert HOSTILE not in lines
    assert all(unicodedata.category(sign) not in {"Cc", "Cf"} for sign in lines)


@settings(deadline=None, max_examples=80)
@given(findings=any_findings(), trials=any_trials())
def test_any_suggestions_make_harmless_pages_and_lines(
    findings: list[Finding], trials: list[Trial]
) -> None:
    view = advice_view(findings, trials)
    if view is None:
        assert not findings
        return
    assert_harmless("".join(advice_parts(view)))
    # Lines are wrapped by their characters: wide ones of other scripts can stand out.
    assert all(min(len(line), width(line)) <= 80 for line in advice_lines(view, 80))


# ---- In a browser --------------------------------------------------------------------------------


def opened(browser: Any, page_html: str, across: int = 1000, style: str = "") -> Any:
    """Show a page with everything unfolded."""
    page = browser.new_page(viewport={"width": across, "height": 800})
    unfolded = page_html.replace("<details>", "<details open>")
    page.set_content(f"<!doctype html><body style='{style}'>{unfolded}</body>")
    return page


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_every_text_has_enough_contrast(browser: Any, name: str) -> None:
    ground, style = PAGES[name]
    red, green, blue = (int(ground[i : i + 2], 16) for i in (1, 3, 5))
    told = why_html(too_big_a_step(), findings=suggested(), trials=[rescued(), measured()])
    page = opened(browser, told, style=f"background:{ground};{style}")
    contrasts = page.evaluate(CONTRASTS, f"rgb({red}, {green}, {blue})")
    assert len(contrasts) > 90
    assert min(contrasts) >= 4.5


@pytest.mark.browser
@pytest.mark.parametrize("across", [400, 1200])
def test_no_text_is_cut_or_covered(browser: Any, across: int) -> None:
    told = why_html(too_big_a_step(), findings=suggested(), trials=[rescued(), measured()])
    assert opened(browser, told, across).evaluate(CLUTTER) == []


@pytest.mark.browser
def test_what_is_selected_of_a_diff_has_no_signs(browser: Any) -> None:
    page = opened(browser, html.render(advised()))
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.oom-diff'))")
    copied = page.evaluate("getSelection().toString()")
    assert "BATCH = 96" in copied
    assert not re.search(r"^[-+]", copied, re.MULTILINE)


@pytest.mark.browser
def test_a_hostile_report_runs_nothing(browser: Any) -> None:
    page = opened(browser, html.render(hostile()))
    assert page.evaluate("window.pwned") is None
    assert page.locator("script, img").count() == 0
