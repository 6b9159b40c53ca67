"""An output in a notebook that says how far something is, until the answer stands there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self
from uuid import uuid4

from IPython.display import publish_display_data

from oommagic.progress import Progress


class Place:
    """What is written to the screen and wiped out again would leave an empty box behind.

    Within `with`, what fails leaves nothing of it.
    """

    def __init__(self, doing: str) -> None:
        """Show nothing yet; `doing` stands before what is said."""
        self._doing = doing
        self._transient = {"display_id": uuid4().hex}
        self._is_there = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self.empty()

    def empty(self) -> None:
        """Take away what was there."""
        if self._is_there:
            self.show({"text/plain": ""})

    def say(self, text: str) -> None:
        """Say what is being done."""
        self.show({"text/plain": f"{self._doing}: {text} …"})

    def show(self, bundle: dict[str, object]) -> None:
        """Show this in place of what was there."""
        publish_display_data(bundle, transient=self._transient, update=self._is_there)
        self._is_there = True


@contextmanager
def saying_in_place(doing: str) -> Iterator[Progress]:
    """Say how far something is, and leave nothing of it."""
    with Place(doing) as place:
        yield place.say
        place.empty()
