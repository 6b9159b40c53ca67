"""Measuring suggestions of a panel, one at a time, in a thread: the kernel stays free for cells."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import count
from threading import Lock, Thread

from oommagic.errors import OommagicError
from oommagic.report import Finding, Trial
from oommagic.show.advice_view import advice_view
from oommagic.show.characters import visible
from oommagic.show.trial_view import HEADS

Progress = Callable[[str], None]
Measure = Callable[[int, Progress], Trial]
"""Tries the suggestion of a number, says how far it is, and gives what it showed."""
Listen = Callable[[Callable[[Sequence[Trial]], None]], object]
"""Has somebody told of trials that are made elsewhere."""
Show = Callable[[str, dict[str, object]], object]
"""Gives the panel a new value of the state of that name."""

# Two at once would take memory and time from each other, and measure that.
_ONE_AT_A_TIME = Lock()
_ANOTHER = "Another suggestion is being measured just now: measure it afterwards."
_BROKEN = "It could not be measured: an error of oommagic's own, which the kernel has printed."


class Measuring:
    """What a panel shows of suggestions and their trials, and how it comes by more trials."""

    def __init__(
        self,
        findings: Sequence[Finding],
        trials: Sequence[Trial],
        measure: Measure | None,
        show: Show,
    ) -> None:
        self._findings = tuple(findings)
        self._trials = tuple(trials)
        self._measure = measure
        self._show = show
        self._is_running = False
        self._turns = count()
        self._show_advice()

    def start(self, number: object) -> None:
        """Measure a suggestion, if it can be measured; what was asked for came from a page."""
        if self._measure is None or not isinstance(number, int) or self._is_running:
            return
        if 0 < number <= len(self._findings) and self._findings[number - 1].fix is not None:
            # A daemon: whoever ends the kernel does not wait for it.
            name = f"oommagic measures suggestion {number}"
            Thread(target=self._run, args=(self._measure, number), name=name, daemon=True).start()

    def hear(self, trials: Sequence[Trial]) -> None:
        """Take in trials, those too that were not asked for here."""
        known = {trial.numbers: trial for trial in (*self._trials, *trials)}
        self._trials = tuple(known.values())
        self._show_advice()

    def _run(self, measure: Measure, number: int) -> None:
        if not _ONE_AT_A_TIME.acquire(blocking=False):
            if not self._is_running:
                self._say(number, _ANOTHER)
            return
        self._is_running = True
        words = _BROKEN
        try:
            words = self._outcome(measure, number)
        finally:
            self._is_running = False
            _ONE_AT_A_TIME.release()
            self._say(number, words)

    def _outcome(self, measure: Measure, number: int) -> str:
        """Measure, and say what kept it from being measured, if anything did."""
        self._say_progress(number, "starting")
        try:
            trial = measure(number, lambda text: self._say_progress(number, text))
        except OommagicError as error:
            return str(error)
        self.hear((trial,))
        return ""

    def _say_progress(self, number: int, text: str) -> None:
        self._say(number, f"Measuring: {text} …", is_running=True)

    def _say(self, number: int, words: str, *, is_running: bool = False) -> None:
        activity = {"number": number, "words": visible(words), "is_running": is_running}
        # What is said twice is an answer each time, and a page hears of what changes alone.
        self._show("activity", {**activity, "turn": next(self._turns)})

    def _show_advice(self) -> None:
        view = advice_view(self._findings, self._trials)
        said: dict[str, object] = {} if view is None else asdict(view)
        words = {"heads": HEADS, "can_measure": self._measure is not None}
        self._show("advice", {**said, **words})
