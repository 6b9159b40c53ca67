"""Code whose lines are told apart by a trace function, and what it may do while nobody listens."""

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_PAUSABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_getframe = sys._getframe  # noqa: SLF001 (bound once: the cell may rebind it)


class WatchedCode:
    """Code objects by their ids, and what is asked of them at each call."""

    __slots__ = ("by_id", "guarded_lines", "has_several_lines", "may_be_called_back")

    def __init__(self) -> None:
        """Watch nothing yet."""
        self.by_id: dict[int, CodeType] = {}
        self.guarded_lines: dict[int, frozenset[int]] = {}
        self.has_several_lines: dict[int, bool] = {}
        self.may_be_called_back = False

    def add(self, code: CodeType, guarded_lines: frozenset[int]) -> None:
        """Watch one code object; its guarded lines may go on after a call that failed."""
        self.by_id[id(code)] = code
        self.guarded_lines[id(code)] = guarded_lines
        self.has_several_lines[id(code)] = len({line for *_, line in code.co_lines() if line}) > 1
        self.may_be_called_back |= _is_function(code)

    def clear(self) -> None:
        """Let go of all code."""
        for held in (self.by_id, self.guarded_lines, self.has_several_lines):
            held.clear()

    def running_frames(self) -> Iterator[FrameType]:
        """Yield the frames of watched code that run now, in whichever thread."""
        for innermost in list(sys._current_frames().values()):  # noqa: SLF001 (no public way)
            frame: FrameType | None = innermost
            while frame is not None:
                if id(frame.f_code) in self.by_id:
                    yield frame
                frame = frame.f_back


def running_frame_ids() -> set[int]:
    """Name the frames that this thread is in."""
    found: set[int] = set()
    frame: FrameType | None = _getframe()
    while frame is not None:
        found.add(id(frame))
        frame = frame.f_back
    return found


def outlives_call(code: CodeType) -> bool:
    """Whether frames of this code pause and go on: their end is not the end of a call."""
    return bool(code.co_flags & _PAUSABLE)


def _is_function(code: CodeType) -> bool:
    """Whether a library may call this code; a comprehension runs where it stands."""
    return bool(code.co_flags & inspect.CO_NEWLOCALS) and code.co_name not in _COMPREHENSIONS
