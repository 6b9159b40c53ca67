"""What is being done, on one line of the screen that goes away again."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Progress = Callable[[str], None]
Saying = Callable[[str], AbstractContextManager[Progress]]
"""Says of what is being done how far it is, while the context lasts."""

_ELSEWHERE: list[Saying] = []


def say_elsewhere(saying: Saying | None) -> None:
    """Have it said where a front end has a better place; without one, on the screen again."""
    _ELSEWHERE[:] = [] if saying is None else [saying]


def saying(
    progress: Progress | None = None, doing: str = "Planning"
) -> AbstractContextManager[Progress]:
    """Give what was asked for, or a place to say it that goes away again."""
    if progress is not None:
        return nullcontext(progress)
    return _ELSEWHERE[0](doing) if _ELSEWHERE else _on_one_line(doing)


@contextmanager
def _on_one_line(doing: str) -> Iterator[Progress]:
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
