"""What has been measured so far, in a file: a bench that was broken off goes on where it was."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class NotMeasuredError(Exception):
    """A figure is not in the ledger, and nothing may be measured now."""


class Ledger:
    """Figures by case, kind and batch. Each is measured once, printed, and written down."""

    def __init__(self, path: Path, *, is_closed: bool = False) -> None:
        """Go on with what stands in the file, if there is one; a closed one measures nothing."""
        self._path = path
        self._is_closed = is_closed
        self._known: dict[str, Any] = {}
        if path.exists():
            self._known = json.loads(path.read_text(encoding="utf-8"))

    def forget(self, *kinds: str) -> None:
        """Measure figures of these kinds again."""
        for figures in self._known.values():
            for kind in kinds:
                figures.pop(kind, None)

    def known(self, case: str, kind: str) -> Mapping[str, Any]:
        """Give what is known of that kind, by batch."""
        found: Mapping[str, Any] = self._known.get(case, {}).get(kind, {})
        return found

    def recall(self, case: str, kind: str, batch: int | str, measure: Callable[[], Any]) -> Any:
        """Give the figure, and measure it where it is not known."""
        figures = self._known.setdefault(case, {}).setdefault(kind, {})
        if str(batch) not in figures:
            if self._is_closed:
                raise NotMeasuredError(f"{case}: {kind} {batch}".rstrip())
            figures[str(batch)] = measure()
            print(f"{case}: {kind} {batch}: {json.dumps(figures[str(batch)])}", flush=True)
            self._path.write_text(json.dumps(self._known, indent=1) + "\n", encoding="utf-8")
        return figures[str(batch)]
