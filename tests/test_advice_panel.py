"""The panel of suggestions: read, copied and measured, in a page and in a real JupyterLab."""

import ast
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from threading import Event
from typing import Any

import pytest
from advised import measured, rescued, suggested
from chromium import running_chromium
from front_end import all_hostile, opened_widget
from hypothesis import given, settings
from kernels import PATIENCE_S, TESTS, Kernel, running_kernels
from lab import Lab, SavedWidget, opened_notebook, reopened_notebook, run_cell, running_lab
from pages import CLUTTER, CONTRASTS, PAGES
from samples import HOSTILE, any_findings, any_trials, hostile_finding, hostile_trial

from oommagic.errors import UsageError
from oommagic.report import Finding, Trial
from oommagic.show.advice_panel import panel
from oommagic.show.measuring import Measuring, Progress
from oommagic.show.widgets import advice

TRAITS = ("advice", "activity")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Share one Chromium among the tests of this file."""
    with running_chromium() as started:
        yield started


# ---- Measuring -----------------------------------------------------------------------------------


class Shown:
    """What a panel was told to show, as it came."""

    def __init__(self, measure: Callable[[int, Progress], Trial]) -> None:
        self.states: list[tuple[str, dict[str, Any]]] = []
        self.has_spoken = Event()
        self.measuring = Measuring(suggested(), (), measure, self.show)

    def show(self, name: str, value: dict[str, Any]) -> None:
        self.states.append((name, value))
        if name == "activity":
            self.has_spoken.set()

    def finish(self) -> None:
        """Wait until nothing is being measured any more."""
        for thread in threading.enumerate():
            if thread.name.startswith("oommagic measures"):
                thread.join(PATIENCE_S)

    @property
    def words(self) -> list[str]:
        """What was said while it was measured."""
        return [value["words"] for name, value in self.states if name == "activity"]

    def terms(self, number: int) -> list[str]:
        """What is said of a suggestion by now."""
        states = [value for name, value in self.states if name == "advice"]
        return list(states[-1]["front"][number - 1]["terms"])


def test_a_trial_says_how_far_it_is_and_fills_in_its_figures() -> None:
    def measure(number: int, on_progress: Progress) -> Trial:
        on_progress("the cell as it is")
        return measured(number)

    shown = Shown(measure)
    assert shown.terms(2)[0].endswith("predicted")
    shown.measuring.start(2)
    shown.finish()
    assert shown.words == ["Measuring: starting …", "Measuring: the cell as it is …", ""]
    assert shown.terms(2)[0].endswith("(799 MB less), measured in 4 steps")
    assert shown.terms(1)[0].endswith("predicted")


def test_what_cannot_be_measured_says_why() -> None:
    def measure(_number: int, _on_progress: Progress) -> Trial:
        raise UsageError("\u202ex cannot be sent.")

    shown = Shown(measure)
    shown.measuring.start(4)
    shown.finish()
    assert shown.words[-1] == r"\u202ex cannot be sent."
    assert shown.terms(4)[0].endswith("predicted")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_an_error_of_our_own_another_can_be_measured() -> None:
    def measure(number: int, _on_progress: Progress) -> Trial:
        if number == 1:
            raise ZeroDivisionError
        return measured(number)

    shown = Shown(measure)
    shown.measuring.start(1)
    shown.finish()
    assert "an error of oommagic's own" in shown.words[-1]
    shown.measuring.start(2)
    shown.finish()
    assert shown.terms(2)[0].endswith("measured in 4 steps")


def test_one_is_measured_at_a_time_in_one_panel_and_in_all() -> None:
    begun, go = Event(), Event()
    asked: list[int] = []

    def measure(number: int, _on_progress: Progress) -> Trial:
        asked.append(number)
        begun.set()
        go.wait(PATIENCE_S)
        return measured(number)

    shown, other = Shown(measure), Shown(measure)
    shown.measuring.start(1)
    assert begun.wait(PATIENCE_S)
    shown.measuring.start(2)
    for _ in range(2):
        other.has_spoken.clear()
        other.measuring.start(2)
        assert other.has_spoken.wait(PATIENCE_S)
    go.set()
    shown.finish()
    assert asked == [1]
    assert shown.words == ["Measuring: starting …", ""]
    busy = "Another suggestion is being measured just now: measure it afterwards."
    assert other.words == [busy, busy]
    first, second = (value for name, value in other.states if name == "activity")
    assert first != second, "a page hears of what changes alone, and waits for its answer"


@pytest.mark.parametrize("number", [0, 6, 9, -1, "1", None, 1.0, [1]])
def test_a_page_cannot_ask_for_what_is_not_there(number: object) -> None:
    shown = Shown(lambda number, _: measured(number))
    shown.measuring.start(number)
    shown.finish()
    assert shown.words == []


@settings(deadline=None, max_examples=60)
@given(findings=any_findings(), trials=any_trials())
def test_any_suggestions_have_a_panel_that_can_be_saved(
    findings: list[Finding], trials: list[Trial]
) -> None:
    state = advice(findings, trials).get_state()["advice"]
    saved = json.dumps(state, allow_nan=False, ensure_ascii=False).encode()
    assert json.loads(saved).keys() == state.keys()


def test_where_widgets_are_missing_the_panel_points_at_the_report() -> None:
    bundle = panel(suggested())
    words = "A panel of the suggestions, which the report has, too: a notebook shows it once it is "
    assert bundle["text/plain"] == f"{words}trusted, or the cell has run."
    view = bundle["application/vnd.jupyter.widget-view+json"]
    assert isinstance(view, dict)
    assert view["model_id"]


# ---- In a kernel ---------------------------------------------------------------------------------

STAND_IN = f"""\
import sys
sys.path.append({str(TESTS)!r})
from threading import Event, enumerate as threads
from advised import measured, rescued, suggested

go, asked = Event(), []

def measure(number, on_progress):
    asked.append(number)
    on_progress("step 2 of 4")
    go.wait()
    return measured(number)
"""


VIEW = "application/vnd.jupyter.widget-view+json"
DIVIDES_UNTIL = """\
import os, time
accumulation_steps = 4
def train(model, data):
    optimizer = keras.optimizers.SGD(0.1)
    for x in data:
        with tf.GradientTape() as tape:
            loss = model(x)
        gradients = tape.gradient(loss, model.weights)
        gradients = [one / accumulation_steps for one in gradients]
        optimizer.apply_gradients(zip(gradients, model.weights))
while not os.path.exists({}):
    time.sleep(0.05)
"""


class Panel:
    """A panel in a kernel, spoken to as a front end speaks to it."""

    def __init__(self, kernel: Kernel, model_id: str = "") -> None:
        self.client = kernel.client
        self.comm = model_id or self._shown()

    def _shown(self) -> str:
        """Ask for the one that the name `shown` stands for."""
        asked = {"comm": "shown.model_id"}
        reply = self.client.execute_interactive("", user_expressions=asked, timeout=PATIENCE_S)
        answer = reply["content"]["user_expressions"]["comm"]["data"]["text/plain"]
        return str(ast.literal_eval(answer))

    def send(self, **content: object) -> None:
        data = {"method": "custom", "content": content}
        message = self.client.session.msg("comm_msg", {"comm_id": self.comm, "data": data})
        self.client.shell_channel.send(message)

    def hear_until(self, words: str) -> None:
        """Listen to what the kernel sends to the panel until these words are in it."""
        try:
            while True:
                message = self.client.get_iopub_msg(timeout=PATIENCE_S)
                content = message["content"]
                is_ours = message["msg_type"] == "comm_msg" and content["comm_id"] == self.comm
                if is_ours and words in json.dumps(content["data"], ensure_ascii=False):
                    return
        except Empty:
            pytest.fail(f"The panel never heard {words!r}")


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    """Share one kernel among the tests of this file."""
    with running_kernels() as (started,):
        yield started


@pytest.mark.of_ipython
def test_a_panel_hears_of_later_trials_and_one_runs_at_a_time(
    kernel: Kernel, tmp_path: Path
) -> None:
    kernel.prepare("%load_ext oommagic")
    go = tmp_path / "go"
    go.touch()
    cell = "%%oomprofile\n" + DIVIDES_UNTIL.format(repr(str(go)))
    shown = Panel(kernel, panel_below(kernel, cell))
    kernel.client.execute("%oomtry 1")
    shown.hear_until(" measured")
    go.unlink()
    shown.send(kind="measure", number=1)
    shown.hear_until("Measuring: the cell as it is")
    refused = kernel.run("%oomtry 1")
    assert "%oomtry: Another trial is running" in refused.text
    go.touch()
    shown.hear_until('"is_running": false')


def panel_below(kernel: Kernel, cell: str) -> str:
    """Run a cell, and find the panel below it."""
    kernel.client.execute(cell)
    while True:
        content = kernel.client.get_iopub_msg(timeout=PATIENCE_S)["content"]
        if VIEW in content.get("data", {}):
            return str(content["data"][VIEW]["model_id"])


@pytest.mark.of_ipython
def test_a_kernel_runs_cells_and_is_interrupted_while_a_suggestion_is_measured(
    kernel: Kernel,
) -> None:
    kernel.prepare(STAND_IN, "from oommagic.show.widgets import advice")
    kernel.run("shown = advice(suggested(), [rescued()], measure)")
    shown = Panel(kernel)
    shown.send(kind="hello")
    shown.hear_until('"here"')
    shown.send(kind="measure", number=2)
    shown.hear_until("Measuring: step 2 of 4 …")
    ran = kernel.run("print('waits'); Event().wait()", interrupt_at="waits")
    assert ran.reply["ename"] == "KeyboardInterrupt"
    shown.send(kind="measure", number=1)
    kernel.client.execute("go.set()")
    shown.hear_until("(799 MB less), measured in 4 steps")
    shown.hear_until('"is_running": false')
    # The thread has said its last word, and may still be on its way out: it is waited for.
    ours = "[one for one in threads() if one.name.startswith('oommagic')]"
    kernel.run(f"for one in {ours}: one.join()")
    assert kernel.run(f"print(asked, {ours})").text.strip() == "[2] []"


# ---- In a page -----------------------------------------------------------------------------------


def shown(browser: Any, across: int = 1200, style: str = "", *trials: Trial) -> Any:
    """Show the panel in a page as a front end would."""
    widget = advice(suggested(), trials, lambda number, _: measured(number))
    return opened_widget(browser, widget, TRAITS, across, style)


def card(page: Any, number: int) -> Any:
    """Find a suggestion in front."""
    return page.locator(".oom-panel > .oom-suggestion").nth(number - 1)


def never(_number: int, _on_progress: Progress) -> Trial:
    """Stand in where nothing is measured."""
    raise AssertionError


def hear(page: Any, **changes: object) -> None:
    """Give the panel new state from the kernel."""
    page.evaluate(
        "(changes) => { for (const [name, value] of Object.entries(changes)) "
        "model.change(name, value); }",
        json.loads(json.dumps(changes)),
    )


@pytest.mark.browser
def test_a_change_unfolds_in_colours_with_its_signs(browser: Any) -> None:
    page = shown(browser)
    one = card(page, 1)
    assert not one.locator(".oom-diff").is_visible()
    one.locator("summary").click()
    assert "- BATCH = 128\n+ BATCH = 96" in one.locator(".oom-diff").inner_text()
    colour = "(line) => getComputedStyle(line).backgroundColor"
    lines = (one.locator(f".oom-{kind}").last for kind in ("new", "gone", "same"))
    assert len({line.evaluate(colour) for line in lines}) == 3


@pytest.mark.browser
def test_the_rest_stands_behind_more(browser: Any) -> None:
    page = shown(browser)
    assert card(page, 5).is_visible()
    hint = page.get_by_text("6. Train adapters alone")
    assert not hint.is_visible()
    page.get_by_text("3 more suggestions").click()
    assert hint.is_visible()
    assert page.get_by_role("button", name="suggestion 6").count() == 0
    assert page.get_by_role("button", name="suggestion 7").count() == 2


@pytest.mark.browser
def test_while_one_is_measured_no_other_can_be_asked_for(browser: Any) -> None:
    page = shown(browser)
    assert page.evaluate("messages") == [{"kind": "hello"}]
    page.evaluate("model.tell({kind: 'here'})")
    page.get_by_role("button", name="Measure suggestion 2").click()
    assert page.evaluate("messages.at(-1)") == {"kind": "measure", "number": 2}
    assert card(page, 2).get_by_role("status").inner_text() == "Asked the kernel …"
    page.get_by_role("button", name="Measure suggestion 1").click(force=True)
    page.get_by_role("button", name="Measure suggestion 2").click(force=True)
    hear(page, activity={"number": 2, "words": "Measuring: step 2 …", "is_running": True})
    page.get_by_role("button", name="Measure suggestion 3").click(force=True)
    assert card(page, 2).get_by_role("status").inner_text() == "Measuring: step 2 …"
    assert page.evaluate("messages.length") == 2
    hear(page, activity={"number": 2, "words": "x cannot be sent.", "is_running": False})
    assert card(page, 2).get_by_role("status").inner_text() == "x cannot be sent."
    page.get_by_role("button", name="Measure suggestion 3").click()
    assert page.evaluate("messages.at(-1)") == {"kind": "measure", "number": 3}


@pytest.mark.browser
def test_what_kept_one_from_being_measured_stays_while_another_is(browser: Any) -> None:
    page = shown(browser)
    page.evaluate("model.tell({kind: 'here'})")
    for number, words in ((4, "`x` cannot be sent."), (2, "Measuring: step 2 …")):
        page.get_by_role("button", name=f"Measure suggestion {number}").click()
        hear(page, activity={"number": number, "words": words, "is_running": number == 2})
    assert card(page, 4).get_by_role("status").inner_text() == "x cannot be sent."
    assert card(page, 4).get_by_role("status").locator("code").inner_text() == "x"
    assert card(page, 2).get_by_role("status").inner_text() == "Measuring: step 2 …"


@pytest.mark.browser
def test_in_a_panel_suggestions_look_as_they_do_in_a_report(browser: Any) -> None:
    page = shown(browser, 2000)
    panel = page.locator(".oom-panel")
    line = "(more) => getComputedStyle(more).borderTopStyle"
    assert panel.locator("> details").evaluate(line) == "solid"
    assert card(page, 1).bounding_box()["width"] == 1100


@pytest.mark.browser
def test_when_figures_come_what_was_unfolded_and_focused_stays_so(browser: Any) -> None:
    page = shown(browser)
    card(page, 2).locator("summary").click()
    page.get_by_role("button", name="Measure suggestion 2").click()
    hear(page, advice=advice(suggested(), [measured()], never).advice)
    assert "measured in 4 steps" in card(page, 2).inner_text()
    assert "1.90 GB\t1.12 GB" in card(page, 2).locator("table").inner_text()
    assert card(page, 2).locator(".oom-diff").is_visible()
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "Measure suggestion 2"


@pytest.mark.browser
def test_without_a_kernel_measuring_says_that_it_needs_one(browser: Any) -> None:
    page = shown(browser)
    hear(page)
    page.get_by_role("button", name="Measure suggestion 2").click()
    said = card(page, 2).get_by_role("status").inner_text()
    assert said.startswith("Measuring needs the kernel that ran this cell")


@pytest.mark.browser
def test_what_was_being_measured_when_the_notebook_was_saved_is_not_any_more(browser: Any) -> None:
    widget = advice(suggested(), (), lambda number, _: measured(number))
    widget.activity = {"number": 2, "words": "Measuring: step 2 …", "is_running": True}
    page = opened_widget(browser, widget, TRAITS, 1200)
    assert page.get_by_text("Measuring:").count() == 0
    assert page.get_by_role("button", name="Measure suggestion 1").is_enabled()
    page.evaluate("model.tell({kind: 'here'})")
    assert card(page, 2).get_by_role("status").inner_text() == "Measuring: step 2 …"


@pytest.mark.browser
def test_nothing_can_be_measured_where_nobody_measures(browser: Any) -> None:
    page = opened_widget(browser, advice(suggested()), TRAITS, 1200)
    assert page.get_by_role("button", name="Measure").count() == 0
    assert page.get_by_role("button", name="Copy").count() == 5


@pytest.mark.browser
def test_where_a_page_may_not_write_to_the_clipboard_the_cell_is_selected(browser: Any) -> None:
    page = shown(browser)
    page.evaluate("document.execCommand = () => false")
    page.get_by_role("button", name="Copy the cell with suggestion 1").click()
    page.get_by_text("press Ctrl+C").wait_for()
    selected = page.evaluate(
        "(({ value, selectionStart, selectionEnd }) => value.slice(selectionStart, selectionEnd))"
        "(document.activeElement)"
    )
    fix = suggested()[0].fix
    assert fix is not None
    assert selected == fix.source


@pytest.mark.browser
def test_a_hostile_state_runs_nothing(browser: Any) -> None:
    widget = advice([hostile_finding()] * 6, [hostile_trial((1,)), hostile_trial((1, 2))], never)
    page = opened_widget(browser, widget, TRAITS, 1200)
    # A notebook's saved state can say anything, also what we would have spelled out or cut.
    hear(page, advice=all_hostile(widget.advice))
    hear(page, activity=all_hostile({"number": 1, "words": "", "is_running": False}))
    card(page, 1).locator("summary").click()
    page.get_by_role("button", name="Copy").first.click()
    assert HOSTILE in card(page, 1).locator(".oom-suggests").text_content()
    assert HOSTILE in card(page, 1).locator(".oom-diff").text_content()
    assert page.evaluate("window.pwned") is None
    assert page.locator("body script, img").count() == 0


@pytest.mark.browser
def test_a_panel_of_nothing_says_so_and_a_closed_one_listens_no_more(browser: Any) -> None:
    page = opened_widget(browser, advice(()), TRAITS, 1200)
    assert page.inner_text("body") == "No suggestions."
    page.evaluate("close_widget()")
    assert page.evaluate("listeners.size") == 0


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_every_text_has_enough_contrast(browser: Any, name: str) -> None:
    ground, style = PAGES[name]
    red, green, blue = (int(ground[i : i + 2], 16) for i in (1, 3, 5))
    page = shown(browser, 1200, f"background:{ground};{style}", rescued(), measured())
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.get_by_role("button", name="Measure suggestion 3").click()
    contrasts = page.evaluate(CONTRASTS, f"rgb({red}, {green}, {blue})")
    assert len(contrasts) > 90
    assert min(contrasts) >= 4.5


@pytest.mark.browser
@pytest.mark.parametrize("across", [400, 1200])
def test_no_text_of_the_panel_is_cut_or_covered(browser: Any, across: int) -> None:
    page = shown(browser, across, "", rescued(), measured())
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.get_by_role("button", name="Measure suggestion 3").click()
    assert page.evaluate(CLUTTER) == []


# ---- In JupyterLab -------------------------------------------------------------------------------

CELL = f"""\
{STAND_IN}
from IPython.display import publish_display_data
from oommagic.show.advice_panel import panel
publish_display_data(panel(suggested(), [rescued()], measure))"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start one JupyterLab for the tests of this file."""
    with running_lab(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.mark.browser
def test_in_jupyterlab_a_suggestion_is_read_copied_and_measured(browser: Any, lab: Lab) -> None:
    lab.write("advice.ipynb", CELL, "go.set(); print('asked for', asked)")
    permissions = ["clipboard-read", "clipboard-write"]
    page = opened_notebook(browser, lab, "advice.ipynb", permissions=permissions)
    run_cell(page, 0)
    half = card(page, 2)
    half.locator("summary").click()
    assert "+ from tensorflow import keras" in half.locator(".oom-diff").inner_text()
    half.get_by_role("button", name="Copy").click()
    half.get_by_text("Copied.").wait_for()
    fix = suggested()[1].fix
    assert fix is not None
    assert page.evaluate("navigator.clipboard.readText()") == fix.source
    half.get_by_role("button", name="Measure").click()
    half.get_by_text("Measuring: step 2 of 4 …").wait_for()
    page.get_by_role("button", name="Measure suggestion 1").click(force=True)
    lab.interrupt_kernels()
    run_cell(page, 1)
    half.get_by_text("(799 MB less), measured in 4 steps").wait_for()
    page.get_by_text("asked for [2]").wait_for()
    assert half.locator(".oom-diff").is_visible()
    page.keyboard.press("Control+s")
    lab.wait_for_saved_widgets(page, "advice.ipynb")
    page.close()


@pytest.mark.browser
def test_a_saved_notebook_shows_what_was_measured_and_that_more_needs_a_kernel(
    browser: Any, lab: Lab
) -> None:
    lab.end_kernels()
    page = reopened_notebook(browser, lab, "advice.ipynb", ".oom-panel")
    assert "(799 MB less), measured in 4 steps" in card(page, 2).inner_text()
    page.get_by_role("button", name="Measure suggestion 1").click()
    card(page, 1).get_by_text("Measuring needs the kernel that ran this cell").wait_for()
    saved = SavedWidget(lab.saved("advice.ipynb"), "advice")
    bare = opened_widget(browser, saved, TRAITS, 1200)
    assert "(799 MB less), measured in 4 steps" in card(bare, 2).inner_text()


DEVICE = """\
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
%load_ext oommagic
%oomdevice 64MB
import keras, tensorflow as tf
x = tf.ones((8, 4))"""
DIVIDES = """\
%%oomprofile
accumulation_steps = 4
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
optimizer = keras.optimizers.SGD(0.1)
for _ in range(8):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients = [one / accumulation_steps for one in gradients]
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))"""
# TensorFlow is imported three times, each in a process of its own.
WITH_TENSORFLOW_MS = 4 * PATIENCE_S * 1000


@pytest.mark.browser
def test_in_jupyterlab_a_suggestion_for_a_profiled_cell_is_tried(browser: Any, lab: Lab) -> None:
    lab.write("tried.ipynb", DEVICE, DIVIDES)
    page = opened_notebook(browser, lab, "tried.ipynb")
    page.set_default_timeout(WITH_TENSORFLOW_MS)
    run_cell(page, 0)
    run_cell(page, 1)
    first = card(page, 1)
    first.get_by_text("Accumulate the gradients that are only divided").wait_for()
    first.get_by_role("button", name="Measure").click()
    first.get_by_text("Measuring:").wait_for()
    first.get_by_text("measured in").wait_for()
    named = first.locator("table.oom-trial th[scope=row]").all_inner_texts()
    assert named == ["CPU:0 peak", "host peak", "time per step", "loss"]
    assert first.locator(".oom-status").text_content() == ""
    page.close()
