"""What is known of the lines at which something may grow."""

from oommagic.explain.clues import Loop
from oommagic.explain.facts import Facts
from oommagic.explain.growth.value import Per
from oommagic.report import HOST, LineUsage


def taken(line: LineUsage, place: str) -> int:
    """Say what a line added to the host's memory, or to a device's."""
    if place == HOST:
        return line.host_delta_bytes
    return line.devices[place].delta_bytes if place in line.devices else 0


def source_of(facts: Facts, line_number: int | None) -> str:
    """Give a line of the cell as it is written."""
    lines = facts.source.splitlines()
    at = (line_number or 0) - facts.first_line
    return lines[at].strip() if 0 <= at < len(lines) else ""


def turn_of(loop: Loop | None) -> Per:
    """Say what one turn of a loop is, by the name that it counts with."""
    return "epoch" if loop is not None and "epoch" in loop.target.lower() else "step"
