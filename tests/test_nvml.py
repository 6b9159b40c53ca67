"""GPU sensors, asked through the genuine nvidia-ml-py of a driver library compiled here."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oommagic.report import Gpu

TESTS = Path(__file__).parent
STUB = TESTS / "nvml_stub.c"
MIB = 1024 * 1024

T4 = Gpu(
    index=0,
    name="Stand-in T4",
    total_bytes=16000 * MIB,
    used_by_others_bytes=3100 * MIB,
    utilization_percent=0.0,
    temperature_c=41.0,
    power_w=9.8,
)
L4 = replace(
    T4,
    index=1,
    name="Stand-in L4",
    utilization_percent=97.0,
    temperature_c=68.0,
    power_w=71.5,
)

SETUP = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
from oommagic.measure.nvml import open_gpus

def ask(gpus):
    return [asdict(gpu) for gpu in gpus.read()]

def sessions():
    import pynvml
    return pynvml.nvmlLib.stub_sessions()

def tell(**known):
    print(json.dumps(known))

root = Path(os.environ["STUB_ROOT"])
"""
READ_ONCE = """
gpus = open_gpus(root)
tell(status=gpus.status, gpus=ask(gpus), notes=gpus.notes)
gpus.close()
"""


def compile_driver(folder: Path, *flags: str) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.fail("These tests compile a stand-in for NVIDIA's driver: install gcc.")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-Wall", "-Werror", "-shared", "-fPIC", *flags, "-o"]
    subprocess.run([*command, str(library), str(STUB)], check=True)
    return folder


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Lay out a machine that is not a container, whatever these tests run in."""
    return lay_out(tmp_path / "machine", "pid:[4026531836]")


@pytest.fixture
def container(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "container", "pid:[4026532201]")


def lay_out(root: Path, pid_namespace: str) -> Path:
    folder = root / "proc/self/ns"
    folder.mkdir(parents=True)
    (folder / "pid").symlink_to(pid_namespace)
    return root


def run(script: str, driver: Path, root: Path, **told: str) -> dict[str, Any]:
    """Run a script in a process that finds this driver, and give what it tells."""
    path = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(driver),
        "PYTHONPATH": path,
        "STUB_ROOT": str(root),
        **told,
    }
    command = [sys.executable, "-W", "error", "-c", SETUP + script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def gpus_in(answer: Mapping[str, Any]) -> list[Gpu]:
    return [Gpu(**gpu) for gpu in answer["gpus"]]


def test_two_gpus_tell_everything_they_know(driver: Path, machine: Path) -> None:
    answer = run(READ_ONCE, driver, machine)
    assert gpus_in(answer) == [T4, L4]
    assert answer["status"] == "2 NVIDIA GPUs, read through NVML."
    assert answer["notes"] == []


def test_a_sensor_that_fails_is_none_and_named_while_the_others_are_shown(
    driver: Path, machine: Path
) -> None:
    answer = run(READ_ONCE, driver, machine, STUB_FAILS="power", STUB_CODE="3")
    note = "The driver does not give this GPU's power (Not Supported)."
    assert gpus_in(answer) == [T4, replace(L4, power_w=None, note=note)]


def test_no_failure_of_any_function_is_an_error_or_touches_the_other_gpu(
    driver: Path, machine: Path
) -> None:
    answer = run(
        """
functions = ("count handle name memory processes drawing utilisation power temperature "
             "shutdown everything").split()
answers = []
for function in functions:
    for code in (*range(1, 31), 999):
        os.environ.update(STUB_FAILS=function, STUB_CODE=str(code))
        gpus = open_gpus(root)
        ask(gpus)
        answers.append((function, code, gpus.status, ask(gpus)))
        gpus.close()
tell(answers=answers, sessions=sessions())
""",
        driver,
        machine,
    )
    assert len(answer["answers"]) == 11 * 31
    assert answer["sessions"] == 0
    for function, code, status, gpus in answer["answers"]:
        if function in {"count", "everything"}:
            assert status.endswith(": GPU sensors are not shown."), (function, code)
            assert gpus == []
        else:
            first, second = (Gpu(**gpu) for gpu in gpus)
            assert first == T4, (function, code)
            assert replace(second, name=L4.name) == L4 or second.note, (function, code)


def test_a_driver_that_goes_away_is_said_once_and_the_other_gpu_goes_on(
    driver: Path, machine: Path
) -> None:
    answer = run(
        """
gpus = open_gpus(root)
before = ask(gpus)
os.environ.update(STUB_FAILS="everything", STUB_CODE="15")
ask(gpus)
after = ask(gpus)
tell(before=before, gpus=after, notes=gpus.notes)
gpus.close()
""",
        driver,
        machine,
    )
    sentence = "GPU 1 (Stand-in L4) stopped answering (GPU is lost): its figures end there."
    assert [Gpu(**gpu) for gpu in answer["before"]] == [T4, L4]
    assert gpus_in(answer) == [T4, Gpu(1, "Stand-in L4", note=sentence)]
    assert answer["notes"] == [sentence]


def test_in_a_container_what_others_hold_is_not_known(driver: Path, container: Path) -> None:
    for gpu in gpus_in(run(READ_ONCE, driver, container)):
        assert gpu.used_by_others_bytes is None
        assert gpu.note.startswith("What others hold is not known")


@pytest.mark.parametrize("pids", ["none", "wordless"])
def test_a_process_list_that_does_not_tell_all_is_not_relied_on(
    driver: Path, machine: Path, pids: str
) -> None:
    for gpu in gpus_in(run(READ_ONCE, driver, machine, STUB_PIDS=pids)):
        assert gpu.used_by_others_bytes is None
        assert gpu.note.startswith("What others hold is not known")


def test_a_process_list_without_us_is_all_others(driver: Path, machine: Path) -> None:
    answer = run(READ_ONCE, driver, machine, STUB_PIDS="strangers")
    assert gpus_in(answer) == [T4, L4]


def test_a_real_pid_namespace_counts_as_a_container(driver: Path) -> None:
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us make a pid namespace")
    script = SETUP + READ_ONCE
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(driver),
        "PYTHONPATH": str(TESTS.parent),
        "STUB_ROOT": "/",
    }
    done = subprocess.run(
        [*command, sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(gpu.used_by_others_bytes is None for gpu in gpus_in(json.loads(done.stdout)))


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (4, "This user may not ask the NVIDIA driver"),
        (9, "The NVIDIA driver is installed but not loaded"),
        (12, "No NVIDIA driver on this machine"),
        (13, "The NVIDIA driver is too old to be asked"),
        (18, "The NVIDIA driver was updated and waits for a restart of the machine"),
        (999, "The NVIDIA driver does not answer (Unknown Error)"),
    ],
)
def test_a_driver_that_cannot_be_opened_is_one_sentence(
    driver: Path, machine: Path, code: int, reason: str
) -> None:
    answer = run(READ_ONCE, driver, machine, STUB_INIT=str(code))
    assert answer == {"status": f"{reason}: GPU sensors are not shown.", "gpus": [], "notes": []}


def test_a_machine_without_the_library_is_one_sentence(tmp_path: Path, machine: Path) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has the real driver")
    answer = run(READ_ONCE, tmp_path, machine)
    sentence = "No NVIDIA driver on this machine: GPU sensors are not shown."
    assert answer == {"status": sentence, "gpus": [], "notes": []}


def test_an_older_driver_gives_all_but_the_process_lists(tmp_path: Path, machine: Path) -> None:
    old = compile_driver(tmp_path, "-DOLD_DRIVER")
    first, _ = gpus_in(run(READ_ONCE, old, machine))
    assert first.used_by_others_bytes is None
    assert first.note.startswith("What others hold is not known")
    assert replace(first, used_by_others_bytes=3100 * MIB, note="") == T4


def test_a_driver_without_the_functions_that_cuda_14_drops_gives_the_same(
    tmp_path: Path, machine: Path
) -> None:
    future = compile_driver(tmp_path, "-DFUTURE_DRIVER")
    assert gpus_in(run(READ_ONCE, future, machine)) == [T4, L4]


def test_a_session_of_the_users_own_stays_open(driver: Path, machine: Path) -> None:
    answer = run(
        """
import pynvml
pynvml.nvmlInit()
gpus = open_gpus(root)
during = sessions()
gpus.close()
gpus.close()
tell(during=during, after=sessions(), count=pynvml.nvmlDeviceGetCount(), closed=ask(gpus))
""",
        driver,
        machine,
    )
    assert answer == {"during": 2, "after": 1, "count": 2, "closed": []}
