"""Lets models run out of memory on a small training device, each in a real Jupyter kernel.

Run from the root of the checkout, all models or those that are named:
`python -m bench.running_out.run [MODEL ...]`.

Each kernel asks for the device with `%oomdevice` and trains one step at batch 2, 4, 8 and so on,
until the device is too small; that size, twice it and four times it are what counts. After each
step the model trains at batch 2 again. TensorFlow waits ten seconds before it says that an
allocation failed, which nothing can shorten; most of the time passes there.
"""

import ast
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = Path(__file__).with_name("results.json")
DEVICE = "512MB"
KERNELS_AT_ONCE = 2
_SIZES = 3
_PATIENCE_S = 300
_SMALL = 2
_LARGEST = 2**17
_MODELS = (
    "cnn",
    "resnet50",
    "mobilenet_v2",
    "lstm",
    "gru",
    "transformer",
    "embedding_classifier",
    "unet",
    "conv3d",
    "gan",
)

_PREPARE = f"""
%load_ext oommagic
%oomdevice {DEVICE}
import os
from bench.running_out.models import MODELS
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One training step that needs more than the device has, and what came after it."""

    model: str
    batch: int
    raised: str
    """The error's name; empty where there was none."""
    said: str
    seconds: float
    kernel_lived: bool
    then_trained: bool

    @property
    def is_fitting(self) -> bool:
        """Whether the device was large enough."""
        return self.kernel_lived and not self.raised


class Kernel:
    """A Jupyter kernel that is spoken to as a notebook speaks to it."""

    def __init__(self, manager: KernelManager, client: Any) -> None:
        """Speak to a kernel that runs."""
        self._manager = manager
        self._client = client

    @property
    def lives(self) -> bool:
        """Whether its process is there."""
        return bool(self._manager.is_alive())

    def run(self, cell: str) -> tuple[str, str]:
        """Run a cell; give the name and the words of its error, or two empty texts."""
        reply = self._client.execute_interactive(
            cell, timeout=_PATIENCE_S, output_hook=lambda _message: None, stop_on_error=False
        )["content"]
        return reply.get("ename", ""), reply.get("evalue", "")

    def value_of(self, expression: str) -> Any:
        """Give the value of an expression that can be written down."""
        reply = self._client.execute_interactive(
            "",
            user_expressions={"value": expression},
            timeout=_PATIENCE_S,
            output_hook=lambda _message: None,
        )["content"]["user_expressions"]["value"]
        if reply["status"] != "ok":
            raise RuntimeError(f"{expression}: {reply['ename']}: {reply['evalue'][:300]}")
        return ast.literal_eval(reply["data"]["text/plain"])


@contextmanager
def running_kernel() -> Iterator[Kernel]:
    """Start a kernel, and end it."""
    with TemporaryDirectory() as folder:
        # Sockets in a folder of our own, so that nobody else on the machine can speak to it.
        manager = KernelManager(
            transport="ipc", ip=f"{folder}/socket", connection_file=f"{folder}/connection.json"
        )
        yield from _running(manager)


def _running(manager: KernelManager) -> Iterator[Kernel]:
    manager.start_kernel(
        cwd=str(ROOT),
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        extra_arguments=["--HistoryManager.hist_file=:memory:"],
    )
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def attempts(model: str) -> list[Attempt]:
    """Let one model run out, three times in one kernel."""
    with running_kernel() as kernel:
        error = kernel.run(f"{_PREPARE}\ntrain = MODELS[{model!r}]()\n")
        if any(error):
            raise RuntimeError(f"{model}: {': '.join(error)}")
        batch, found = _SMALL, list[Attempt]()
        while len(found) < _SIZES and batch <= _LARGEST:
            attempt = _attempt(kernel, model, batch)
            if found or not attempt.is_fitting:
                found.append(attempt)
            if not attempt.kernel_lived:
                break
            batch *= 2
        return found


def _attempt(kernel: Kernel, model: str, batch: int) -> Attempt:
    started = monotonic()
    try:
        pid = kernel.value_of("os.getpid()")
        raised, said = kernel.run(f"train({batch})")
        seconds = round(monotonic() - started, 1)
        lived = kernel.lives and kernel.value_of("os.getpid()") == pid
        trained = lived and not any(kernel.run(f"train({_SMALL})"))
    except TimeoutError:
        # What a front end sees of a kernel that is gone.
        gone = "the kernel is gone"
        return Attempt(model, batch, "", gone, _PATIENCE_S, kernel_lived=False, then_trained=False)
    told = next((line for line in said.splitlines() if "OOM" in line), said)
    return Attempt(
        model, batch, raised, told[:200], seconds, kernel_lived=lived, then_trained=trained
    )


def main(wanted: Sequence[str]) -> int:
    """Run the models, print and (where it was all of them) write what came out."""
    with ThreadPoolExecutor(KERNELS_AT_ONCE) as pool:
        found = [
            attempt
            for per_model in pool.map(attempts, wanted or _MODELS)
            for attempt in _printed(per_model)
        ]
    good = [one for one in found if one.raised == "ResourceExhaustedError" and one.then_trained]
    wanted_count = _SIZES * len(wanted or _MODELS)
    print(f"{len(good)} of {wanted_count} raised, and their kernels trained on")
    if not wanted:
        text = json.dumps({"device": DEVICE, "attempts": list(map(asdict, found))}, indent=2)
        RESULTS.write_text(text + "\n", encoding="utf-8")
    return 0 if len(good) == wanted_count else 1


def _printed(found: Sequence[Attempt]) -> Sequence[Attempt]:
    for one in found:
        print(
            f"{one.model} at batch {one.batch}: {one.raised or one.said or 'no error'} "
            f"after {one.seconds} s; "
            f"{'trained on' if one.then_trained else 'did not train on'}",
            flush=True,
        )
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
