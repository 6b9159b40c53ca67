"""Limits of memory, on file trees as kernels lay them out, and on this machine."""

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oommagic.measure.limits import Limit, LowestLimit, available_bytes, host_limit

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
REPOSITORY = Path(__file__).parents[1]

V1_NO_LIMIT = "9223372036854771712"
MEMINFO = (
    "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nMemAvailable: 8388608 kB\nHugePages_Total: 0\n"
)
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
OTHER_MOUNTS = (
    "23 1 254:0 / / rw,relatime - ext4 /dev/root rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
)
THIS_MACHINE = Limit(16 * GIB, "this machine's memory")
V1 = "the container's limit (cgroup v1)"
V2 = "the container's limit (cgroup v2)"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Lay out a machine of 16 GB, half of it available, without control groups."""
    lay_out(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": ""})
    return tmp_path


def lay_out(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def lay_out_v2(root: Path, path: str, limits: Mapping[str, str], mount: str = V2_MOUNT) -> None:
    lay_out(root, {"proc/self/cgroup": f"0::{path}\n", "proc/self/mountinfo": OTHER_MOUNTS + mount})
    lay_out(root, {f"sys/fs/cgroup{group}/memory.max": text for group, text in limits.items()})


def lay_out_v1(root: Path, path: str, limits: Mapping[str, str], mount: str = V1_MOUNT) -> None:
    groups = f"9:name=systemd:/\n4:memory:{path}\n1:cpu,cpuacct:/else\n0::/\n"
    lay_out(root, {"proc/self/cgroup": groups, "proc/self/mountinfo": OTHER_MOUNTS + mount})
    top = "sys/fs/cgroup/memory"
    lay_out(root, {f"{top}{g}/memory.limit_in_bytes": text for g, text in limits.items()})


def test_without_control_groups_the_machines_memory_is_the_limit(root: Path) -> None:
    assert host_limit(root) == THIS_MACHINE
    assert available_bytes(root) == 8 * GIB


def test_a_container_of_version_2_is_the_limit(root: Path) -> None:
    lay_out_v2(root, "/", {"": f"{2 * GIB}\n"})
    assert host_limit(root) == Limit(2 * GIB, V2)


def test_a_container_of_version_1_is_the_limit(root: Path) -> None:
    lay_out_v1(root, "/", {"": f"{2 * GIB}\n"})
    assert host_limit(root) == Limit(2 * GIB, V1)


def test_a_group_above_with_a_smaller_limit_counts(root: Path) -> None:
    lay_out_v2(root, "/a/b/c", {"/a": f"{GIB}\n", "/a/b": "max\n", "/a/b/c": f"{3 * GIB}\n"})
    assert host_limit(root) == Limit(GIB, V2)


def test_a_group_beside_does_not_count(root: Path) -> None:
    lay_out_v2(root, "/a/b", {"/a/b": "max\n", "/a/beside": f"{GIB}\n", "/b": f"{GIB}\n"})
    assert host_limit(root) == THIS_MACHINE


def test_a_group_above_in_version_1_counts(root: Path) -> None:
    lay_out_v1(root, "/a/b", {"": V1_NO_LIMIT, "/a": f"{GIB}\n", "/a/b": V1_NO_LIMIT})
    assert host_limit(root) == Limit(GIB, V1)


def test_a_group_that_a_container_of_version_1_cannot_see_counts(root: Path) -> None:
    lay_out_v1(root, "/", {"": V1_NO_LIMIT})
    stat = f"cache 0\nhierarchical_memory_limit {GIB}\n"
    lay_out(root, {"sys/fs/cgroup/memory/memory.stat": stat})
    assert host_limit(root) == Limit(GIB, V1)


@pytest.mark.parametrize("sentinel", [V1_NO_LIMIT, "9223372036854710272", "9223372036854775807"])
def test_the_huge_number_of_version_1_is_no_limit(root: Path, sentinel: str) -> None:
    lay_out_v1(root, "/", {"": sentinel})
    lay_out(root, {"sys/fs/cgroup/memory/memory.usage_in_bytes": str(4 * GIB)})
    assert host_limit(root) == THIS_MACHINE
    assert available_bytes(root) == 8 * GIB


def test_a_limit_above_the_machines_memory_does_not_count(root: Path) -> None:
    lay_out_v2(root, "/", {"": f"{64 * GIB}\n"})
    assert host_limit(root) == THIS_MACHINE


def test_a_container_that_sees_only_its_own_part_of_the_tree(root: Path) -> None:
    mount = V1_MOUNT.replace(" / ", " /docker/abc ", 1)
    lay_out_v1(root, "/docker/abc/inner", {"": f"{2 * GIB}", "/inner": f"{GIB}"}, mount)
    assert host_limit(root) == Limit(GIB, V1)


@pytest.mark.parametrize("path", ["/../../user.slice", "/host/path/that/is/not/mounted"])
def test_a_group_outside_of_what_is_mounted_is_seen_as_its_top(root: Path, path: str) -> None:
    lay_out_v2(root, path, {"": f"{2 * GIB}\n"})
    assert host_limit(root) == Limit(2 * GIB, V2)


def test_a_mount_point_with_a_space_in_its_name(root: Path) -> None:
    mount = V2_MOUNT.replace("/sys/fs/cgroup", r"/mnt/control\040groups")
    lay_out_v2(root, "/", {}, mount)
    lay_out(root, {"mnt/control groups/memory.max": f"{GIB}\n"})
    assert host_limit(root) == Limit(GIB, V2)


def test_with_both_versions_the_one_with_the_limit_is_named(root: Path) -> None:
    unified = V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    lay_out_v1(root, "/a", {"/a": f"{GIB}\n"}, V1_MOUNT + unified)
    lay_out(root, {"sys/fs/cgroup/unified/cgroup.procs": "1\n"})
    assert host_limit(root) == Limit(GIB, V1)


def test_cached_files_of_a_group_count_as_available(root: Path) -> None:
    lay_out_v2(root, "/a", {"/a": str(4 * GIB)})
    stat = f"anon 1\ninactive_file {GIB}\nactive_file {512 * MIB}\nshmem {256 * MIB}\n"
    group = "sys/fs/cgroup/a"
    lay_out(root, {f"{group}/memory.current": str(3 * GIB), f"{group}/memory.stat": stat})
    assert available_bytes(root) == 2 * GIB + 512 * MIB


def test_cached_files_below_a_group_of_version_1_count_as_available(root: Path) -> None:
    lay_out_v1(root, "/", {"": str(4 * GIB)})
    stat = f"inactive_file 1\nactive_file 1\ntotal_inactive_file {GIB}\ntotal_active_file 0\n"
    top = "sys/fs/cgroup/memory"
    lay_out(root, {f"{top}/memory.usage_in_bytes": str(3 * GIB), f"{top}/memory.stat": stat})
    assert available_bytes(root) == 2 * GIB


def test_the_fullest_group_on_the_way_up_decides_what_is_available(root: Path) -> None:
    lay_out_v2(root, "/a/b", {"/a": str(8 * GIB), "/a/b": str(4 * GIB)})
    use = {"a/memory.current": str(7 * GIB), "a/b/memory.current": str(GIB)}
    lay_out(root, {f"sys/fs/cgroup/{name}": text for name, text in use.items()})
    assert host_limit(root) == Limit(4 * GIB, V2)
    assert available_bytes(root) == GIB


def test_a_group_over_its_limit_has_nothing_available(root: Path) -> None:
    lay_out_v2(root, "/", {"": str(GIB)})
    lay_out(root, {"sys/fs/cgroup/memory.current": str(2 * GIB)})
    assert available_bytes(root) == 0


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_limit_file_with_anything_in_it_is_no_error(
    tmp_path_factory: pytest.TempPathFactory, limit: str, stat: str
) -> None:
    root = tmp_path_factory.mktemp("root")
    lay_out(root, {"proc/meminfo": MEMINFO})
    lay_out_v2(root, "/", {"": limit})
    lay_out(root, {"sys/fs/cgroup/memory.stat": stat})
    assert host_limit(root).bytes <= 16 * GIB
    assert available_bytes(root) <= 8 * GIB


def test_a_system_without_proc_is_asked_through_psutil(tmp_path: Path) -> None:
    limit = host_limit(tmp_path)
    assert limit == Limit(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), limit.source)
    assert 0 < available_bytes(tmp_path) <= limit.bytes


def test_this_machine_has_a_limit_and_less_than_that_available() -> None:
    limit = host_limit()
    assert 0 < available_bytes() < limit.bytes
    assert limit.bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_limit_that_stood_for_a_moment_counts_in_the_run() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    lowest = LowestLimit()
    limit = lowest.limit.bytes - MIB
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    lowest.look()
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    lowest.look()
    assert (lowest.limit.bytes, lowest.limit.counts_reserved) == (limit, True)


@pytest.mark.parametrize(
    ("number", "name"),
    [(resource.RLIMIT_AS, "address space"), (resource.RLIMIT_DATA, "data segment")],
)
def test_a_limit_that_ulimit_set_counts_and_is_named(number: int, name: str) -> None:
    script = f"""
import resource
resource.setrlimit({number}, (2**30, resource.RLIM_INFINITY))
from oommagic.measure.limits import host_limit
print(host_limit())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    limit = Limit(GIB, f"this process's limit on its {name} (ulimit)", counts_reserved=True)
    assert done.stdout.strip() == repr(limit)
