"""`python -m oommagic`, as a user types it."""

import subprocess
import sys
from pathlib import Path

import pytest
from samples import failed_training


def oommagic(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "oommagic", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow_once
def test_the_demo_runs_out_on_512_mb_and_shows_the_line() -> None:
    done = oommagic("demo")
    assert done.returncode == 0, done.stderr
    assert "Ran out of memory at line 19" in done.stdout
    assert "of 512 MB" in done.stdout


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
