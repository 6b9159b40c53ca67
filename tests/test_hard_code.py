"""Code that is hard on a tracer: it still behaves as it would, and is measured as far as can be."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from blocks import ENGINES, block
from IPython.core.interactiveshell import InteractiveShell
from shell import line, profile, run_profiled

import oommagic
from oommagic.magics import open_shell
from oommagic.report import Report
from oommagic.units import MIB

# A library that the tracer does not watch, and that keeps its frames alive.
_LIBRARY = """
import sys
KEPT = []

def keep_frame():
    KEPT.append(sys._getframe())

def keep_error():
    try:
        fail()
    except ValueError as error:
        KEPT.append(error)

def fail():
    raise ValueError("no")

def call(function):
    return function()
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    shell = open_shell()
    folder = tmp_path_factory.mktemp("library")
    (folder / "keeping.py").write_text(_LIBRARY)
    sys.path.insert(0, str(folder))
    shell.push({"block": block, "time": time, "contextlib": contextlib})
    profile(shell, "import keeping\nwarm = block(1)\ndel warm")
    yield shell
    sys.path.remove(str(folder))
    InteractiveShell.clear_instance()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return f"--engine {request.param}"


def took_mib(report: Report, source: str) -> int:
    change: int = line(report, source).host_delta_bytes
    return round(change / MIB)


def test_lines_after_a_call_whose_frame_or_error_is_kept_are_measured(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        keeping.keep_frame()
        one = block(3)
        keeping.keep_error()
        two = block(4)
        keeping.KEPT.clear()
        del one, two
        """,
        engine,
    )
    assert took_mib(report, "one =") == 3
    assert took_mib(report, "two =") == 4


def test_inside_one_statement_tracing_comes_back_by_itself(shell: InteractiveShell) -> None:
    report = profile(
        shell,
        """
        import sys
        if True:
            keeping.keep_frame()
            while sys.gettrace() is None:
                time.sleep(0.001)
            one = block(3)
            keeping.KEPT.clear()
            del one
        """,
        "--engine settrace",
    )
    assert took_mib(report, "one =") == 3
    assert line(report, "keeping.keep_frame").is_partial


def test_a_recursion_error_is_the_cell_s_own(shell: InteractiveShell, engine: str) -> None:
    source = """
        import traceback
        deepest = 0
        def dig(depth):
            global deepest
            deepest = depth
            dig(depth + 1)
        try:
            dig(0)
        except RecursionError as error:
            files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        one = block(3)
        del one
        """
    report = profile(shell, source, engine)
    deepest = shell.user_ns["deepest"]
    assert not [name for name in shell.user_ns["files"] if "oommagic" in name]
    assert took_mib(report, "one =") == 3
    shell.run_cell("try:\n    dig(0)\nexcept RecursionError:\n    pass")
    assert shell.user_ns["deepest"] - deepest < 20


def test_interrupts_at_any_moment_are_the_cell_s_and_measuring_goes_on(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        import signal
        def interrupt(*_):
            raise KeyboardInterrupt
        before = signal.signal(signal.SIGALRM, interrupt)
        caught = 0
        for attempt in range(150):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + attempt * 1e-6)
                while True:
                    one = attempt
                    two = one + 1
            except KeyboardInterrupt:
                caught += 1
        _ = signal.signal(signal.SIGALRM, before)
        kept = block(3)
        del kept
        """,
        engine,
    )
    assert shell.user_ns["caught"] == 150
    assert took_mib(report, "kept =") == 3


def test_a_thread_that_outlives_the_cell_runs_on_untouched(
    shell: InteractiveShell, engine: str
) -> None:
    run_profiled(
        shell,
        """
        import threading
        stop, failed, turns = threading.Event(), [], 0
        def turn():
            global turns
            turns += 1
        def work():
            try:
                while not stop.wait(0.0005):
                    turn()
            except BaseException as error:
                failed.append(error)
        thread = threading.Thread(target=work)
        thread.start()
        while turns < 5:
            time.sleep(0.001)
        """,
        engine,
    ).raise_error()
    names = shell.user_ns
    turns = names["turns"]
    while names["turns"] < turns + 5:
        time.sleep(0.001)
    report = profile(shell, "kept = block(2)\ndel kept", engine)
    assert took_mib(report, "kept =") == 2
    names["stop"].set()
    names["thread"].join()
    assert names["failed"] == []


def test_generators_left_suspended_go_on_after_the_cell(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        def make():
            one = block(2)
            yield 1
            two = block(2)
            yield 2
        made = make()
        first = next(made)
        """,
        engine,
    )
    assert line(report, "two =").hits == 0
    assert next(shell.user_ns["made"]) == 2
    shell.run_cell("del made")


def test_asynchronous_generators_are_measured_where_they_stand(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        import asyncio
        async def make():
            for _ in range(3):
                made = block(2)
                await asyncio.sleep(0)
                yield made
        kept = [each async for each in make()]
        del kept
        """,
        engine,
    )
    assert line(report, "made =").hits == 3
    assert took_mib(report, "made =") == 6
    assert line(report, "kept =").hits == 1


def test_an_error_through_many_frames_charges_each_line_once(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        def outer():
            one = block(2)
            keeping.call(inner)
        def inner():
            two = block(3)
            raise KeyError
        with contextlib.suppress(KeyError):
            outer()
        three = block(1)
        del three
        """,
        engine,
    )
    for source, size in (("one =", 2), ("two =", 3), ("three =", 1)):
        assert line(report, source).hits == 1
        assert took_mib(report, source) == size


def test_a_hot_function_and_the_lines_around_it_are_both_measured(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        def small(number):
            result = number + 1
            return result
        for number in range(100_000):
            small(number)
        kept = block(6)
        del kept
        """,
        engine,
    )
    assert line(report, "result =").is_partial
    assert took_mib(report, "kept =") == 6


def test_a_rare_line_in_a_hot_loop_keeps_its_memory_with_sys_monitoring(
    shell: InteractiveShell,
) -> None:
    if sys.version_info < (3, 12):
        pytest.skip("sys.settrace silences whole frames")
    report = profile(
        shell,
        """
        kept = None
        for number in range(300_000):
            if number == 290_000:
                kept = block(60)
        del kept
        """,
        "--engine monitoring",
    )
    assert round(report.profile.lines[3].host_delta_bytes / MIB) == 60


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_touches_nothing_of_its_parent_s(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        import os
        kept = block(20)
        child = os.fork()
        if child == 0:
            for _ in range(2000):
                _ = 1
            more = block(50)
            os._exit(0)
        ended = os.waitpid(child, 0)
        del kept
        """,
        engine,
    )
    assert shell.user_ns["ended"][1] == 0
    assert line(report, "more =").hits == 0
    assert report.host.peak_bytes - report.host.before_bytes < 30 * MIB
    assert took_mib(report, "kept =") == 20


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_pool_of_forked_workers_does_its_work(shell: InteractiveShell, engine: str) -> None:
    profile(
        shell,
        """
        import multiprocessing
        def work(number):
            return number * 2
        with multiprocessing.get_context("fork").Pool(2) as pool:
            got = pool.map(work, range(50))
        """,
        engine,
    )
    assert shell.user_ns["got"] == [number * 2 for number in range(50)]


def test_what_a_child_process_holds_is_shown_when_asked_for(
    shell: InteractiveShell, engine: str
) -> None:
    child = "held = bytearray(100 << 20); print(flush=True); import sys; sys.stdin.read()"
    shell.push({"child": child, "command": [sys.executable, "-c", child]})
    report = profile(
        shell,
        """
        import subprocess
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ready = child.stdout.readline()
        time.sleep(0.5)
        ended = child.communicate()
        """,
        f"{engine} --include-children",
    )
    children = report.host.children_peak_bytes
    assert children is not None
    assert 100 * MIB < children < 140 * MIB
    assert line(report, "time.sleep").children_peak_bytes > 100 * MIB


def test_a_profiler_in_the_cell_and_ours_do_not_disturb_each_other(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        import cProfile, pstats
        calls = cProfile.Profile()
        calls.enable()
        kept = block(5)
        calls.disable()
        seen = [name for _, _, name in pstats.Stats(calls).stats]
        del kept
        """,
        engine,
    )
    assert "block" in shell.user_ns["seen"]
    assert took_mib(report, "kept =") == 5


def test_lines_that_are_only_looked_at_are_marked_and_hit_when_they_change(
    shell: InteractiveShell,
) -> None:
    sys.settrace(lambda *_: None)
    try:
        report = profile(shell, "time.sleep(0.4)\nother = 1", "--engine settrace")
    finally:
        sys.settrace(None)
    assert report.engine.name == "sampling"
    assert line(report, "time.sleep").hits == 1
    assert line(report, "time.sleep").is_partial


def test_a_cell_of_thousands_of_lines_is_measured_whole(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(shell, "\n".join(f"x{number} = {number}" for number in range(3000)), engine)
    assert {usage.hits for usage in report.profile.lines} == {1}
    assert not any(usage.is_partial for usage in report.profile.lines)


def test_what_a_function_of_a_finished_cell_held_is_free(
    shell: InteractiveShell, engine: str
) -> None:
    profile(
        shell,
        """
        import weakref
        class Thing:
            pass
        def hold():
            thing = Thing()
            return weakref.ref(thing)
        died = hold()
        """,
        engine,
    )
    assert shell.user_ns["died"]() is None
    assert oommagic.last_report().outcome.kind == "finished"
    assert threading.gettrace() is None


def test_two_profiled_cells_in_a_row_both_count_from_nought(
    shell: InteractiveShell, engine: str
) -> None:
    for size in (4, 2):
        report = profile(shell, f"kept = block({size})\nkept.close()", engine)
        assert took_mib(report, "kept =") == size
        assert line(report, "kept =").hits == 1
