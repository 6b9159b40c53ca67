"""What has been measured so far, in a file: a bench that was broken off goes on where it was."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Ledger:
    """Figures by case, kind and batch. Each is measured once, printed, and written down."""

    def __init__(self, path: Path) -> None:
        """Go on with what stands in the file, if there is one."""
        self._path = path
        self._known: dict[str, Any] = {}
        if path.exists():
            self._known = json.loads(path.read_text(encoding="utf-8"))

    def forget(self, *kinds: str) -> None:
        """Measure figures of these kinds again."""
        for figures in self._known.values():
            for kind in kinds:
                figures.pop(kind, None)

    def recall(self, case: str, kind: str, batch: int | str, measure: Callable[[], Any]) -> Any:
        """Give the figure, and measure it where it is not known."""
        figures = self._known.setdefault(case, {}).setdefault(kind, {})
        if str(batch) not in figures:
            figures[str(batch)] = measure()
            print(f"{case}: {kind} {batch}: {json.dumps(figures[str(batch)])}", flush=True)
            self._path.write_text(json.dumps(self._known, indent=1) + "\n", encoding="utf-8")
        return figures[str(batch)]
