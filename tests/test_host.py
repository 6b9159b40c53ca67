"""The meters of the process's own memory, on real allocations."""

import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oommagic.measure.host import HostMeter, KernelCounters, SampledMemory, open_host_meter

MIB = 1024 * 1024
TOLERANCE = MIB
REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def counters() -> Iterator[KernelCounters]:
    meter = KernelCounters()
    meter.start()
    yield meter
    meter.close()


def private_block(size: int) -> mmap.mmap:
    """Take memory that goes back to the system when it is closed, each page of it touched."""
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for start in range(0, size, mmap.PAGESIZE):
        block[start] = 1
    return block


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def high_water_mark() -> int:
    _, _, rest = Path("/proc/self/status").read_text(encoding="ascii").partition("VmHWM:")
    return int(rest.split()[0]) * 1024


def run_under(parent: str, child: str) -> str:
    """Start a child from a parent that runs this code first; give what the child says."""
    script = (
        f"{parent}\nimport subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, child],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout


def test_memory_that_is_kept_is_own_and_memory_given_back_is_gone(counters: KernelCounters) -> None:
    before, _, _ = counters.read()
    block = private_block(64 * MIB)
    during, _, _ = counters.read()
    block.close()
    after, _, _ = counters.read()
    assert during - before == pytest.approx(64 * MIB, abs=TOLERANCE)
    assert after - before == pytest.approx(0, abs=TOLERANCE)


def test_a_temporary_of_300_mb_is_seen_though_it_is_gone(counters: KernelCounters) -> None:
    before, _, _ = counters.read()
    private_block(300 * MIB).close()
    after, _, peak = counters.read()
    assert after - before == pytest.approx(0, abs=TOLERANCE)
    assert peak - before == pytest.approx(300 * MIB, abs=TOLERANCE)


def test_a_peak_is_told_once(counters: KernelCounters) -> None:
    private_block(100 * MIB).close()
    counters.read()
    own, _, peak = counters.read()
    assert peak - own <= TOLERANCE


def test_a_peak_is_never_below_what_was_held_at_either_end(counters: KernelCounters) -> None:
    block = private_block(32 * MIB)
    held, _, _ = counters.read()
    block.close()
    freed, _, peak_while_freeing = counters.read()
    block = private_block(32 * MIB)
    retaken, _, peak_while_taking = counters.read()
    block.close()
    assert peak_while_freeing >= held > freed
    assert peak_while_taking >= retaken > freed


def test_reading_a_mapped_file_is_file_memory_and_not_a_peak(
    counters: KernelCounters, tmp_path: Path
) -> None:
    path = tmp_path / "array"
    path.write_bytes(b"\1" * (64 * MIB))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        own_before, file_before, _ = counters.read()
        assert sum(pages[:: mmap.PAGESIZE]) == 64 * MIB // mmap.PAGESIZE
        own, file_bytes, peak = counters.read()
    own_after, _, peak_after = counters.read()
    assert file_bytes - file_before == pytest.approx(64 * MIB, abs=TOLERANCE)
    assert own - own_before == pytest.approx(0, abs=TOLERANCE)
    assert peak - own_before == pytest.approx(0, abs=TOLERANCE)
    assert peak_after - own_after == pytest.approx(0, abs=TOLERANCE)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24), st.booleans()), max_size=8))
def test_any_sequence_of_kept_passing_and_freed_blocks_is_within_a_megabyte(
    lines: list[tuple[int, int, bool]],
) -> None:
    meter = KernelCounters()
    meter.start()
    start, _, _ = meter.read()
    kept: list[mmap.mmap] = []
    for kept_mib, passing_mib, is_freed_after in lines:
        held_before = sum(map(len, kept))
        if kept_mib:
            kept.append(private_block(kept_mib * MIB))
        if passing_mib:
            private_block(passing_mib * MIB).close()
        most = max(held_before, sum(map(len, kept)) + passing_mib * MIB)
        if is_freed_after and kept:
            kept.pop(0).close()
        own, _, peak = meter.read()
        assert own - start == pytest.approx(sum(map(len, kept)), abs=TOLERANCE)
        assert peak - start == pytest.approx(most, abs=TOLERANCE)
    for block in kept:
        block.close()
    meter.close()


CHILD = """
import mmap, resource
from oommagic.measure.host import KernelCounters
MIB = 1024 * 1024
def passing(size):
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.write(bytes(size))
meter = KernelCounters()
meter.start()
for size in (0, 50, 0, 1500, 0, 80):
    before, _, _ = meter.read()
    passing(size * MIB) if size else None
    own, _, peak = meter.read()
    assert abs(peak - before - size * MIB) <= MIB, (size, peak, before)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_a_parent_that_once_held_a_gigabyte_does_not_lend_its_peak() -> None:
    floor_mib = int(run_under("block = bytearray(2**30); del block", CHILD))
    assert floor_mib >= 1000, "the floor that this test is about was not there"


def test_a_process_that_shrinks_below_its_parents_peak_still_tells_its_own() -> None:
    child = """
import mmap
ballast = bytearray(400 * 2**20)
""" + CHILD.replace("for size in", "del ballast\nmeter.read()\nfor size in")
    floor_mib = int(run_under("block = bytearray(200 * 2**20); del block", child))
    assert 200 <= floor_mib < 400, "the floor that this test is about was not there"


def test_a_reading_is_fast_enough_for_every_line(counters: KernelCounters) -> None:
    def seconds_each() -> float:
        began = time.perf_counter()
        for _ in range(2000):
            counters.read()
        return (time.perf_counter() - began) / 2000

    fastest = min(seconds_each() for _ in range(20))
    assert fastest < 15e-6, "psutil's memory_info alone takes 9 µs, and misses peaks"


def test_samples_follow_what_is_held_and_remember_the_largest() -> None:
    meter = SampledMemory(interval_s=60)
    meter.start()
    before, _, _ = meter.read()
    block = private_block(100 * MIB)
    held, file_bytes, _ = meter.read()
    block.close()
    after, _, peak = meter.read()
    meter.close()
    assert held - before == pytest.approx(100 * MIB, abs=4 * MIB)
    assert after - before == pytest.approx(0, abs=4 * MIB)
    assert peak == held
    assert file_bytes == 0


def test_the_sampling_thread_finds_a_peak_between_two_readings() -> None:
    meter = SampledMemory(interval_s=0.001)
    meter.start()
    try:
        before, _, _ = meter.read()
        deadline = time.monotonic() + 30
        seen = 0
        # The scheduler decides when a sample falls into a block's short life; one soon does.
        while seen < 90 * MIB and time.monotonic() < deadline:
            private_block(100 * MIB).close()
            _, _, peak = meter.read()
            seen = peak - before
    finally:
        meter.close()
    assert seen >= 90 * MIB


def test_this_machine_has_the_kernels_counters() -> None:
    meter = open_host_meter()
    meter.close()
    assert isinstance(meter, KernelCounters)
    assert (meter.source, meter.is_exact) == ("the kernel's counters", True)


def test_the_source_of_samples_says_what_they_cannot_do() -> None:
    meter = SampledMemory(interval_s=0.02)
    assert not meter.is_exact
    assert meter.source == (
        "memory-profiler's readings, sampled every 20 ms; "
        "mapped files are counted as the program's own"
    )


@pytest.mark.parametrize("make", [KernelCounters, SampledMemory, open_host_meter])
def test_after_closing_no_file_and_no_thread_is_left(make: type[HostMeter]) -> None:
    SampledMemory().close()
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    meter = make()
    meter.start()
    meter.read()
    meter.close()
    meter.close()
    assert set(threading.enumerate()) == threads
    assert open_descriptors() == descriptors


def test_a_kernel_that_hides_its_counters_is_sampled() -> None:
    """Under a limit of open files, the counters cannot be opened, in a process of its own."""
    child = """
import os, resource
import memory_profiler
from oommagic.measure.host import open_host_meter
used = len(os.listdir("/proc/self/fd")) - 1
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, used + 1))
meter = open_host_meter()
meter.start()
print(type(meter).__name__, meter.read()[0] > 2**20, len(os.listdir("/proc/self/fd")) - 1 == used)
meter.close()
"""
    assert run_under("", child).strip() == "SampledMemory True True"


def test_the_exact_meter_loads_no_package_of_others() -> None:
    child = """
import sys
from oommagic.measure.host import open_host_meter
meter = open_host_meter()
meter.start()
print(type(meter).__name__, sorted({"psutil", "memory_profiler", "numpy"} & set(sys.modules)))
"""
    assert run_under("", child).strip() == "KernelCounters []"


def test_the_programs_own_high_water_mark_does_not_outlive_the_counters() -> None:
    """It cannot be given back; this pins what the documentation says about that."""
    private_block(200 * MIB).close()
    before = high_water_mark()
    meter = KernelCounters()
    meter.start()
    meter.close()
    assert before - high_water_mark() > 100 * MIB
