"""How much lower the host's peak would be, by the peaks of the lines that ran."""

from collections.abc import Callable, Mapping

from oommagic.explain.advice.rule import expected
from oommagic.explain.advice.situation import Situation
from oommagic.report import HOST, Cause, Saving

DATA_CAUSES: frozenset[Cause] = frozenset(
    {"host memory", "data on the device", "growth", "a limit", "unknown"}
)
"""The causes where less data in memory helps, wherever it lies."""


def lower_peak(here: Situation, less: Callable[[int], int], line_number: int) -> int:
    """Say how much lower the peak is, if each line's peak is as much lower as `less` says.

    A saving at one line leaves the peaks of others as they are, and the highest counts. Where
    no line was measured, it is what would be saved at the given one.
    """
    peaks = {line.line_number: line.host_peak_bytes for line in here.lines if line.hits}
    if here.ran_out and here.place == HOST and here.line_number is not None:
        peaks[here.line_number] = here.peak(HOST)
    if not peaks:
        return max(0, less(line_number))
    then = max(peak - less(number) for number, peak in peaks.items())
    return max(0, max(peaks.values()) - then)


def lower_from(here: Situation, line_number: int, size: int) -> int:
    """Say how much lower the peak is, if as much is gone from one line on."""
    return lower_peak(here, lambda number: size if number >= line_number else 0, line_number)


def lower_at(here: Situation, sizes: Mapping[int, int]) -> int:
    """Say how much lower the peak is, if some lines take as much less while they run."""
    return lower_peak(here, lambda number: sizes.get(number, 0), min(sizes))


def taken_by_line(here: Situation, line_number: int) -> int:
    """Say how much a line took at its peak, beyond what was there before it."""
    before = here.host_before_bytes + sum(
        line.host_delta_bytes for line in here.lines if line.line_number < line_number
    )
    peaks = [line.host_peak_bytes for line in here.lines if line.line_number == line_number]
    return max(0, max(peaks, default=0) - before)


def place_of_data(here: Situation) -> str:
    """Say whose memory data sets take: the host's, or that of a device that is part of it."""
    is_own = not here.is_on_gpu and here.device.startswith("CPU")
    return here.device if is_own and here.is_short(here.device) else HOST


def data_saving(here: Situation, line_number: int, size: int, low: float, high: float) -> Saving:
    """Say what is saved where a data set that one line makes takes as much less."""
    place = place_of_data(here)
    lower = lower_from(here, line_number, size) if place == HOST else size
    return expected(place, lower, low, high)
