"""Trials of fixes, as a notebook would ask for them: a profiled cell, and the cell with a fix.

Without TensorFlow in this process the children do not import it either, and start at once.
"""

import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest
from children import ROOT, run_python
from IPython.core.interactiveshell import InteractiveShell
from shell import run_profiled
from test_trial import what_there_is

import oommagic
from oommagic.cell import diff, edited
from oommagic.errors import CannotTravelError, TrialError, UsageError
from oommagic.magics import open_shell
from oommagic.measure.host import open_host_meter
from oommagic.report import Edit, Finding, Fix, Report, Trial
from oommagic.trial.cell_task import CellTask
from oommagic.trying import try_fixes

pytestmark = pytest.mark.of_ipython

MIB = 1 << 20
linux_alone = pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's counters")


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    resource_tracker.ensure_running()  # multiprocessing has one for good
    yield open_shell()
    InteractiveShell.clear_instance()


@pytest.fixture(autouse=True)
def nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: InteractiveShell
) -> Iterator[None]:
    """Have no process, thread, file or open pipe be there afterwards that was not before."""
    folder, notebooks = tmp_path / "temporary", tmp_path / "notebooks"
    folder.mkdir()
    notebooks.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(notebooks)
    before, names = what_there_is(), set(shell.user_ns)
    yield
    for name in set(shell.user_ns) - names:
        del shell.user_ns[name]
    assert what_there_is() == before
    assert list(folder.iterdir()) == []


def finding(cell: str, old: str, new: str) -> Finding:
    """Suggest to write something else in place of a piece of a cell."""
    at = cell.index(old)
    edit = Edit(at, at + len(old), new)
    source = edited(cell, [edit])
    fix = Fix((edit,), source, diff(cell, source))
    return Finding("a-rule", f"{new} for {old}", "", "same results", "host", fix=fix)


def reported(shell: InteractiveShell, cell: str, *changes: tuple[str, str]) -> Report:
    """Profile a cell, and suggest these changes of it."""
    run_profiled(shell, cell)
    report = oommagic.last_report()
    source = report.source
    return replace(report, findings=tuple(finding(source, *change) for change in changes))


def tried(shell: InteractiveShell, cell: str, *changes: tuple[str, str], **how: Any) -> Trial:
    """Profile a cell, and try these changes together, without doing it in the shell again."""
    report = reported(shell, cell, *changes)
    numbers = range(1, len(changes) + 1)
    (trial,) = try_fixes(report, shell.user_ns, list(numbers), progress=_quiet, **how)
    return trial


def unrun(shell: InteractiveShell, cell: str, *changes: tuple[str, str], **how: Any) -> Trial:
    """Try changes of a cell that must not run in this process."""
    report = replace(
        reported(shell, "pass"), source=cell, findings=tuple(finding(cell, *one) for one in changes)
    )
    (trial,) = try_fixes(report, shell.user_ns, [1], progress=_quiet, **how)
    return trial


def _quiet(_: str) -> None:
    """Say nothing."""


# ---- What is measured ---------------------------------------------------------------------------


@linux_alone
def test_each_suggestion_is_compared_with_the_cell_as_it_is(shell: InteractiveShell) -> None:
    shell.run_cell("import numpy as np")
    report = reported(
        shell,
        'a = np.ones(10_000_000, "float64")\nb = a + 1\n',
        ("float64", "float32"),
        ("a + 1", "np.add(a, 1, out=a)"),
    )
    lines: list[str] = []
    first, second = try_fixes(report, shell.user_ns, progress=lines.append)
    assert (first.numbers, first.rules, second.numbers) == ((1,), ("a-rule",), (2,))
    assert first.before is second.before
    assert first.before.host_peak_bytes == pytest.approx(160e6, rel=0.05)
    assert first.after.host_peak_bytes == pytest.approx(80e6, rel=0.05)
    assert second.after.host_peak_bytes == pytest.approx(80e6, rel=0.05)
    assert {first.before.outcome, first.after.outcome, second.after.outcome} == {"finished"}
    assert (first.before.steps, first.before.loss, first.limit_bytes) == (0, None, None)
    assert lines == [
        "packing what the cell uses",
        "the cell as it is",
        "the cell with suggestion 1",
        "the cell with suggestion 2",
    ]
    (both,) = try_fixes(report, shell.user_ns, [2, 1], progress=_quiet)
    assert both.numbers == (2, 1)
    assert both.after.host_peak_bytes == pytest.approx(40e6, rel=0.05)


def test_what_cannot_be_tried_is_refused(shell: InteractiveShell) -> None:
    report = reported(shell, "a = 1 + 2\nb = 3\n", ("1", "4"), ("2", "5"), ("3", "6"))
    hint = replace(report.findings[0], fix=None)
    report = replace(report, findings=(*report.findings, hint))

    def refusal(numbers: list[int] | None, report: Report = report, **how: Any) -> str:
        with pytest.raises(UsageError) as refused:
            try_fixes(report, shell.user_ns, numbers, progress=_quiet, **how)
        return str(refused.value)

    assert refusal([3, 2, 1]) == "Suggestions 1 and 2 change the same lines: try one of them."
    assert refusal([5]) == "There is no suggestion 5: they are 1 to 4."
    assert refusal([0]) == "There is no suggestion 0: they are 1 to 4."
    hinted = "Suggestion 4 is a hint: there is no change of the cell to make or to try."
    assert refusal([4]) == hinted
    assert refusal([]) == "Say which suggestions to try, by their numbers."
    assert refusal([1], steps=0) == "A trial takes one step or more."
    nothing = "None of the suggestions changes the cell: there is nothing to try."
    assert refusal(None, replace(report, findings=(hint,))) == nothing
    not_python = replace(report, source="%%bash\necho 1\n", findings=(report.findings[0],))
    assert "not Python" in refusal([1], not_python)


_DIVIDES = """
accumulation_steps = 4
def train(model, data):
    optimizer = keras.optimizers.SGD(0.1)
    for x in data:
        with tf.GradientTape() as tape:
            loss = model(x)
        gradients = tape.gradient(loss, model.weights)
        gradients = [one / accumulation_steps for one in gradients]
        optimizer.apply_gradients(zip(gradients, model.weights))
"""


def test_what_is_tried_is_what_was_shown_last(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    def said_by(magic: str) -> str:
        capsys.readouterr()
        shell.run_cell(magic)
        return " ".join(capsys.readouterr().out.split())

    run_profiled(shell, _DIVIDES)
    report = oommagic.last_report()
    assert said_by("%oomtry 1").startswith("Suggestion 1, Accumulate the gradients that are only")
    assert [trial.after.outcome for trial in oommagic.last_report().trials] == ["finished"]
    shell.run_cell("\n" + _DIVIDES + "huge = bytearray(1 << 60)\n")
    oommagic.why(MemoryError())  # that shows no suggestions
    assert "measured" in said_by("%oomtry 1")
    assert "Accumulate the gradients" in said_by("%oomwhy")
    assert "host ran out of memory both times" in said_by("%oomtry 1")
    assert oommagic.last_report().trials[0].after.outcome == "finished", "it was another cell's"
    assert oommagic.last_report().findings == report.findings


def _said(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], cell: str) -> str:
    """Run a cell, and give what is on the screen then."""
    capsys.readouterr()
    shell.run_cell(cell)
    return " ".join("".join(capsys.readouterr()).split())


@pytest.mark.parametrize("magic", ["%%oomprofile -q\n", ""])
def test_what_a_magic_refuses_is_a_sentence_and_not_the_users_last_error(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], magic: str
) -> None:
    shell.run_cell(f"{magic}huge = bytearray(1 << 60)\n")
    error = sys.last_value
    why = _said(shell, capsys, "%oomwhy")
    assert "There is no suggestion 99" in _said(shell, capsys, "%oomfix 99")
    assert "There is no suggestion 99" in _said(shell, capsys, "%oomtry 99")
    assert "by its number, as in" in _said(shell, capsys, "%oomfix " + "9" * 5000)
    assert "nowhere is not known here" in _said(shell, capsys, "%oombatch nowhere")
    assert sys.last_value is error
    assert _said(shell, capsys, "%oomwhy") == why
    assert "huge = bytearray(1 << 60)" in why


def test_where_memory_is_too_full_to_send_anything_a_sentence_says_so(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("import numpy as np\nempty = np.zeros(0)")
    run_profiled(shell, _DIVIDES + "empty.size\n")
    shell.run_cell("""
class Full:
    size = 0
    def __reduce__(self):
        raise MemoryError
empty = Full()
""")
    assert "the host's memory is too full for that" in _said(shell, capsys, "%oomtry 1")


def test_a_trial_that_is_interrupted_says_so_and_is_not_the_users_last_error(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("seconds = 0")
    run_profiled(shell, _DIVIDES + "import time\ntime.sleep(seconds)\n")
    shell.run_cell("seconds = 600\n1 / 0")
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.7)
    try:
        said = _said(shell, capsys, "%oomtry 1")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert said.endswith("UsageError: %oomtry was interrupted."), said
    assert isinstance(sys.last_value, ZeroDivisionError)


# ---- What is sent -------------------------------------------------------------------------------


def test_functions_see_what_the_cell_sets_and_each_other(shell: InteractiveShell) -> None:
    shell.run_cell("""
import functools
factor, unused = 2, (i for i in range(3))
@functools.lru_cache(maxsize=7)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
class Scaler:
    def __call__(self, x):
        return helper(x) * factor
def helper(x):
    return x + factor
scale = Scaler()
""")
    cell = """factor = 5
assert scale(1) == 30, scale(1)
assert (fibonacci(30), fibonacci.cache_parameters()["maxsize"]) == (832040, 7)
"""
    trial = tried(shell, cell, ("= 5", "= 5  # five"))
    assert (trial.before.outcome, trial.before.message) == ("finished", "")
    assert trial.after.outcome == "finished"


def test_a_name_that_stands_in_a_text_alone_is_said_to_be_missing(shell: InteractiveShell) -> None:
    shell.run_cell("hidden = 3")
    trial = tried(shell, "assert eval('hidden + 1') == 4\none = 1\n", ("one = 1", "one = 2"))
    assert trial.after.message == "NameError: name 'hidden' is not defined (in line 1)"
    (note,) = trial.notes
    assert note.startswith("hidden is in the notebook, but was not sent: ")
    trial = unrun(shell, "hidden\nassert eval('hidden + 1') == 4\n", ("4", "2 * 2"))
    assert (trial.after.outcome, trial.notes) == ("finished", ())


def test_texts_and_masked_arrays_come_as_they_are(shell: InteractiveShell) -> None:
    shell.run_cell("""
import numpy as np
texts = np.array([str(n) for n in range(200_000)], dtype=object)
masked = np.ma.masked_array(np.arange(300_000), np.arange(300_000) % 2 == 0)
records = np.zeros(200_000, [("a", "f8")]).view(np.recarray)
""")
    cell = "assert (texts[9], masked[1], records.a[3]) == ('9', 1, 0) and masked.mask[0]\none = 1\n"
    assert tried(shell, cell, ("one = 1", "one = 2")).before.message == ""


def test_what_cannot_be_sent_is_named(shell: InteractiveShell) -> None:
    shell.run_cell("rows = (i for i in range(3))\nkept = {'log': open('log', 'w')}\n")
    with pytest.raises(CannotTravelError, match=r"`rows`, the generator .* Have the cell make it"):
        tried(shell, "for row in rows:\n    print(row)\n", ("row)", "row, row)"))
    with pytest.raises(CannotTravelError, match=r"`kept\['log'\]`, an open file, cannot be sent"):
        tried(shell, "print(1, file=kept['log'])\n", ("1", "2"))
    shell.user_ns["kept"]["log"].close()


@pytest.mark.parametrize("error", ["ZeroDivisionError('odd')", "OSError(5, 'odd')", "Odd('odd')"])
def test_what_raises_an_error_of_its_own_when_it_is_sent_is_named(
    shell: InteractiveShell, error: str
) -> None:
    shell.run_cell(f"""
class Odd(Exception):
    def __init__(self, *words):
        self.next = None
    def __reduce__(self):
        raise {error}
    @property
    def __module__(self):
        raise KeyError("module")
chain = odd = Odd()
for _ in range(200):
    chain, chain.next = type("Link", (), {{}})(), chain
""")
    report = replace(reported(shell, "pass"), source="odd\none = 1\n")
    report = replace(report, findings=(finding(report.source, "= 1", "= 2"),))
    with pytest.raises(CannotTravelError, match=r"^`odd`, an object of the class Odd, cannot"):
        try_fixes(report, shell.user_ns, progress=_quiet)
    report = replace(report, source="chain\none = 1\n")
    report = replace(report, findings=(finding(report.source, "= 1", "= 2"),))
    with pytest.raises(CannotTravelError, match=r"^`chain(\.next)+.{,5}…`, an object"):
        try_fixes(report, shell.user_ns, progress=_quiet)


@linux_alone
def test_the_kernel_does_not_grow_by_what_is_sent(shell: InteractiveShell) -> None:
    shell.run_cell("import numpy as np\nx = np.ones((300, 1 << 18), 'float32')\n")
    report = reported(shell, "total = x.sum()\n", ("sum", "mean"))
    try_fixes(report, shell.user_ns, progress=_quiet)  # what is opened once is open now
    gc.collect()
    meter = open_host_meter()
    meter.start()
    own_bytes, _ = meter.peek()
    (trial,) = try_fixes(report, shell.user_ns, progress=_quiet)
    _, _, peak_bytes = meter.read()
    meter.close()
    assert peak_bytes - own_bytes < 20 * MIB
    assert trial.before.host_peak_bytes is not None
    assert trial.before.host_peak_bytes < 20 * MIB, "it is read from a file"


@linux_alone
def test_an_array_that_the_cell_changes_is_the_cells_own(shell: InteractiveShell) -> None:
    shell.run_cell("import numpy as np\nx = np.ones((100, 1 << 17))\n")
    trial = tried(shell, "x = x / 2\n", ("x = x / 2", "x /= 2"))
    assert trial.before.host_peak_bytes == pytest.approx(100 * MIB, rel=0.05)
    assert trial.after.host_peak_bytes == pytest.approx(0, abs=10 * MIB)
    assert "The cell changes x: both runs began with what the notebook holds now." in trial.notes
    assert shell.user_ns["x"][0, 0] == 0.5
    shell.run_cell("def half(a):\n    a[:] = 0.25\n    return a.max()\n")
    trial = unrun(shell, "assert half(x) == 0.25\n", ("0.25", "1 / 4"))
    assert trial.after.outcome == "finished", trial.after.message
    assert shell.user_ns["x"][0, 0] == 0.5


def test_where_there_is_no_room_a_sentence_says_so(shell: InteractiveShell) -> None:
    import resource

    shell.run_cell("import numpy as np\nx = np.broadcast_to(np.ones(1), (1 << 40,))\n")
    report = reported(shell, "x.size\n", ("size", "ndim"))
    with pytest.raises(TrialError, match=r"\(an array takes 8\.00 TB, and .* are free\)"):
        try_fixes(report, shell.user_ns, progress=_quiet)
    shell.run_cell("x = np.ones(1_000_000)\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(TrialError, match="make room there, or set TMPDIR"):
            try_fixes(report, shell.user_ns, progress=_quiet)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_folder_that_is_gone_is_a_sentence(shell: InteractiveShell) -> None:
    report = reported(shell, "one = 1\n", ("1", "2"))
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").resolve().rmdir()
    with pytest.raises(TrialError, match="The notebook's folder is gone"):
        try_fixes(report, shell.user_ns, progress=_quiet)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a disk with room for what is sent, and not for a link to each of many files."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=1m,nr_inodes=30", "none"]
    if subprocess.run(["mount", *options, disk], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a disk")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@linux_alone
def test_on_a_disk_that_is_full_a_sentence_says_so(
    shell: InteractiveShell, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        Path(f"file-{number}").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    report = reported(shell, "one = 1\n", ("1", "2"))
    with pytest.raises(TrialError, match=r"No space left on device.*: make room there"):
        try_fixes(report, shell.user_ns, progress=_quiet)
    assert list(small_disk.iterdir()) == []


# ---- Files --------------------------------------------------------------------------------------

_WRITES = """
import os, shutil, sqlite3
from pathlib import Path
Path("touched.txt").touch()
os.chmod("closed.txt", 0o400)
os.chmod("closed.txt", 0o600, dir_fd=os.open(".", os.O_RDONLY))
assert Path("kept.txt").read_text() == "mine"
assert Path("folder/kept.txt").read_text() == "mine"
with open("kept.txt", "a") as file:
    file.write(" and yours")
assert Path("kept.txt").read_text() == "mine and yours"
Path("folder/kept.txt").write_text("yours")
Path("new").mkdir()
Path("new/file").write_text("new")
np.save("array.npy", np.ones(3))
mapped = np.memmap("mapped", "int8", "r+")
mapped[0] = 9
os.rename("other.txt", "moved.txt")
shutil.rmtree("gone")
sqlite3.connect("base.db").execute("create table t (a)")
assert sorted(os.listdir()) == ["array.npy", "base.db", "closed.txt", "folder", "kept.txt",
                                "mapped", "moved.txt", "new", "touched.txt"]
one = 1
"""


def test_a_cell_reads_the_users_files_and_writes_none(shell: InteractiveShell) -> None:
    shell.run_cell("import numpy as np")
    files = (
        "kept.txt",
        "other.txt",
        "folder/kept.txt",
        "gone/deep/file",
        "touched.txt",
        "closed.txt",
    )
    for name in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("mine", encoding="utf-8")
    Path("mapped").write_bytes(bytes(9))
    before = _files()
    trial = unrun(shell, _WRITES, ("one = 1", "one = 2"))
    assert (trial.before.outcome, trial.before.message) == ("finished", "")
    assert _files() == before
    (note,) = (note for note in trial.notes if "put aside" in note)
    assert note.startswith("What the cell writes was put aside and is gone: touched.txt, ")


def _files() -> dict[Path, tuple[bytes, int, int]]:
    """Say what the notebook's files hold, when that was written and what may be done to them."""
    files = [path for path in Path().rglob("*") if path.is_file()]
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode) for path in files
    }


def test_where_libraries_cannot_be_kept_from_writing_they_write_into_copies(
    tmp_path: Path,
) -> None:
    mine = tmp_path / "mine"
    (mine / "folder").mkdir(parents=True)
    for name in ("small", "folder/small"):
        (mine / name).write_text("mine", encoding="utf-8")
    with (mine / "large").open("wb") as file:
        file.truncate(1 << 40)  # of nothing
    told = run_python(f"""
import os
from pathlib import Path
from oommagic.trial.held_back import Writing
mine, ours = Path({str(mine)!r}), Path({str(tmp_path)!r}) / "ours"
ours.mkdir()
writing = Writing(ours / "here", ours, is_held=False)
writing.begin(mine)
assert os.system("echo yours > small; echo yours > folder/small") == 0
told["notes"] = list(writing.notes())
""")
    assert {(mine / name).read_text(encoding="utf-8") for name in ("small", "folder/small")} == {
        "mine"
    }
    (note,) = told["notes"]
    assert note.startswith("This system cannot keep libraries from writing the notebook's files")
    assert note.endswith("too large: large.")


def test_elsewhere_nothing_is_written(shell: InteractiveShell, tmp_path: Path) -> None:
    Path("mine").write_text("mine", encoding="utf-8")
    there = tmp_path / "there"
    there.mkdir()
    (there / "mine").write_text("mine", encoding="utf-8")
    for does in ("open(p, 'w')", "import os; os.remove(p)", "import os; os.rename(p, 'mine')"):
        trial = unrun(shell, f"p = {str(there / 'mine')!r}\n{does}\none = 1\n", ("= 1", "= 2"))
        assert trial.before.outcome == "failed"
        assert trial.before.message.startswith("a trial writes no files of yours")
        assert "(in line 2)" in trial.before.message
    assert (there / "mine").read_text(encoding="utf-8") == "mine"


def _has_landlock() -> bool:
    told = run_python("""
import os, tempfile
from pathlib import Path
from oommagic.trial.landlock import write_only_in
told["is_held"] = write_only_in([Path("/dev")])
""")
    return bool(told["is_held"])


def test_not_even_by_another_program(shell: InteractiveShell, tmp_path: Path) -> None:
    if not _has_landlock():
        pytest.skip("this kernel has no Landlock")
    mine = tmp_path / "mine"
    mine.write_text("mine", encoding="utf-8")
    cell = f"import os\nassert os.system('rm {mine} || echo 1 > {mine}') != 0\none = 1\n"
    trial = unrun(shell, cell, ("one = 1", "one = 2"))
    assert (trial.after.outcome, mine.read_text(encoding="utf-8")) == ("finished", "mine")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Give a server of the user's, to whom nobody has come."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        yield listening
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_nothing_goes_over_the_network(shell: InteractiveShell, server: socket.socket) -> None:
    _, port = server.getsockname()
    shell.run_cell(f"import socket, urllib.request\nport = {port}")
    cell = """
try:
    urllib.request.urlopen(f"http://127.0.0.1:{port}")
except OSError:
    pass
one, other = socket.socketpair()
one.send(b"within")
socket.getaddrinfo("localhost", 80)
asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    asked.sendto(b"metric", ("127.0.0.1", port))
except PermissionError:
    assert other.recv(6) == b"within"
one = 1
"""
    trial = unrun(shell, cell, ("one = 1", "one = 2"))
    assert (trial.before.outcome, trial.before.message) == ("finished", "")
    assert f"A trial does not use the network: 127.0.0.1:{port} was not reached." in trial.notes
    trial = unrun(shell, "urllib.request.urlopen('https://pypi.org')\none = 1\n", ("= 1", "= 2"))
    assert trial.before.outcome == "failed"
    assert "have another cell load what this one needs: 'pypi.org'" in trial.before.message
    assert "(in line 1)" in trial.before.message


# ---- How a cell runs ----------------------------------------------------------------------------


def test_what_is_ipythons_own_is_left_out(shell: InteractiveShell) -> None:
    shell.run_cell("def magic():\n    get_ipython().run_line_magic('time', '1')\n")
    cell = """%who
files = !ls
import asyncio
await asyncio.sleep(0)
display(files)
magic()
get_ipython().system("touch here")
assert files is None
"""
    trial = unrun(shell, cell, ("display(files)", "display(1)"))
    assert (trial.after.outcome, trial.after.message) == ("finished", "")
    assert "IPython's own lines were left out: %who; files = !ls." in trial.notes


def test_a_statement_that_is_timed_runs(shell: InteractiveShell) -> None:
    cell = """%time one = 1
if one:
    %time  two = one + 1
%time for _ in (): pass
assert two == 2
"""
    trial = unrun(shell, cell, ("one = 1", "one = 1 + 0"))
    assert (trial.after.outcome, trial.after.message) == ("finished", "")
    assert "IPython's own lines were left out: %time for _ in (): pass." in trial.notes


@pytest.mark.parametrize(
    ("code", "outcome", "message"),
    [
        ("1 / 0", "failed", "ZeroDivisionError: division by zero (in line 2)"),
        ("raise ValueError('x' * 10**7)", "failed", "xxx… (in line 2)"),
        ("raise SystemExit", "failed", "SystemExit (in line 2)"),
        ("os._exit(0)", "died", "the child process ended by itself, with exit code 0"),
        ("os.kill(os.getpid(), 9)", "died", "the child process was killed by the system (SIGKILL)"),
        ("os.kill(os.getpid(), 11)", "died", "the child process crashed (SIGSEGV)"),
        ("b = bytearray(1 << 50)", "ran out", "MemoryError"),
        ("os.write(2, b'so long'); os._exit(3)", "died", "so long"),
    ],
)
def test_no_other_end_is_taken_for_a_success(
    shell: InteractiveShell, code: str, outcome: str, message: str
) -> None:
    shell.run_cell("one = 1")
    cell = f"import os\nif one == 1: {code}\n"
    trial = unrun(shell, cell, ("== 1", "== 2"))
    assert trial.before.outcome == outcome
    assert message in trial.before.message
    assert trial.after.outcome == "finished"


@linux_alone
def test_what_the_cell_has_started_ends_with_it(shell: InteractiveShell) -> None:
    seconds = "600.0731"  # no other process has this one
    cell = f"""
import subprocess
for is_alone in (False, True):
    subprocess.Popen(["sleep", "{seconds}"], start_new_session=is_alone)
one = 1
"""
    assert unrun(shell, cell, ("one = 1", "one = 2")).after.outcome == "finished"
    processes = psutil.process_iter(["cmdline"])
    assert not [one for one in processes if seconds in (one.info["cmdline"] or ())]


def test_what_takes_too_long_is_ended(shell: InteractiveShell) -> None:
    trial = unrun(shell, "import time\ntime.sleep(600)\n", ("600", "601"), timeout_s=2)
    assert (trial.before.outcome, trial.after.outcome) == ("timed out", "timed out")
    assert "it was not over after 2.00 s" in trial.before.message


def _tried_until(seconds: float, report: Report, shell: InteractiveShell, **how: Any) -> None:
    """Try fixes until the alarm goes off, wherever it does so: in here."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try_fixes(report, shell.user_ns, progress=_quiet, **how)


@pytest.mark.parametrize("after_ms", range(10, 500, 70))
def test_an_interrupt_goes_on_and_leaves_nothing(shell: InteractiveShell, after_ms: int) -> None:
    report = replace(reported(shell, "pass"), source="import time\ntime.sleep(600)\n")
    report = replace(report, findings=(finding(report.source, "600", "601"),))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            _tried_until(after_ms / 1000, report, shell)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_kernel_that_is_shut_down_takes_along_what_was_sent(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.mkdir()
    told = run_python(
        f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from pathlib import Path
from threading import Event, Thread
from oommagic.magics import open_shell
from test_trying import finding, replace, reported
from oommagic.trying import try_fixes
shell = open_shell()
shell.run_cell("import numpy as np, time\\nx = np.ones(1_000_000)")
cell = "time.sleep(600)\\nx.sum()\\n"
report = replace(reported(shell, "pass"), source=cell, findings=(finding(cell, "600", "601"),))
has_begun = Event()
def progress(text):
    if text == "the cell as it is":
        has_begun.set()
trying = dict(namespace=shell.user_ns, progress=progress)
Thread(target=try_fixes, args=[report], kwargs=trying, daemon=True).start()
has_begun.wait()
told["sent"] = len(list(Path({str(sent)!r}).rglob("array-1.npy")))
""",
        {"TMPDIR": str(sent)},
    )
    assert told["sent"] == 1
    assert list(sent.rglob("array-1.npy")) == []


# ---- Executors ----------------------------------------------------------------------------------


class AnotherMachine(ThreadPoolExecutor):
    """A worker that does not see the kernel's files."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        (task,) = args
        assert isinstance(task, CellTask)
        assert not kwargs
        unseen = replace(task, folder=f"{task.folder}-of-another-machine")
        return super().submit(function, unseen)


class Broken(ThreadPoolExecutor):
    """A worker that dies."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        del function, args, kwargs
        return super().submit(os.stat, "/nowhere/at/all")


def _processes() -> Executor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), _processes, AnotherMachine])
def test_an_executor_runs_them(shell: InteractiveShell, make: Callable[[], Executor]) -> None:
    shell.run_cell("import numpy as np\nx = np.full(1_000_000, 2.0)\n")
    report = reported(
        shell, "assert x.sum() == 2e6\na, b = 1, 2\n", ("a, b = 1", "a, b = 3"), ("2e6", "3e6")
    )
    with make() as executor:
        first, second = try_fixes(report, shell.user_ns, executor=executor, progress=_quiet)
    assert (first.before.outcome, first.after.outcome) == ("finished", "finished")
    assert second.after.outcome == "failed"
    note = "It ran on another machine, to which the cell's data were copied."
    assert (note in first.notes) == (make is AnotherMachine)


def test_a_worker_that_dies_is_no_success(shell: InteractiveShell) -> None:
    with Broken() as executor:
        trial = tried(shell, "a = 1\n", ("1", "2"), executor=executor)
    assert trial.after.outcome == "died"
    assert "the executor's worker failed: FileNotFoundError" in trial.after.message


def test_an_interrupt_ends_what_an_executor_runs(shell: InteractiveShell) -> None:
    report = replace(reported(shell, "pass"), source="import time\ntime.sleep(600)\n")
    report = replace(report, findings=(finding(report.source, "600", "601"),))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    with ThreadPoolExecutor(1) as executor:
        executor.submit(os.getpid).result()
        try:
            with pytest.raises(KeyboardInterrupt):
                _tried_until(0.7, report, shell, executor=executor)
        finally:
            signal.signal(signal.SIGALRM, before)
