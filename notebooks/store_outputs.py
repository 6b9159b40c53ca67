"""Runs the notebooks and stores what they show: `python notebooks/store_outputs.py`."""

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
# Tracebacks name files of the machine that ran the notebook: their folders are of no use to a
# reader. What stands between the folder and the rest may be dressed in terminal colours.
_FOLDER = re.compile(r"(?:~|/)[^\s\"'<>]*?/(?=lib/python3|ipykernel_\d)")
_CLIENT_METADATA = ("execution",)


def main() -> int:
    """Run every notebook here and write it back with its outputs."""
    for path in sorted(HERE.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
        for cell in notebook.cells:
            _clean(cell)
        # The name of the kernel's Python is this machine's; readers have their own.
        notebook.metadata["language_info"] = {"name": "python"}
        nbformat.write(notebook, path)
        print(f"stored {path.name}")
    return 0


def _clean(cell: nbformat.NotebookNode) -> None:
    for name in _CLIENT_METADATA:
        cell.metadata.pop(name, None)
    for output in cell.get("outputs", ()):
        for field in ("text", "evalue"):
            if field in output:
                output[field] = _FOLDER.sub("…/", output[field])
        if "traceback" in output:
            output["traceback"] = [_FOLDER.sub("…/", line) for line in output["traceback"]]
        data = output.get("data", {})
        for kind in ("text/plain", "text/html"):
            if kind in data:
                data[kind] = _FOLDER.sub("…/", data[kind])


if __name__ == "__main__":
    sys.exit(main())
