"""Real child processes: TensorFlow reads its environment once, and makes its devices once."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ARENA = {
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": "256",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}

_BEFORE = "import json\ntold = {}\n"
_ANSWERING = """
import sys
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
"""
_AFTER = "\nprint('\\n' + json.dumps(told))\n"


def run_python(source: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run source in a new interpreter and give the `told` that it filled."""
    ran = subprocess.run(
        [sys.executable, "-c", _BEFORE + source + _AFTER],
        env=_environment(env or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, f"exit code {ran.returncode}\n{ran.stderr[-4000:]}"
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


class Conversation:
    """A child that answers questions, each one line of JSON."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, question: object) -> Any:
        """Send a question and wait for its answer."""
        asking, answering = self._process.stdin, self._process.stdout
        assert asking is not None
        assert answering is not None
        asking.write(json.dumps(question) + "\n")
        asking.flush()
        return json.loads(answering.readline())


@contextmanager
def talk_to_python(source: str, env: Mapping[str, str] | None = None) -> Iterator[Conversation]:
    """Start source, which defines `answer(question)`, and let it answer until the end."""
    with subprocess.Popen(
        [sys.executable, "-c", _BEFORE + source + _ANSWERING],
        env=_environment(env or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Conversation(process)
        finally:
            if process.stdin is not None:
                process.stdin.close()


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    return {**kept, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **extra}
