"""Runs the workloads in all their ways, interleaved, and keeps what each process said."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.environments import ROOT, Environment, last_line
from bench.overhead.ways import PEERS, PLAIN, Way
from bench.overhead.workloads import Workload

_SAID = re.compile(r"^MEASURED (\w+) (\S+) (\d+)$", re.MULTILINE)
_LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is run."""

    rounds: int
    pairs: int
    """How often a round's shell runs the plain and the profiled cell."""
    scale: float

    def iterations(self, workload: Workload) -> int:
        """Say how many iterations of a workload are run."""
        return max(1, int(workload.default_iterations * self.scale))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One profiler on one workload: its ratios to the plain run of the same form."""

    workload: str
    profiler: str
    form: str
    ratios: tuple[float, ...] = ()
    plain_iteration_s: float = 0.0
    engine: str = ""
    failures: tuple[str, ...] = ()
    """Why it would not install, or each failed run's last words."""

    @property
    def ratio(self) -> float:
        """The figure that the table shows."""
        return median(self.ratios)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per iteration of each workload that ran, and why the others did not."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Round:
    """Every way run once, and one shell's pairs of cells."""

    times: Mapping[str, Times]
    pairs: Mapping[str, Sequence[tuple[float, float]]]
    engine: str = ""
    failure: str = ""


class DidNotRunError(Exception):
    """A process failed or took too long; the text is its last words."""


def run_round(here: Environment, workloads: Sequence[Workload], effort: Effort) -> Round:
    """Run the cells, the plain scripts and the peers one after the other."""
    times = {
        way.name: _times(here, way, workloads, effort)
        for way in (*PLAIN.values(), *PEERS)
        if way.name not in here.refusals
    }
    try:
        pairs, engine = _cells(here, workloads, effort)
    except DidNotRunError as error:
        return Round(times, {}, failure=str(error))
    return Round(times, pairs, engine)


def _times(here: Environment, way: Way, workloads: Sequence[Workload], effort: Effort) -> Times:
    """Run all workloads in one process, and each that did not end there in one of its own."""
    seconds, _ = _process(here, way, workloads, effort)
    failures = {}
    for workload in workloads:
        if workload.name not in seconds:
            alone, words = _process(here, way, [workload], effort)
            seconds |= alone
            if not alone:
                failures[workload.name] = words
    return Times(seconds, failures)


def _process(
    here: Environment, way: Way, workloads: Sequence[Workload], effort: Effort
) -> tuple[dict[str, float], str]:
    """Give the seconds per iteration that a process said, and its last words."""
    texts = (way.text(work, way.iterations(work, effort.iterations(work))) for work in workloads)
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "work.py").write_text("\n".join(texts), encoding="utf-8")
        printed, words = _run([*way.command(here), "work.py"], scratch)
    said = _SAID.findall(printed)
    return {name: float(elapsed) / int(count) for name, elapsed, count in said}, words


def _cells(
    here: Environment, workloads: Sequence[Workload], effort: Effort
) -> tuple[dict[str, list[tuple[float, float]]], str]:
    """Give each workload's pairs of plain and profiled seconds per iteration, and the engine."""
    work = {
        workload.name: {
            "preparation": workload.preparation(effort.iterations(workload)),
            "body": workload.timed_body(),
        }
        for workload in workloads
    }
    asked = json.dumps({"pairs": effort.pairs, "work": work})
    command = [str(here.python), "-m", "bench.overhead.cells"]
    printed, words = _run(command, str(ROOT), asked)
    try:
        answer = json.loads(last_line(printed))
    except json.JSONDecodeError as error:
        raise DidNotRunError(words) from error
    pairs = {
        workload.name: [
            (plain / effort.iterations(workload), profiled / effort.iterations(workload))
            for plain, profiled in answer["pairs"][workload.name]
        ]
        for workload in workloads
    }
    return pairs, answer["engine"]


def _run(command: list[str], folder: str, given: str = "") -> tuple[str, str]:
    """Give what a process printed and the last line of its errors; it may have failed."""
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=quiet,
            input=given,
            text=True,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"it took longer than {_LIMIT_S} s"
    return done.stdout, last_line(done.stderr)


def compare(
    here: Environment, workloads: Sequence[Workload], rounds: Sequence[Round]
) -> Iterator[Comparison]:
    """Draw the ratios from all rounds."""
    for workload in workloads:
        yield _ours(workload.name, rounds)
        for way in PEERS:
            reason = here.refusals.get(way.name)
            if reason:
                refusal = (f"would not install: {reason}",)
                yield Comparison(workload.name, way.name, way.form, failures=refusal)
            else:
                yield _theirs(workload.name, way, rounds)


def _ours(name: str, rounds: Sequence[Round]) -> Comparison:
    pairs = [pair for found in rounds for pair in found.pairs.get(name, ())]
    return Comparison(
        name,
        "oomprofile",
        "cell",
        ratios=tuple(profiled / plain for plain, profiled in pairs),
        plain_iteration_s=median(plain for plain, _ in pairs) if pairs else 0.0,
        engine=next((found.engine for found in rounds if found.engine), ""),
        failures=tuple(found.failure for found in rounds if found.failure),
    )


def _theirs(name: str, way: Way, rounds: Sequence[Round]) -> Comparison:
    """Use the rounds in which both ran, and keep the others' reasons."""
    ran = [
        (plain.seconds[name], own.seconds[name])
        for plain, own in _plain_and_own(way, rounds)
        if name in plain.seconds and name in own.seconds
    ]
    failures = [
        own.failures[name] for _, own in _plain_and_own(way, rounds) if name in own.failures
    ]
    return Comparison(
        name,
        way.name,
        way.form,
        ratios=tuple(own / plain for plain, own in ran),
        plain_iteration_s=median(plain for plain, _ in ran) if ran else 0.0,
        failures=tuple(f"did not run: {words}" for words in failures),
    )


def _plain_and_own(way: Way, rounds: Sequence[Round]) -> list[tuple[Times, Times]]:
    return [(found.times[PLAIN[way.form].name], found.times[way.name]) for found in rounds]
