"""`python -m oommagic`, as a user types it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples import failed_training

from oommagic import report

COLUMNS = 100


def oommagic(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "oommagic", *arguments]
    environment = {**os.environ, "COLUMNS": str(COLUMNS)}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=environment
    )


@pytest.mark.slow_once
def test_the_demo_runs_out_on_512_mb_and_says_why_and_what_filled_it(tmp_path: Path) -> None:
    saved = tmp_path / "demo.json"
    done = oommagic("demo", "-o", str(saved))
    assert done.returncode == 0, done.stderr
    parts = (
        "Ran out of memory at line 18",
        "Why: ",
        "│ source",
        "What filled CPU:0",
        " fits this device: ",
        "model.fit(images, labels, batch_size=plan.max",
        "Above: why",
    )
    places = [done.stdout.index(part) for part in parts]
    assert places == sorted(places)
    assert "of 512 MB" in done.stdout
    *lines, last = done.stdout.splitlines()
    assert "%oombatch" in lines[-2]
    assert str(saved) in last
    assert max(map(len, lines)) <= COLUMNS
    assert_the_demo_s(report.load(saved))


def assert_the_demo_s(found: report.Report) -> None:
    """Look at what the demo has saved."""
    assert found.verdict is not None
    assert (found.verdict.cause, found.verdict.line_number) == ("step too big", 18)
    (filled,) = found.compositions
    assert filled.moment == "failure"
    assert sum(holding.bytes for holding in filled.holdings) == filled.total_bytes


def test_a_saved_report_is_shown(tmp_path: Path) -> None:
    failed_training().save(tmp_path / "run.json")
    done = oommagic("show", str(tmp_path / "run.json"))
    assert done.returncode == 0, done.stderr
    assert "model.fit" in done.stdout


def test_a_missing_report_is_said_in_a_sentence(tmp_path: Path) -> None:
    done = oommagic("show", str(tmp_path / "none.json"))
    assert done.returncode == 1
    assert "none.json" in done.stderr
    assert "Traceback" not in done.stderr
