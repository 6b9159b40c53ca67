"""The package as others get it, and what it asks of their environment."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import oommagic
from oommagic import __version__

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
COLAB = ROOT / "tests" / "colab-constraints.txt"
SHARED_COLAB = ROOT.parent / "shared" / "colab" / "constraints.txt"
HOME = PROJECT["urls"]["Homepage"]


def versions_on_colab() -> dict[str, str]:
    lines = COLAB.read_text(encoding="utf-8").split()
    return {
        canonicalize_name(name): version for name, version in (line.split("==") for line in lines)
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel with the tools that are installed, without a network."""
    return build("--wheel", tmp_path_factory.mktemp("dist"))


def build(kind: str, folder: Path) -> Path:
    """Build what is uploaded, into an empty folder."""
    command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


def files_of_the_package() -> set[str]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "oommagic"]
    done = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_each_dependency_accepts_the_version_on_colab() -> None:
    there = versions_on_colab()
    refused = [
        text
        for text in PROJECT["dependencies"]
        if (asked := Requirement(text)).name in there
        and not asked.specifier.contains(there[canonicalize_name(asked.name)])
    ]
    assert refused == []


def test_memory_profiler_alone_is_missing_on_colab() -> None:
    names = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert names - set(versions_on_colab()) == {"memory-profiler"}


@pytest.mark.skipif(not SHARED_COLAB.exists(), reason="the list it was copied from is not here")
def test_the_list_of_colabs_versions_is_the_shared_one() -> None:
    assert COLAB.read_text(encoding="utf-8") == SHARED_COLAB.read_text(encoding="utf-8")


def test_tensorflow_is_never_forced_on_anyone() -> None:
    names = {Requirement(text).name for text in PROJECT["dependencies"]}
    assert not {name for name in names if name.startswith("tensorflow")}


@pytest.mark.slow_once
def test_the_wheel_is_pure_python_and_light(wheel: Path) -> None:
    assert wheel.name == f"oommagic-{__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < 700_000


@pytest.mark.slow_once
def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == files_of_the_package()
    assert any(name.endswith(".css") for name in packed)


@pytest.mark.slow_once
def test_the_source_archive_holds_what_builds_the_wheel_and_no_test_that_could_not_run(
    tmp_path: Path,
) -> None:
    with tarfile.open(build("--sdist", tmp_path)) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    beside = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", ".gitignore"}
    assert packed == files_of_the_package() | beside


def test_every_mention_of_the_projects_home_agrees() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    owner_and_name = re.escape(HOME.removeprefix("https://github.com/"))
    hosts = r"(?:github\.com|colab\.research\.google\.com/github|mybinder\.org/v2/gh)"
    mention = re.compile(rf"{hosts}/([\w.-]+/oommagic)\b", re.IGNORECASE)
    strays = []
    found = 0
    for name in listed:
        path = ROOT / name
        if not path.is_file() or path.suffix not in {".md", ".py", ".toml", ".ipynb", ".yml"}:
            continue
        for repository in mention.findall(path.read_text(encoding="utf-8")):
            found += 1
            if not re.fullmatch(owner_and_name, repository):
                strays.append(f"{name}: {repository}")
    assert strays == []
    assert found > 0


@pytest.mark.parametrize("name", oommagic.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(oommagic, name) is not None
