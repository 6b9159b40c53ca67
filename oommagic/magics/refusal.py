"""A magic that cannot do what was asked says so, and the user's own last error stays the last.

IPython takes note of what a magic raises as the last error, of which `%oomwhy` and `%debug` would
then talk. So a refusal knows what stood there before, and gives way to that after its cell.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from IPython.core.error import UsageError

from oommagic.errors import OommagicError

_LAST_ERROR = ("last_type", "last_value", "last_traceback", "last_exc")
# IPython shows a `UsageError` as a sentence, and no class of ours that is one.
_BEFORE = "_oommagic_before"
_NO_ROOM = "the host's memory is too full for that. Let go of something (del name) and ask again."


def refusal(words: str) -> UsageError:
    """Make what a magic raises that cannot do what was asked."""
    give_way(getattr(sys, "last_value", None))
    made = UsageError(words)
    before = {name: getattr(sys, name) for name in _LAST_ERROR if hasattr(sys, name)}
    setattr(made, _BEFORE, before)
    return made


def is_refusal(error: object) -> bool:
    """Say whether an error is a magic's of ours, and not the user's."""
    return isinstance(error, UsageError) and hasattr(error, _BEFORE)


def give_way(error: object) -> None:
    """Put the user's last error back, if a refusal has taken its place."""
    if not is_refusal(error) or getattr(sys, "last_value", None) is not error:
        return
    before = getattr(error, _BEFORE)
    for name in _LAST_ERROR:
        if name in before:
            setattr(sys, name, before[name])
        elif hasattr(sys, name):
            delattr(sys, name)


@contextmanager
def refusing(magic: str) -> Iterator[None]:
    """Say in one sentence what a magic of this name cannot do, or that it was interrupted."""
    try:
        yield
    except OommagicError as error:
        raise refusal(f"%{magic}: {error}") from None
    except KeyboardInterrupt:
        raise refusal(f"%{magic} was interrupted.") from None
    except MemoryError:
        raise refusal(f"%{magic}: {_NO_ROOM}") from None
