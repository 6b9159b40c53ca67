"""A saved report is as good as a fresh one, and a bad file is one clear sentence."""

import json
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import any_report, eight_gpus, empty_cell, failed_training, hot_loop, short_cell

from oommagic.errors import ReportFileError
from oommagic.report import Lane, Report, Timeline, load

GOOD = json.loads(failed_training().to_json())


def refusal(path: Path, content: str | bytes) -> str:
    """Load a file of that content, which must be refused with one sentence; return it."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ReportFileError) as refused:
        load(path)
    message = str(refused.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Have the kernel refuse to write on, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("make", [failed_training, short_cell, hot_loop, empty_cell, eight_gpus])
def test_a_saved_report_loads_as_it_was(make: Any, tmp_path: Path) -> None:
    make().save(tmp_path / "run.json")
    assert load(tmp_path / "run.json") == make()


@settings(deadline=None)
@given(report=any_report())
def test_any_report_loads_as_it_was(report: Report, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    report.save(path)
    assert load(path) == report


def test_the_json_begins_with_its_format_number() -> None:
    assert failed_training().to_json().startswith('{"format": 1, ')


def _nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    named = value if isinstance(value, dict) else {}
    listed = value if isinstance(value, list) else []
    for key, child in (*named.items(), *enumerate(listed)):
        yield from _nodes(child, (*path, key))


SMALL = json.loads(hot_loop().to_json())
PLACES = [place for place in _nodes(SMALL) if place]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(place=st.sampled_from(PLACES), value=JSON_VALUES, is_removed=st.booleans())
def test_any_change_of_the_json_loads_or_is_refused(
    *, place: tuple[Any, ...], value: Any, is_removed: bool, tmp_path_factory: Any
) -> None:
    document = json.loads(json.dumps(SMALL))
    parent = document
    for key in place[:-1]:
        parent = parent[key]
    if is_removed:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value
    path = tmp_path_factory.getbasetemp() / "changed.json"
    path.write_text(json.dumps(document))
    try:
        loaded = load(path)
    except ReportFileError as refused:
        assert str(refused).endswith(".")  # noqa: PT017 - either end is right
    else:
        assert load_again(loaded, path) == loaded


def load_again(report: Report, path: Path) -> Report:
    """Save a report and load what was saved."""
    report.save(path)
    return load(path)


@settings(deadline=None)
@given(start=st.integers(0, 2000), junk=st.binary(max_size=40), length=st.integers(0, 60))
def test_any_damaged_bytes_load_or_are_refused(
    start: int, junk: bytes, length: int, tmp_path_factory: Any
) -> None:
    whole = hot_loop().to_json().encode()
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(whole[:start] + junk + whole[start + length :])
    try:
        loaded = load(path)
    except ReportFileError as refused:
        assert str(refused).endswith(".")  # noqa: PT017 - either end is right
    else:
        assert isinstance(loaded, Report)


def test_every_truncated_file_is_refused(tmp_path: Path) -> None:
    whole = empty_cell().to_json()
    for length in range(len(whole)):
        assert "not a report" in refusal(tmp_path / "cut.json", whole[:length])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "was written by a newer oommagic (format 2, this one reads 1); update"),
        ({"format": True}, "it has no format number"),
        ({"format": 0}, "it has no format number"),
        ({"elapsed_s": "3"}, "elapsed_s should be a number, not a text"),
        ({"elapsed_s": True}, "elapsed_s should be a number, not true or false"),
        ({"surprise": 1}, "surprise is unknown"),
        ({"\u202e<b>": 1}, r"\u202e<b> is unknown"),
        ({"notes": "all"}, "notes should be a list, not a text"),
        ({"notes": [1]}, "notes[0] should be a text, not a whole number"),
        ({"engine": {"name": "magic", "reason": ""}}, "engine.name is none of monitoring,"),
        ({"engine": {"name": "settrace"}}, "engine.reason is missing"),
        ({"versions": {"x": None}}, "versions.x should be a text, not null"),
        ({"elapsed_s": 10**400}, "elapsed_s is too large"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in refusal(tmp_path / "wrong.json", json.dumps({**GOOD, **change}))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not whole and valid JSON"),
        ("[]", "the document should be an object, not a list"),
        ("{}", "no format number"),
        ("null", "should be an object, not null"),
        ("[" * 200_000, "nested too deeply"),
        ('{"format": ' * 200_000, "nested too deeply"),
        (f'{{"format": {"9" * 10_000}}}', "not whole and valid JSON"),
        ('{"format": 1, "format": 1}', "the same name twice"),
        ('{"format": NaN}', "it holds NaN"),
        ('{"format": 1, "elapsed_s": -Infinity}', "it holds -Infinity"),
        (b"\x80\x04\x95cos\nsystem\n", "it is not a text file"),
        (b"\x00" * 100, "not whole and valid JSON"),
    ],
    ids=[
        "nothing",
        "a list",
        "an empty object",
        "null",
        "nested lists",
        "nested objects",
        "a number of 10,000 digits",
        "a name twice",
        "NaN",
        "-Infinity",
        "a pickle",
        "zero bytes",
    ],
)
def test_what_is_no_report_is_refused(content: str | bytes, words: str, tmp_path: Path) -> None:
    assert words in refusal(tmp_path / "junk.json", content)


def test_a_number_too_large_for_a_float_is_refused(tmp_path: Path) -> None:
    text = empty_cell().to_json().replace('"elapsed_s": 4e-05', '"elapsed_s": 1e999')
    assert "elapsed_s is too large" in refusal(tmp_path / "large.json", text)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ReportFileError, match="there is no such file"):
        load(tmp_path / "none.json")
    with pytest.raises(ReportFileError, match="it is a folder"):
        load(tmp_path)
    with pytest.raises(ReportFileError, match="could not be read"):
        load("a\0b")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "it is a folder"),
        ("none/run.json", "the folder to put it in does not exist"),
        ("file/run.json", "a part of the path is not a folder"),
        ("x" * 300, "its name is too long"),
        ("pipe", "it is a device or a pipe"),
        ("a\0b", "not a path that a file can have"),
    ],
    ids=["a folder", "no folder", "in a file", "too long", "a pipe", "a zero byte"],
)
def test_a_place_that_takes_no_file_is_named(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReportFileError, match=words):
        empty_cell().save(f"{tmp_path}/{name}")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "pipe"]


def test_a_write_that_fails_halfway_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    empty_cell().save(path)
    with files_no_larger_than(1000), pytest.raises(ReportFileError, match="larger than"):
        failed_training().save(path)
    assert load(path) == empty_cell()
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_takes_no_files_is_named() -> None:
    with pytest.raises(ReportFileError, match=r"could not be written \(/proc/self/run.json\)"):
        empty_cell().save("/proc/self/run.json")


def test_saving_replaces_the_target_of_a_link_and_keeps_the_link(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real.json")
    empty_cell().save(link)
    assert link.is_symlink()
    assert load(tmp_path / "real.json") == empty_cell()


def test_a_saved_file_has_the_rights_that_new_files_have(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    empty_cell().save(tmp_path / "run.json")
    rights = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "run.json")]
    assert rights[0] == rights[1]


@pytest.mark.parametrize(
    "figure",
    [float("nan"), float("inf"), 10**30, 10**5000],
    ids=str.split("NaN infinity large larger"),
)
def test_a_report_with_an_impossible_figure_is_not_written(figure: float, tmp_path: Path) -> None:
    lane = Lane("host", "bytes", (figure,), (1.0,))
    report = replace(empty_cell(), timeline=Timeline((1.0,), (0,), (lane,)))
    with pytest.raises(ReportFileError, match="not a finite number"):
        report.save(tmp_path / "run.json")
    assert not list(tmp_path.iterdir())
