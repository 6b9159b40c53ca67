"""What suggestions are predicted to save, and what `%oomtry` measures, on programs that need them.

Each stage is a notebook of its own, in a real shell with a training device of its size. Where the
cell runs out on it, what it takes is measured once more on a device with room for it.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from children import ROOT
from staged_fixes import STAGES, Stage

pytestmark = [pytest.mark.long, pytest.mark.of_tensorflow]

_SHARE_HELD = 0.8
_STAGE_S = 900
_SLACK_BYTES = 1 << 20

_PROGRAM = """
import dataclasses, json, sys
stage = json.loads(sys.argv[1])
import oommagic
from oommagic.magics import open_shell
oommagic.use_device(stage["device"])
shell = open_shell()
told = {"before": [], "findings": []}
if stage["host"]:  # a machine with so little memory that the cell all but fills it
    from oommagic import diagnosis
    situation_of = diagnosis.situation_of
    def told_limit(*known):
        here = situation_of(*known)
        return dataclasses.replace(here, host_limit_bytes=int(here.host_peak_bytes / 0.9))
    diagnosis.situation_of = told_limit
shell.run_cell(stage["before"]).raise_error()
shell.run_cell("%%oomprofile -q\\n" + stage["cell"])
report = oommagic.last_report()
told["cell"] = dataclasses.asdict(report.outcome)
told["findings"] = [one.rule for one in report.findings]
number = told["findings"].index(stage["rule"]) + 1 if stage["rule"] in told["findings"] else 0
finding = report.findings[number - 1] if number else None
if finding is not None and finding.fix is not None:
    told["finding"] = dataclasses.asdict(finding)
    def tried(report):
        (trial,) = oommagic.try_fixes(report, [number], progress=lambda line: None)
        return dataclasses.asdict(trial)
    told["trial"] = tried(report)
    if told["trial"]["before"]["outcome"] == "ran out":
        roomy = tuple(
            dataclasses.replace(one, limit_bytes=8 * one.limit_bytes) for one in report.devices
        )
        told["roomy"] = tried(dataclasses.replace(report, devices=roomy))
print("\\n" + json.dumps(told))
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One stage: what was predicted, and what was measured. None: there was no prediction."""

    stage: str
    range_bytes: tuple[int, int] | None
    saved_bytes: int

    @property
    def is_held(self) -> bool:
        """Whether the range has the measured saving in it."""
        if self.range_bytes is None:
            return False
        low, high = self.range_bytes
        return low - _SLACK_BYTES <= self.saved_bytes <= high + _SLACK_BYTES

    def row(self) -> str:
        """Say it in one line, in megabytes."""
        low, high = (f"{one / 1e6:.1f}" for one in self.range_bytes or (0, 0))
        said = "held" if self.is_held else "NOT held" if self.range_bytes else "no prediction"
        return f"{self.stage:40} {low:>9} to {high:>9} {self.saved_bytes / 1e6:>10.1f}  {said}"


_measured: list[Measured] = []


def _told(stage: Stage) -> dict[str, Any]:
    """Run a stage in a process of its own."""
    asked = {
        name: getattr(stage, name, "") for name in ("rule", "cell", "before", "device", "host")
    }
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(asked)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=_STAGE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


def _peak(run: dict[str, Any], place: str) -> int:
    return int(run["host_peak_bytes" if place == "host" else "device_peak_bytes"])


@pytest.mark.parametrize("number", range(len(STAGES)), ids=lambda number: STAGES[number].rule)
def test_the_fixed_cell_runs_or_gets_further(number: int) -> None:
    stage = STAGES[number]
    told = _told(stage)
    assert stage.rule in told["findings"], told
    finding, trial = told["finding"], told["trial"]
    before, after = trial["before"], trial["after"]
    assert after["outcome"] == "finished" or before["outcome"] == "ran out", (before, after)
    if finding["runs_then"]:
        assert after["outcome"] == "finished", after
    roomy = told.get("roomy", trial)
    assert (roomy["before"]["outcome"], roomy["after"]["outcome"]) == ("finished", "finished")
    place, saving = finding["place"], finding["saving"]
    saved_bytes = _peak(roomy["before"], place) - _peak(roomy["after"], place)
    told_range = (saving["low_bytes"], saving["high_bytes"]) if saving else None
    _measured.append(Measured(f"{number} {stage.rule}", told_range, saved_bytes))


def test_predicted_ranges_hold_what_was_measured() -> None:
    table = "\n".join(one.row() for one in _measured)
    print(f"\n{'stage':40} {'predicted (MB)':>22} {'saved (MB)':>10}\n{table}")  # noqa: T201
    predicted = [one for one in _measured if one.range_bytes is not None]
    assert len(_measured) == len(STAGES), table
    assert sum(one.is_held for one in predicted) >= _SHARE_HELD * len(predicted), table
