"""The benchmark's own virtual environments, one for each Python."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PEERS = {"memray": "memray", "scalene": "scalene", "fil": "filprofiler"}
"""Peers that are not oommagic's own dependencies, by the name of their distribution."""

_DISTRIBUTIONS = ("ipython", "tensorflow-cpu", "numpy", "memory-profiler", *PEERS.values())


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with oommagic, TensorFlow and each peer that installs."""

    python: Path
    versions: Mapping[str, str]
    refusals: Mapping[str, str]
    """Why a peer would not install, by the peer's name."""

    def command(self, name: str) -> str:
        """Name the path of a command that a package installed here."""
        return str(self.python.parent / name)


def prepare(version: str) -> Environment:
    """Make the environment for this Python, or bring the one that is there up to date."""
    folder = ROOT / ".envs" / f"bench{version.replace('.', '')}"
    python = folder / "bin" / "python"
    if not python.exists():
        _uv("venv", "--quiet", "--python", _find_python(version), str(folder))
    _install(python, "-e", f"{ROOT}[cpu]")
    refusals = {name: _refusal(python, distribution) for name, distribution in PEERS.items()}
    return Environment(
        python=python,
        versions=_versions(python),
        refusals={name: reason for name, reason in refusals.items() if reason},
    )


def _find_python(version: str) -> str:
    found = subprocess.run(
        [ROOT / ".ci" / "find-python", version], check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


def _uv(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "uv", *arguments], check=True)


def _install(python: Path, *requirements: str) -> None:
    _uv("pip", "install", "--quiet", "--python", str(python), *requirements)


def _refusal(python: Path, distribution: str) -> str:
    """Install a peer; an empty text says that it worked."""
    outcome = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, distribution],
        check=False,
        capture_output=True,
        text=True,
    )
    return "" if outcome.returncode == 0 else last_line(outcome.stderr)


def last_line(text: str) -> str:
    """Keep the line in which a program that failed usually says why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _versions(python: Path) -> dict[str, str]:
    listed = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "freeze", "--quiet", "--python", python],
        check=True,
        capture_output=True,
        text=True,
    )
    pairs = (line.split("==") for line in listed.stdout.splitlines() if "==" in line)
    return {name: number for name, number in pairs if name in _DISTRIBUTIONS}
