"""A real JupyterLab with its own folders, as a user would start it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import nbformat
import pytest
from kernels import REPOSITORY, TESTS

PATIENCE_S = 90
_WIDGET_SETTINGS = "@jupyter-widgets/jupyterlab-manager/plugin.jupyterlab-settings"


@dataclass(frozen=True, slots=True)
class Lab:
    """A running server, and the folder of its notebooks."""

    url: str
    notebooks: Path

    def write(self, name: str, source: str) -> None:
        """Write a notebook of one cell."""
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source)], metadata={"kernelspec": kernel}
        )
        nbformat.write(notebook, self.notebooks / name)

    def saved(self, name: str) -> Any:
        """Read a notebook as it lies on the disk."""
        return json.loads((self.notebooks / name).read_text(encoding="utf-8"))

    def end_kernels(self) -> None:
        """Shut down every kernel, as one does in the evening."""
        with urlopen(f"{self.url}api/sessions") as answer:  # noqa: S310 - our own server
            sessions = json.load(answer)
        for session in sessions:
            address = f"{self.url}api/sessions/{session['id']}"
            urlopen(Request(address, method="DELETE")).close()  # noqa: S310 - likewise


@contextmanager
def running_lab(home: Path) -> Iterator[Lab]:
    """Start JupyterLab with widgets' state saved, or skip the test where it is not installed."""
    pytest.importorskip("jupyterlab")
    notebooks = home / "notebooks"
    notebooks.mkdir()
    settings = home / "settings" / _WIDGET_SETTINGS
    settings.parent.mkdir(parents=True)
    settings.write_text('{"saveState": true}', encoding="utf-8")
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            _command(notebooks), env=_environment(home), stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield Lab(_address(home / "run"), notebooks)
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def _command(notebooks: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        "--ServerApp.port=0",
        "--ServerApp.disable_check_xsrf=True",
        "--IdentityProvider.token=",
        f"--ServerApp.root_dir={notebooks}",
    ]


def _environment(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "run"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(TESTS))),
    }


def _address(runtime: Path) -> str:
    """Wait until the server says where it listens."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for told in runtime.glob("jpserver-*.json"):
            text = told.read_text(encoding="utf-8")
            if text:
                return str(json.loads(text)["url"])
        time.sleep(0.1)
    pytest.fail("JupyterLab did not start")
