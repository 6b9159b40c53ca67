"""Memory that the meters read, charged to the lines that ran since the reading before."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from oommagic.measure.sharing import (
    Part,
    by_device_memory,
    by_own_memory,
    by_time,
    mark_shared,
    shares,
)
from oommagic.measure.tallies import Totals, Track
from oommagic.own_builtins import keep_builtins

keep_builtins(globals())


class HostReadings(Protocol):
    """The host's figures: own bytes, bytes of files, peak of own bytes since the last reading."""

    def read(self) -> tuple[int, int, int]:
        """Give the figures, and begin a new peak."""


class DeviceMeter(Protocol):
    """The devices' figures: for each name, current bytes and the peak since the last reading."""

    @property
    def names(self) -> tuple[str, ...]:
        """The devices that have figures."""

    def find(self) -> bool:
        """Say whether there are any, and notice new ones."""

    def read(self) -> tuple[tuple[int, int], ...]:
        """Give the figures, and begin new peaks."""

    def tracing_graph(self) -> bool:
        """Say whether this thread is building a graph."""


class MemoryCharges:
    """Reads the meters of the host and the devices, and charges what has changed."""

    def __init__(self, host: HostReadings, devices: DeviceMeter) -> None:
        """Read nothing yet."""
        self.totals = Totals()
        self._host = host
        self._devices = devices

    def begin(self) -> None:
        """Take the first reading; all later ones are changes from it."""
        self._devices.find()
        own, files, _ = self._host.read()
        totals = self.totals
        totals.own_before = totals.own_now = totals.own_peak = own
        totals.files_now = totals.file_peak = files
        for name, (current, _) in zip(self._devices.names, self._devices.read(), strict=True):
            totals.device_before[name] = totals.device_now[name] = current
            totals.device_peak[name] = current

    def charge(self, parts: Sequence[Part], tracks: Iterable[Track]) -> None:
        """Read, and share what has changed among the lines; peaks are seen on all tracks."""
        self._charge_host(parts, tracks)
        if self._devices.find():
            self._charge_devices(parts, tracks)

    def _charge_host(self, parts: Sequence[Part], tracks: Iterable[Track]) -> None:
        totals = self.totals
        own, files, peak = self._host.read()
        own_delta, file_delta = own - totals.own_now, files - totals.files_now
        higher = max(totals.own_now, own)
        mark_shared(parts, max(abs(own_delta), abs(file_delta), peak - higher))
        if own_delta:
            for tally, share in shares(parts, own_delta, by_own_memory(own_delta)):
                tally.own_delta += share
        if file_delta:
            for tally, share in shares(parts, file_delta, by_time):
                tally.file_delta += share
        totals.own_now, totals.files_now = own, files
        totals.own_peak, totals.file_peak = max(totals.own_peak, peak), max(totals.file_peak, files)
        for part in parts:
            for tally in part.lines:
                tally.own_peak = max(tally.own_peak, peak)
        _raise_peaks(tracks, peak, {})

    def _charge_devices(self, parts: Sequence[Part], tracks: Iterable[Track]) -> None:
        totals = self.totals
        peaks: dict[str, int] = {}
        for name, (current, peak) in zip(self._devices.names, self._devices.read(), strict=True):
            delta = current - totals.device_now.setdefault(name, 0)
            totals.device_before.setdefault(name, 0)
            mark_shared(parts, max(abs(delta), peak - current))
            for tally, share in shares(parts, delta, by_device_memory(name, delta)):
                tally.device_deltas[name] = tally.device_deltas.get(name, 0) + share
                tally.device_peaks[name] = max(tally.device_peaks.get(name, 0), peak)
            totals.device_now[name] = current
            totals.device_peak[name] = max(totals.device_peak.get(name, 0), peak)
            peaks[name] = peak
        _raise_peaks(tracks, 0, peaks)


def _raise_peaks(tracks: Iterable[Track], own_peak: int, device_peaks: dict[str, int]) -> None:
    """A peak is the whole process's: the line that each thread is at has seen it."""
    for track in tracks:
        for frame in track.stack[-1:]:
            frame.raise_peaks(own_peak, device_peaks)
