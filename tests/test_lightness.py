"""A profiler must not take the memory that it measures: what loading oommagic loads."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "tensorflow",
    "keras",
    "numpy",
    "matplotlib",
    "psutil",
    "pynvml",
    "memory_profiler",
    "ipywidgets",
    "anywidget",
)

IMPORT = "import oommagic"
LOAD_EXTENSION = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
shell.run_line_magic("load_ext", "oommagic")
assert "oommagic.magics" in sys.modules, "the extension did not load"
"""


def heavy_packages_after(code: str) -> set[str]:
    """Run the code in a fresh Python; name the heavy packages that it brought."""
    program = (
        "import sys, json\nbefore = set(sys.modules)\n"
        f"{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    child = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    brought = json.loads(child.stdout.splitlines()[-1])
    return {name.partition(".")[0] for name in brought} & set(HEAVY)


@pytest.mark.parametrize("code", [IMPORT, LOAD_EXTENSION], ids=["import", "load_ext"])
def test_loading_oommagic_loads_no_heavy_package(code: str) -> None:
    assert heavy_packages_after(code) == set()


@pytest.mark.parametrize("package", ["numpy", "psutil"])
def test_a_heavy_package_that_is_loaded_is_caught(package: str) -> None:
    assert package in heavy_packages_after(f"{IMPORT}\nimport {package}")
    assert package in heavy_packages_after(f"{LOAD_EXTENSION}\nimport {package}")
