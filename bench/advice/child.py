"""Runs in a process of its own: prints, as JSON, what came of the suggestions for one program.

`python -m bench.advice.child NAME`; the first cell runs, the second is profiled, and then each
suggestion with a change is tried as `%oomtry` does.
"""

import json
import os
import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import oommagic
from bench.advice.programs import PROGRAMS, Program
from oommagic.errors import OommagicError
from oommagic.report import HOST, Finding, Report, Trial, TrialRun
from oommagic.trying import try_fixes


def main(name: str) -> int:
    """Try what is suggested for a program of that name."""
    program = next(one for one in PROGRAMS if one.name == name)
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        with capture_output():
            tried = _try_all(program)
        os.chdir("/")
    print(json.dumps(tried))
    return 0


def _try_all(program: Program) -> list[dict[str, Any]]:
    oommagic.use_device(program.device)
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "oommagic")
    shell.run_cell(program.before).raise_error()
    if program.host_mb:
        _limit_host(program.host_mb)
    shell.run_cell(f"%%oomprofile -q\n{program.cell}")
    report = oommagic.last_report()
    numbered = enumerate(report.findings, start=1)
    return [
        _tried(program, report, number, shell.user_ns)
        for number, one in numbered
        if one.fix is not None
    ]


def _limit_host(more_mb: int) -> None:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (kib * 1024 + more_mb * 2**20, hard))


def _tried(
    program: Program, report: Report, number: int, namespace: dict[str, Any]
) -> dict[str, Any]:
    finding = report.findings[number - 1]
    about = {
        "program": program.name,
        "rule": finding.rule,
        "title": finding.title,
        "cause": report.verdict.cause if report.verdict is not None else "none",
        "place": finding.place,
    }
    try:
        (trial,) = try_fixes(report, namespace, [number])
    except OommagicError as error:
        return {**about, "not_tried": str(error)}
    return {**about, **_outcome(finding, trial)}


def _outcome(finding: Finding, trial: Trial) -> dict[str, Any]:
    saving = finding.saving
    return {
        "predicted_bytes": None if saving is None else [saving.low_bytes, saving.high_bytes],
        "before_outcome": trial.before.outcome,
        "after_outcome": trial.after.outcome,
        "before_bytes": _peak(trial.before, finding.place),
        "after_bytes": _peak(trial.after, finding.place),
        "before_step_s": trial.before.step_s,
        "after_step_s": trial.after.step_s,
        "message": trial.after.message,
    }


def _peak(run: TrialRun, place: str) -> int | None:
    return run.host_peak_bytes if place == HOST else run.device_peak_bytes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
