"""What is being done, on one line of the screen that goes away again."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]


@contextmanager
def saying(progress: Progress | None = None, doing: str = "Planning") -> Iterator[Progress]:
    """Give what was asked for, or one line on the screen that goes away again."""
    if progress is not None:
        yield progress
        return
    widths = [0]

    def say(text: str) -> None:
        line = f"{doing}: {text} …"
        sys.stderr.write(f"\r{line:<{widths[-1]}}")
        sys.stderr.flush()
        widths.append(len(line))

    try:
        yield say
    finally:
        sys.stderr.write(f"\r{'':<{widths[-1]}}\r")
        sys.stderr.flush()
