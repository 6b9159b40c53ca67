"""The one place that turns numbers into words, and words into numbers."""

import re
from datetime import datetime

from oommagic.errors import UsageError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

_BYTE_UNITS = (("TB", TIB), ("GB", GIB), ("MB", MIB), ("KB", KIB))
_NEXT_UNIT_FROM = 999.5
"""From here on a figure would be rounded to 1000."""

_SIZE = re.compile(
    r"(?P<number>\d{1,30}(?:\.\d{1,30})?)\s*(?P<unit>[KMGT]?)(?:i?B)?", re.IGNORECASE
)


def format_bytes(count: int) -> str:
    """Say a number of bytes in three digits: `0 B`, `812 KB`, `0.98 GB`, `1.25 GB`.

    Units are powers of 1024, as everywhere that device memory is spoken of. The larger unit begins
    at 1000 of the smaller: 1008 MB of 1.00 GB would look like too much.
    """
    sign = "-" if count < 0 else ""
    size = abs(count)
    for unit, scale in _BYTE_UNITS:
        if size * KIB >= _NEXT_UNIT_FROM * scale:
            return f"{sign}{_three_digits(size / scale)} {unit}"
    return f"{sign}{size} B"


def format_change(count: int) -> str:
    """Say a change in bytes with its sign, and nothing at all for no change."""
    if count == 0:
        return "0"
    return f"+{format_bytes(count)}" if count > 0 else format_bytes(count)


def format_range(low: int, high: int, to: str = " to ") -> str:
    """Say a range of bytes with its unit once where both ends share it: `1.02 to 1.40 GB`."""
    first, last = format_bytes(low), format_bytes(high)
    if first == last:
        return first
    number, _, unit = first.partition(" ")
    return f"{number if last.endswith(f' {unit}') else first}{to}{last}"


def format_seconds(seconds: float) -> str:
    """Say a duration: `12 µs`, `3.4 ms`, `2.15 s`, `4 min 05 s`, `2 h 03 min`."""
    # Rounded first, or a figure just below a unit would be told as 1000 ms or 60.0 s.
    microseconds = f"{seconds * 1e6:.0f}"
    if float(microseconds) < 1000:
        return f"{microseconds} µs"
    milliseconds = _three_digits(seconds * 1e3)
    if float(milliseconds) < 1000:
        return f"{milliseconds} ms"
    below_a_minute = _three_digits(seconds)
    if float(below_a_minute) < 60:
        return f"{below_a_minute} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def format_time(moment: str) -> str:
    """Say a moment as people write it: `2026-11-18 11:40:02 UTC` for what ISO 8601 puts shorter."""
    try:
        at = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    zone = at.tzname()
    return f"{at:%Y-%m-%d %H:%M:%S}{f' {zone}' if zone else ''}"


def parse_bytes(text: str) -> int:
    """Read a size as people type it: `2GB`, `1.5 GiB`, `512MB`, `800000`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size; write it like 512MB or 1.5GB.")
    scale = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}[match["unit"].upper()]
    return int(float(match["number"]) * scale)


def _three_digits(number: float) -> str:
    if round(number, 2) < 10:
        return f"{number:.2f}"
    return f"{number:.1f}" if round(number, 1) < 100 else f"{number:.0f}"
