"""What is said beside the figures of a trial: what was left out, or is not as in the notebook."""

import re
from collections.abc import Iterator, Mapping, Sequence

from oommagic.report import DeviceMemory, TrialRun
from oommagic.units import format_bytes

_WORTH_SAYING = 0.05
"""Of the device's memory."""
_MOST_NAMES_SAID = 4
_MISSING = re.compile(r"\bname '(?P<name>\w+)' is not defined")


def about_device(device: DeviceMemory | None, before_bytes: int) -> Iterator[str]:
    """Say what stands for the cell's device, and what it held beside what the trial had."""
    if device is None or device.limit_bytes is None:
        return
    size = format_bytes(device.limit_bytes)
    if not device.is_part_of_host:
        yield (
            f"Tried on a training device of {size} on the CPU, which stands for {device.name}: "
            "times are the CPU's."
        )
    others = device.before_bytes - before_bytes
    if others > _WORTH_SAYING * device.limit_bytes:
        yield (
            f"The notebook held {format_bytes(others)} more on {device.name} before the cell; "
            "that is not there in the trial."
        )


def about_magics(magics: Sequence[str]) -> Iterator[str]:
    """Say which lines were not run."""
    if magics:
        yield f"IPython's own lines were left out: {'; '.join(magics)}."


def about_datasets(names: Sequence[str]) -> Iterator[str]:
    """Say which data sets were not the cell's own."""
    for name in names:
        yield (
            f"In place of {name}, whose making cannot be sent, zeros of the same shapes came: "
            "the loss says nothing."
        )


def about_missing(runs: Sequence[TrialRun], namespace: Mapping[str, object]) -> Iterator[str]:
    """Say which names a run lacked that the notebook has: a cell's text may have them hidden."""
    for run in runs:
        missing = _MISSING.search(run.message)
        if missing is not None and missing["name"] in namespace:
            yield (
                f"{missing['name']} is in the notebook, but was not sent: the cell does not name "
                "it, or only within a text. A line with its name alone sends it."
            )


def about_changed(names: Sequence[str]) -> Iterator[str]:
    """Say which names the cell changes: each run had its own."""
    if names:
        more = f" and {len(names) - _MOST_NAMES_SAID} more" if names[_MOST_NAMES_SAID:] else ""
        said = ", ".join(names[:_MOST_NAMES_SAID]) + more
        yield f"The cell changes {said}: both runs began with what the notebook holds now."
