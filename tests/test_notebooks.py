"""The notebooks that we ship, run from the first cell to the last in a real kernel."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def texts(cell: nbformat.NotebookNode) -> str:
    """All that a cell shows, as text."""
    shown = [
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
    ]
    return "\n".join(shown)


def told(cell: nbformat.NotebookNode) -> str:
    """All that a cell shows, wherever its lines break."""
    return " ".join(texts(cell).split())


def run(name: str) -> list[nbformat.NotebookNode]:
    """Run a notebook as its reader would, and return its code cells."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    NotebookClient(notebook, timeout=1200, kernel_name="python3").execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.slow_once
def test_the_first_notebook_runs_out_names_the_line_and_then_trains() -> None:
    cells = run("01_first_profile.ipynb")
    host, device, value, fits = cells[3:]
    assert "images = images.astype(np" in texts(host)
    assert "Ran out of memory at line 15" in texts(device)
    assert "trained on batches of 8" in texts(device)
    assert "ResourceExhaustedError at line 15" in texts(value)
    assert "Finished in" in texts(fits)


@pytest.mark.beside
def test_the_notebook_on_batches_says_what_fits_measures_it_and_proves_it() -> None:
    cells = run("02_which_batch_fits.ipynb")
    asked, as_values, measured, proven, too_large = cells[3:]
    assert re.search(r"Batch \d+ fits this device: ", told(asked))
    assert "fits into 300 MB: " in told(as_values)
    assert told(measured).count("MB measured") == 3
    assert "proven to fit into 300 MB: " in told(proven)
    assert texts(too_large) == "ran out, as predicted\n"


@pytest.mark.beside
def test_the_notebook_on_fixes_tries_the_articles_and_tells_what_is_not_true() -> None:
    cells = run("03_fixes_measured.ipynb")
    report, tried, _, _, embedding, accumulated, returned, data = cells[3:]
    assert "the cell caught the error" in told(report)
    assert "Why: The step is too big for CPU:0" in told(report)
    assert re.search(r"smaller-batch +ran out -> finished at \d+ MB", texts(tried))
    assert re.search(r"gradient-accumulation +ran out -> finished at \d+ MB", texts(tried))
    assert re.search(r"smaller-embedding .* -> finished at \d+ MB", texts(embedding))
    assert texts(accumulated) == "the same weights, to the bit: nothing was accumulated\n"
    assert "500 steps later" in texts(returned)
    assert "from_tensor_slices" in texts(data)


@pytest.mark.beside
def test_the_notebook_on_running_out_names_three_causes_and_the_list_to_blame() -> None:
    cells = run("04_why_it_ran_out.ipynb")
    too_big, trained, grows, fails, why, trained_again = cells[3:]
    assert "Why: The step is too big for CPU:0: at batch size 384" in told(too_big)
    assert "What filled CPU:0 when it ran out" in told(too_big)
    assert "`losses` keeps tensors of each" in told(grows)
    assert "line 19: losses.append" in told(grows)
    assert [output.ename for output in fails.outputs] == ["ResourceExhaustedError"]
    assert "Why: What ran before still holds" in told(why)
    assert "object losses" in told(why)
    assert texts(trained) == texts(trained_again) == "trained\n"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_its_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    asked = [cell for cell in notebook.cells if cell.source.startswith(("%%oomp", "%oomb"))]
    assert asked
    shown = [cell for cell in asked if not cell.source.startswith("%%oomprofile -q")]
    assert shown
    assert all("host" in texts(cell) or "fits" in texts(cell) for cell in shown)
