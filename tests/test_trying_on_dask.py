"""Trials on a real Dask cluster of processes on this machine."""

import pytest
from children import ROOT, run_python

pytestmark = pytest.mark.slow_once

_CLUSTER = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import dataclasses, os, signal, tempfile
import numpy as np
from distributed import Client, LocalCluster
from test_trying import finding
import oommagic
from oommagic.magics import open_shell
from oommagic.trying import try_fixes
os.chdir(tempfile.mkdtemp())
shell = open_shell()
cell = "a = x.astype('float64')\\nb = a + 1\\n"
shell.run_cell("import numpy as np\\nx = np.ones(10_000_000, 'float32')")
shell.run_cell("%%oomprofile -q\\n" + cell)
report = dataclasses.replace(oommagic.last_report(), findings=(
    finding(cell, "float64", "float32"), finding(cell, "a + 1", "np.add(a, 1, out=a)"),
))
with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                  memory_limit=0) as cluster, Client(cluster) as client:
    executor = client.get_executor()
    trials = try_fixes(report, shell.user_ns, executor=executor, progress=lambda line: None)
    told["trials"] = [dataclasses.asdict(trial) for trial in trials]
    workers = set(client.run(os.getpid).values())
    told["workers"] = len(workers - {{os.getpid()}})
    deadly = dataclasses.replace(report, source="import os\\nos.kill(os.getppid(), 9)\\n")
    deadly = dataclasses.replace(deadly, findings=(finding(deadly.source, "9", "9 "),))
    cluster.scheduler.allowed_failures = 0
    (dead,) = try_fixes(deadly, shell.user_ns, executor=executor, progress=lambda line: None)
    told["dead"] = dataclasses.asdict(dead)
"""


def test_a_dask_cluster_runs_them() -> None:
    told = run_python(_CLUSTER)
    smaller, in_place = told["trials"]
    assert told["workers"] == 2
    assert smaller["before"] == in_place["before"]
    peaks = [
        run["host_peak_bytes"] / 1e6
        for run in (smaller["before"], smaller["after"], in_place["after"])
    ]
    assert peaks == [pytest.approx(want, rel=0.05) for want in (160, 80, 80)]
    assert told["dead"]["before"]["outcome"] == "died"
    assert "the executor's worker failed: KilledWorker" in told["dead"]["before"]["message"]
