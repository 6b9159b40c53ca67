"""A model that needs more than a small device has: it raises, and its kernel trains on.

All ten models are the benchmark's (`python -m bench.running_out.run`): TensorFlow waits ten
seconds before it says that an allocation failed.
"""

import subprocess
import sys

import pytest
from children import ROOT

pytestmark = pytest.mark.of_tensorflow


@pytest.mark.long
def test_three_sizes_too_large_raise_in_one_kernel_and_it_trains_on_after_each() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench.running_out.run", "gan"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
    assert lines[-1] == "3 of 3 raised, and their kernels trained on"
    assert all("ResourceExhaustedError" in line and "trained on" in line for line in lines[:3])
