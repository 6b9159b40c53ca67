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

    def write(self, name: str, *sources: str) -> None:
        """Write a notebook of these cells."""
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
        nbformat.write(notebook, self.notebooks / name)

    def saved(self, name: str) -> Any:
        """Read a notebook as it lies on the disk."""
        return json.loads((self.notebooks / name).read_text(encoding="utf-8"))

    def wait_for_saved_widgets(self, page: Any, name: str) -> None:
        """Wait until a notebook lies on the disk with the state of its widgets."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._has_widgets(name) and time.monotonic() < deadline:
            page.wait_for_timeout(100)

    def _has_widgets(self, name: str) -> bool:
        try:
            return "widgets" in self.saved(name)["metadata"]
        except json.JSONDecodeError:  # just being written
            return False

    def interrupt_kernels(self) -> None:
        """Interrupt every kernel, as its button does."""
        with urlopen(f"{self.url}api/kernels") as answer:  # noqa: S310 - our own server
            kernels = json.load(answer)
        for kernel in kernels:
            address = f"{self.url}api/kernels/{kernel['id']}/interrupt"
            urlopen(Request(address, method="POST")).close()  # noqa: S310 - likewise

    def end_kernels(self) -> None:
        """Shut down every kernel, as one does in the evening."""
        with urlopen(f"{self.url}api/sessions") as answer:  # noqa: S310 - our own server
            sessions = json.load(answer)
        for session in sessions:
            address = f"{self.url}api/sessions/{session['id']}"
            urlopen(Request(address, method="DELETE")).close()  # noqa: S310 - likewise


class SavedWidget:
    """A widget as it lies in a notebook's file, known by a trait of its own."""

    def __init__(self, notebook: Any, trait: str) -> None:
        self.notebook = notebook
        self.trait = trait

    def get_state(self) -> Any:
        """Find its state among those of all widgets."""
        saved = self.notebook["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]
        states = (each["state"] for each in saved["state"].values())
        return next(state for state in states if self.trait in state)


def opened_notebook(browser: Any, lab: Lab, name: str, **options: object) -> Any:
    """Open a notebook in JupyterLab and wait for its kernel."""
    page = browser.new_page(viewport={"width": 1200, "height": 900}, **options)
    page.set_default_timeout(PATIENCE_S * 1000)
    page.goto(f"{lab.url}lab/tree/{name}?reset")
    # The notebook's own indicator is idle before there is a kernel, and a cell run then is lost.
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    return page


def reopened_notebook(browser: Any, lab: Lab, name: str, widget: str) -> Any:
    """Open a notebook with a saved widget, again where JupyterLab was too quick for itself.

    Now and then it looks for the widget before it has read its state from the notebook, and stays
    with "model not found" until the page is loaded anew.
    """
    for _ in range(3):
        page = opened_notebook(browser, lab, name)
        shown = page.locator(widget)
        shown.or_(page.get_by_text("Error displaying widget: model not found")).first.wait_for()
        if shown.count():
            return page
        page.close()
    pytest.fail("the saved widget was not shown")


def run_cell(page: Any, number: int) -> None:
    """Run a cell as a user does; the first one is 0."""
    page.locator(".jp-CodeCell .cm-content").nth(number).click()
    page.keyboard.press("Shift+Enter")


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
