"""The gauges of this process, against work that is really done."""

import hashlib
import mmap
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from oommagic.measure.gauges import Gauges, ProcessGauges, machine_memory

MIB = 1024 * 1024
REPOSITORY = Path(__file__).parents[1]


class SetClock:
    """A clock that shows what a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def test_cpu_is_the_seconds_that_the_process_ran_of_those_that_passed(clock: SetClock) -> None:
    began = cpu_seconds()
    gauges = ProcessGauges(clock)
    while cpu_seconds() < began + 0.3:
        hashlib.sha256(bytes(MIB)).digest()
    clock.now_s = 2.0
    percent = gauges.read().cpu_percent
    assert percent == pytest.approx(100 * (cpu_seconds() - began) / 2.0, abs=2.0)


def test_each_reading_is_of_the_time_since_the_one_before(clock: SetClock) -> None:
    gauges = ProcessGauges(clock)
    began = cpu_seconds()
    while cpu_seconds() < began + 0.2:
        hashlib.sha256(bytes(MIB)).digest()
    clock.now_s = 1.0
    busy = gauges.read().cpu_percent
    clock.now_s = 2.0
    idle = gauges.read().cpu_percent
    assert busy is not None
    assert idle is not None
    assert busy >= 18
    assert idle <= 5


def test_disk_writes_are_counted_per_second(clock: SetClock) -> None:
    # Beside the tests: the folder of temporary files may be memory, which no disk counter counts.
    path = REPOSITORY / f".written-by-test-{os.getpid()}"
    gauges = ProcessGauges(clock)
    try:
        with path.open("wb") as file:
            file.write(os.urandom(8 * MIB))
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink()
    clock.now_s = 4.0
    assert gauges.read().disk_write_bytes_per_s == pytest.approx(2 * MIB, rel=0.1)


def test_network_bytes_are_counted_per_second(clock: SetClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        gauges = ProcessGauges(clock)
        with socket.create_connection(server.getsockname()) as sender:
            receiver, _ = server.accept()
            with receiver:
                for _ in range(64):
                    sender.sendall(bytes(MIB // 16))
                    received = 0
                    while received < MIB // 16:
                        received += len(receiver.recv(MIB))
    clock.now_s = 2.0
    gauged = gauges.read()
    # Other processes of the machine may add to it.
    assert gauged.network_sent_bytes_per_s is not None
    assert gauged.network_received_bytes_per_s is not None
    assert gauged.network_sent_bytes_per_s >= 2 * MIB
    assert gauged.network_received_bytes_per_s >= 2 * MIB


def test_no_time_passed_is_no_rate_and_loses_nothing(clock: SetClock) -> None:
    gauges = ProcessGauges(clock)
    began = cpu_seconds()
    while cpu_seconds() < began + 0.2:
        hashlib.sha256(bytes(MIB)).digest()
    assert gauges.read() == Gauges()
    clock.now_s = 1.0
    percent = gauges.read().cpu_percent
    assert percent is not None
    assert percent >= 18


def test_children_and_theirs_are_counted_and_one_that_ended_is_not() -> None:
    grandchild = f"block = bytearray(50 * {MIB}); print('ready', flush=True); input()"
    child = (
        f"import subprocess, sys; block = bytearray(100 * {MIB}); "
        f"subprocess.run([sys.executable, '-c', {grandchild!r}])"
    )
    gauges = ProcessGauges()
    before = gauges.children_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        during = gauges.children_bytes()
        process.communicate("\n")
    assert during - before == pytest.approx(150 * MIB, abs=30 * MIB)
    assert gauges.children_bytes() == before


def test_pages_that_a_forked_child_shares_with_its_parent_are_not_counted_again() -> None:
    script = f"""
import mmap, os, signal
from oommagic.measure.gauges import ProcessGauges
block = bytearray(200 * {MIB})
pid = os.fork()
if pid == 0:
    signal.pause()
print(ProcessGauges().children_bytes())
os.kill(pid, signal.SIGTERM)
os.waitpid(pid, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0 < int(done.stdout) < 20 * MIB


def test_children_that_end_while_they_are_counted_are_tolerated() -> None:
    gauges = ProcessGauges()
    script = "import os\nfor _ in range(300):\n if os.fork() == 0: os._exit(0)\n os.wait()"
    counted = 0
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        while process.poll() is None:
            assert gauges.children_bytes() >= 0
            counted += 1
    assert counted > 1
    assert process.returncode == 0


def test_the_machines_memory_is_what_the_kernel_says() -> None:
    meminfo = Path("/proc/meminfo").read_text(encoding="ascii").split()
    memory = machine_memory()
    assert memory.total_bytes == int(meminfo[meminfo.index("MemTotal:") + 1]) * 1024
    assert mmap.PAGESIZE < memory.available_bytes <= memory.total_bytes
