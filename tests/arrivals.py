"""Reads parcels as a child does, says what is in them, and trains each for a step.

`python arrivals.py FOLDER` reads what `travellers.py` has left there.
"""

import json
import pickle
import sys
from pathlib import Path
from typing import Any

from description import describe, order_of_making


def arrived(parcel: Path) -> dict[str, Any]:
    thing, batch = pickle.loads(parcel.read_bytes())  # noqa: S301 (packed by travellers.py)
    what, order = describe(thing), order_of_making(thing)
    step = getattr(thing, "train_on_batch", thing)
    step(*batch)
    slots = _slots(thing)
    return {"what": what, "order": order, "slots": slots, "second": float(_first(step(*batch)))}


def _first(told: Any) -> Any:
    if isinstance(told, dict):
        told = list(told.values())
    return told[0] if isinstance(told, list) else told


def _slots(thing: Any) -> int:
    return len(thing.optimizer.variables) if getattr(thing, "optimizer", None) else 0


def main(folder: Path) -> None:
    told = {path.stem: arrived(path) for path in sorted(folder.glob("*.parcel"))}
    (folder / "arrived.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
