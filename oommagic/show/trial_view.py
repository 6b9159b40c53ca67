"""What a trial showed, in words: the peaks, the time per step and the loss, before and after."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oommagic.report import HOST, Finding, Saving, Trial, TrialRun
from oommagic.show.characters import label, visible
from oommagic.units import format_bytes, format_range, format_seconds

HEADS = ("as it is", "with the change")

# Where TensorFlow's message says that it ran out: the figures say it in a reader's words.
_PLACE = re.compile(r" on /job:\S+ by allocator \S+")

_OUTCOMES = {
    "finished": "finished",
    "ran out": "ran out of memory",
    "failed": "failed",
    "died": "its process died",
    "timed out": "did not end in time",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a trial, before and after."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class TrialView:
    """What a page says of a trial, its outcome first."""

    headline: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]


def trial_view(trial: Trial, findings: Sequence[Finding]) -> TrialView:
    """Put one trial into words that stand by themselves."""
    tried = [findings[number - 1] for number in trial.numbers if 0 < number <= len(findings)]
    only = tried[0] if len(trial.numbers) == len(tried) == 1 else None
    place = only.place if only is not None else trial.after.device or trial.before.device or HOST
    said = view_of(trial, place, None if only is None else only.saving)
    return TrialView(f"{_tried(trial, only)}: {said.headline}", said.figures, said.notes)


def _tried(trial: Trial, only: Finding | None) -> str:
    numbers = [str(number) for number in trial.numbers]
    if len(numbers) > 1:
        return f"Suggestions {', '.join(numbers[:-1])} and {numbers[-1]} together"
    title = f", {visible(only.title)}" if only is not None else ""
    return f"Suggestion {numbers[0] if numbers else '?'}{title}"


def view_of(trial: Trial, place: str, saving: Saving | None) -> TrialView:
    """Put a trial into words that stand below a suggestion, which saves at that place."""
    return TrialView(
        headline=headline(trial, place),
        figures=tuple(_figures(trial)),
        notes=tuple(map(visible, _notes(trial, saving))),
    )


def headline(trial: Trial, place: str) -> str:
    """Say the peak before and after, and in how many steps it was measured."""
    place = place or _device(trial) or HOST  # a defect may be of no place
    before, after = (_peak(run, place) for run in (trial.before, trial.after))
    differs = ""
    if before is not None and after is not None and _both_finished(trial):
        differs = f" ({_difference(before - after)})"
    ends = _ends(_end(trial.before, before), _end(trial.after, after))
    return f"{_where(trial, place)} {ends}{differs}, measured{_steps(trial)}"


def _ends(before: str, after: str) -> str:
    both_in_vain = before == after and before in _OUTCOMES.values()
    return f"{before} both times" if both_in_vain else f"{before} → {after}"


def _peak(run: TrialRun, place: str) -> int | None:
    return run.host_peak_bytes if place == HOST else run.device_peak_bytes


def _end(run: TrialRun, peak: int | None) -> str:
    if run.outcome != "finished":
        return _OUTCOMES[run.outcome]
    return "peak not known" if peak is None else format_bytes(peak)


def _difference(saved: int) -> str:
    if saved == 0:
        return "no less"
    return f"{format_bytes(saved)} less" if saved > 0 else f"{format_bytes(-saved)} more"


def _where(trial: Trial, place: str) -> str:
    """Name what was measured: a trial may have had another device than the cell."""
    return HOST if place == HOST else label(_device(trial) or place)


def _device(trial: Trial) -> str:
    return trial.after.device or trial.before.device


def _steps(trial: Trial) -> str:
    counts = list(dict.fromkeys(run.steps for run in (trial.before, trial.after) if run.steps > 0))
    if not counts:
        return ""
    unit = "step" if counts == [1] else "steps"
    return f" in {' and '.join(map(str, counts))} {unit}"


def _both_finished(trial: Trial) -> bool:
    return trial.before.outcome == trial.after.outcome == "finished"


def _figures(trial: Trial) -> Iterator[Figure]:
    before, after = trial.before, trial.after
    if not _both_finished(trial):
        yield Figure("outcome", _OUTCOMES[before.outcome], _OUTCOMES[after.outcome])
    device = label(_device(trial)) or "device"
    rows = (
        (f"{device} peak", _bytes(before.device_peak_bytes), _bytes(after.device_peak_bytes)),
        ("host peak", _bytes(before.host_peak_bytes), _bytes(after.host_peak_bytes)),
        ("time per step", _seconds(before.step_s), _seconds(after.step_s)),
        ("loss", _loss(before.loss), _loss(after.loss)),
    )
    for name, *said in rows:
        if any(said):
            texts = (text or _lacking(run) for text, run in zip(said, (before, after), strict=True))
            yield Figure(name, *texts)


def _lacking(run: TrialRun) -> str:
    return "not known" if run.outcome == "finished" else "–"


def _bytes(count: int | None) -> str:
    return "" if count is None else format_bytes(count)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)


def _loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4g}"


def _notes(trial: Trial, saving: Saving | None) -> Iterator[str]:
    if trial.limit_bytes is not None:
        yield f"Both ran under a limit of {format_bytes(trial.limit_bytes)}."
    if saving is not None:
        yield f"Predicted was a saving of about {about(saving)}."
    for head, run in zip(HEADS, (trial.before, trial.after), strict=True):
        if run.message:
            yield f"{head.capitalize()}: {_PLACE.sub('', run.message)}"
    yield from trial.notes


def about(saving: Saving) -> str:
    """Say a saving with its range."""
    expected, around = format_bytes(saving.bytes), format_range(saving.low_bytes, saving.high_bytes)
    return expected if expected == around else f"{expected} ({around})"
