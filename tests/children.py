"""Real child processes: TensorFlow reads its environment once, and makes its devices once."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ARENA = {
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": "256",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}

_NO_ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "0"}
_PATIENCE_S = 120
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
        timeout=_PATIENCE_S,
        check=False,
    )
    return _told(ran.returncode, ran.stdout, ran.stderr)


def run_after_import(source: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Do the same where TensorFlow is imported already, with oneDNN off: that saves seconds."""
    with (
        tempfile.NamedTemporaryFile("r", encoding="utf-8") as output,
        tempfile.NamedTemporaryFile("r", encoding="utf-8") as errors,
    ):
        code = _importer().run(
            source=_BEFORE + source + _AFTER,
            environment=_environment({**(env or {}), **_NO_ONEDNN}),
            folder=str(Path.cwd()),
            output=output.name,
            errors=errors.name,
        )
        return _told(code, output.read(), errors.read())


class _Importer:
    """The interpreter that imports TensorFlow once for all tests of a worker."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(ROOT / "tests/after_import.py")],
            env=_environment(_NO_ONEDNN),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._process.wait()  # it lives on in a fork of its own
        atexit.register(self._end)

    def run(self, **task: object) -> int:
        """Have a fork of it do a task, and give the code with which that ended."""
        asking, answering = self._process.stdin, self._process.stdout
        assert asking is not None
        assert answering is not None
        asking.write(json.dumps(task) + "\n")
        asking.flush()
        code = answering.readline() if select.select([answering], [], [], _PATIENCE_S)[0] else ""
        if not code:  # too late, or it has died
            self._end()
            _importer.cache_clear()
            raise subprocess.TimeoutExpired("a fork of after_import.py", _PATIENCE_S)
        return int(code)

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


_importer = cache(_Importer)


def _told(code: int, output: str, errors: str) -> dict[str, Any]:
    assert code == 0, f"exit code {code}\n{errors[-4000:]}"
    told: dict[str, Any] = json.loads(output.splitlines()[-1])
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
