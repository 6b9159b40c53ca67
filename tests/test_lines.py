"""Which line took what: through the front door, in a real shell, on both tracing engines."""

import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from blocks import ENGINES, block
from children import run_python
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from shell import line, profile, run_profiled

import oommagic
from oommagic.magics import open_shell
from oommagic.measure.ledger import EVENTS_PER_TICK
from oommagic.units import MIB


def touch_and_free(size_mib: int) -> None:
    """Take memory and give it back within one call."""
    block(size_mib).close()


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = open_shell()
    shell.push({"block": block, "touch_and_free": touch_and_free, "np": np, "MIB": MIB})
    # The first run imports what later ones find imported.
    profile(shell, "warm = block(1)\ndel warm")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture(autouse=True)
def nothing_left_to_collect() -> None:
    """Free what earlier cells left in cycles (a class is one), or a later line would seem to."""
    gc.collect()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return f"--engine {request.param}"


# Steps of a random program: take `n` MiB under a name, free a name, or take and free at once.
_names = st.sampled_from("abcd")
_sizes = st.integers(1, 24)
_steps = st.one_of(
    st.tuples(st.just("take"), _names, _sizes),
    st.tuples(st.just("free"), _names, st.just(0)),
    st.tuples(st.just("touch"), st.just(""), _sizes),
)


class Truth:
    """What a program of such steps holds, line by line, in MiB."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.lines: list[tuple[str, int, int]] = []

    def step(self, kind: str, name: str, size: int) -> None:
        before = sum(self.held.values())
        peak = before + size
        if kind == "take":
            # The new block is there before the name lets the old one go.
            self.held[name] = size
            source = f"{name} = block({size})"
        elif kind == "touch":
            source = f"touch_and_free({size})"
        else:
            self.held.pop(name, None)
            source = f"{name} = None"
        self.lines.append((source, sum(self.held.values()) - before, peak))


@settings(max_examples=25)
@given(st.lists(_steps, min_size=1, max_size=12))
def test_each_line_of_a_random_program_shows_its_change_and_its_peak(
    steps: list[tuple[str, str, int]],
) -> None:
    shell = open_shell()
    shell.push({"block": block, "touch_and_free": touch_and_free, **dict.fromkeys("abcd")})
    for engine in ENGINES:
        shell.push(dict.fromkeys("abcd"))
        truth = Truth()
        for step in steps:
            truth.step(*step)
        cell = "\n".join(source for source, _, _ in truth.lines)
        report = profile(shell, cell, f"--engine {engine}")
        for usage, (_, change, peak) in zip(report.profile.lines, truth.lines, strict=True):
            assert abs(usage.host_delta_bytes - change * MIB) < MIB
            assert abs(usage.host_peak_bytes - report.host.before_bytes - peak * MIB) < MIB
        shell.push(dict.fromkeys("abcd"))


def test_a_temporary_of_300_mb_inside_one_line_is_seen(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(shell, "total = int(np.ones(300 * MIB // 8).sum())", engine)
    (usage,) = report.profile.lines
    assert usage.host_peak_bytes - report.host.before_bytes > 299 * MIB
    assert abs(usage.host_delta_bytes) < MIB
    assert report.host.peak_bytes == usage.host_peak_bytes


def test_reading_a_memory_mapped_file_is_shown_as_file_pages(
    shell: InteractiveShell, engine: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "big.npy", np.ones(100 * MIB // 8))
    shell.push({"path": str(tmp_path / "big.npy")})
    report = profile(
        shell,
        """
        mapped = np.load(path, mmap_mode="r")
        total = float(mapped.sum())
        """,
        engine,
    )
    usage = line(report, "total")
    assert usage.file_delta_bytes > 95 * MIB
    assert abs(usage.host_delta_bytes) < MIB
    assert usage.host_peak_bytes - report.host.before_bytes < 4 * MIB
    shell.run_cell("del mapped")


def test_a_loop_shows_its_hits_its_total_and_its_worst(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        import time
        for pause in (0.01, 0.05, 0.01):
            time.sleep(pause)
        """,
        engine,
    )
    usage = line(report, "time.sleep")
    assert usage.hits == 3
    assert line(report, "for").hits == 4
    assert 0.07 <= usage.elapsed_s < 0.2
    assert 0.05 <= usage.worst_s < usage.elapsed_s


def test_lines_add_up_to_the_cell_and_no_call_is_charged_twice(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        def inner():
            return block(16)
        def outer():
            kept = inner()
            return kept
        kept = outer()
        """,
        engine,
    )
    lines = report.profile.lines
    change = report.host.after_bytes - report.host.before_bytes
    assert abs(sum(usage.host_delta_bytes for usage in lines) - change) < MIB
    assert line(report, "return block").host_delta_bytes > 15 * MIB
    assert abs(line(report, "kept = outer").host_delta_bytes) < MIB
    assert line(report, "kept = outer").host_peak_bytes >= report.host.before_bytes + 15 * MIB
    assert sum(usage.elapsed_s for usage in lines) <= report.elapsed_s
    shell.run_cell("del kept")


def test_recursion_is_charged_once_per_level(shell: InteractiveShell, engine: str) -> None:
    report = profile(
        shell,
        """
        def dig(depth):
            mine = block(2)
            if depth:
                dig(depth - 1)
            return None
        dig(4)
        """,
        engine,
    )
    usage = line(report, "mine")
    assert usage.hits == 5
    assert abs(usage.host_delta_bytes - 10 * MIB) < MIB
    assert abs(line(report, "dig(4)").host_peak_bytes - report.host.before_bytes - 10 * MIB) < MIB


def test_generators_comprehensions_classes_and_lambdas_are_charged_where_they_stand(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        def blocks(count):
            for _ in range(count):
                made = block(2)
                yield made
        class Holder:
            kept = block(3)
        firsts = [made for made in blocks(3)]
        seconds = list(map(lambda size: block(size), [1, 1]))
        del firsts, seconds, Holder
        """,
        engine,
    )
    assert line(report, "made = block").hits == 3
    assert abs(line(report, "made = block").host_delta_bytes - 6 * MIB) < MIB
    assert abs(line(report, "kept = block").host_delta_bytes - 3 * MIB) < MIB
    assert abs(line(report, "seconds").host_delta_bytes - 2 * MIB) < MIB
    assert line(report, "firsts").hits == 1
    assert abs(line(report, "firsts").host_delta_bytes) < MIB


def test_a_statement_of_many_lines_is_one_row(shell: InteractiveShell, engine: str) -> None:
    report = profile(
        shell,
        """
        kept = dict(
            first=block(2),
            second=[
                block(1)
                for _ in range(3)
            ],
        )
        del kept
        """,
        engine,
    )
    whole, *rest = report.profile.lines[:7]
    assert whole.hits == 1
    assert abs(whole.host_delta_bytes - 5 * MIB) < MIB
    assert [usage.hits for usage in rest] == [0] * 6


def test_a_thread_that_the_cell_starts_is_profiled_too(
    shell: InteractiveShell, engine: str
) -> None:
    report = profile(
        shell,
        """
        import threading
        kept = []
        def work():
            kept.append(block(20))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        del kept
        """,
        engine,
    )
    assert line(report, "kept.append").hits == 1
    assert line(report, "kept.append").host_delta_bytes > 19 * MIB


def test_a_hot_loop_is_counted_in_part_and_says_so(shell: InteractiveShell, engine: str) -> None:
    report = profile(
        shell,
        """
        total = 0
        for number in range(1_000_000):
            total += number
        kept = block(8)
        del kept
        """,
        engine,
    )
    usage = line(report, "total +=")
    assert usage.is_partial
    assert EVENTS_PER_TICK // 3 < usage.hits < 1_000_000  # two lines take turns
    loop_s = usage.elapsed_s + line(report, "for").elapsed_s
    assert loop_s > 0.5 * report.elapsed_s - line(report, "kept").elapsed_s
    assert not line(report, "kept").is_partial
    assert abs(line(report, "kept").host_delta_bytes - 8 * MIB) < MIB


def test_memory_that_a_hot_loop_takes_is_found_on_its_lines(
    shell: InteractiveShell, engine: str
) -> None:
    # Several ticks long: on Python 3.11 the jump back from a branch not taken is of no line.
    report = profile(
        shell,
        """
        kept = []
        for number in range(5_000_000):
            if number == 150_000:
                kept.append(block(60))
        del kept
        """,
        engine,
    )
    loop = report.profile.lines[1:4]
    assert abs(sum(usage.host_delta_bytes for usage in loop) - 60 * MIB) < 2 * MIB
    assert max(usage.host_peak_bytes for usage in loop) - report.host.before_bytes > 59 * MIB


def test_a_callback_from_a_library_is_heard(shell: InteractiveShell, engine: str) -> None:
    report = profile(
        shell,
        """
        import json
        class Encoder(json.JSONEncoder):
            def default(self, value):
                self.kept = block(4)
                return 1
        for _ in range(3):
            text = json.dumps([object()] * 2, cls=Encoder)
        """,
        engine,
    )
    assert line(report, "self.kept").hits == 6


def test_lines_after_a_caught_error_are_measured(shell: InteractiveShell, engine: str) -> None:
    report = profile(
        shell,
        """
        import json
        kept = None
        try:
            json.loads("{bad")
        except ValueError as error:
            kept = block(5)
            reason = error
        more = block(6)
        del kept, more
        """,
        engine,
    )
    assert abs(line(report, "kept = block").host_delta_bytes - 5 * MIB) < MIB
    assert abs(line(report, "more").host_delta_bytes - 6 * MIB) < MIB


def test_top_level_await_is_profiled(shell: InteractiveShell, engine: str) -> None:
    report = profile(
        shell,
        """
        import asyncio
        async def work():
            await asyncio.sleep(0.01)
            return block(7)
        kept = await work()
        del kept
        """,
        engine,
    )
    assert abs(line(report, "return block").host_delta_bytes - 7 * MIB) < MIB
    assert line(report, "kept = await").hits == 1


def test_a_cell_below_another_cell_magic_is_told_line_by_line(
    shell: InteractiveShell, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = profile(shell, "%%time\n\nkept = block(5)\nmore = block(6)\ndel kept, more", engine)
    assert abs(line(report, "kept").host_delta_bytes - 5 * MIB) < MIB
    assert abs(line(report, "more").host_delta_bytes - 6 * MIB) < MIB
    assert "Wall time" in capsys.readouterr().out


def test_a_failing_cell_names_the_line_and_keeps_what_came_before(
    shell: InteractiveShell, engine: str
) -> None:
    run_profiled(shell, "kept = block(5)\ndef fail():\n    1 / 0\nfail()", engine)
    report = oommagic.last_report()
    assert report.outcome.kind == "failed"
    assert report.outcome.error_type == "ZeroDivisionError"
    assert report.outcome.line_number == 3
    assert abs(line(report, "kept").host_delta_bytes - 5 * MIB) < MIB
    shell.run_cell("del kept")


def test_a_debugger_that_holds_the_hook_is_respected_and_the_report_says_so(
    shell: InteractiveShell,
) -> None:
    def somebody_elses(*_: object) -> None:
        return None

    sys.settrace(somebody_elses)
    try:
        report = profile(shell, "import time\ntime.sleep(0.4)\nkept = 1", "--engine settrace")
        assert sys.gettrace() is somebody_elses
    finally:
        sys.settrace(None)
    assert report.engine.name == "sampling"
    assert "holds the trace hook" in report.engine.reason
    assert line(report, "time.sleep").elapsed_s > 0.2


def test_a_cell_that_takes_the_trace_hook_keeps_it_and_the_report_says_so(
    shell: InteractiveShell,
) -> None:
    try:
        report = profile(shell, "import sys\nsys.settrace(print)\n", "--engine settrace")
        assert sys.gettrace() is print
    finally:
        sys.settrace(None)
    assert any("trace function of its own" in note for note in report.notes)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_where_all_tool_ids_are_taken_settrace_serves(shell: InteractiveShell) -> None:
    taken = [number for number in range(6) if sys.monitoring.get_tool(number) is None]
    for number in taken:
        sys.monitoring.use_tool_id(number, "somebody else")
    try:
        report = profile(shell, "kept = 1")
    finally:
        for number in taken:
            sys.monitoring.free_tool_id(number)
    assert report.engine.name == "settrace"
    assert "other tools hold" in report.engine.reason


def test_nothing_of_the_tracer_is_left_behind(shell: InteractiveShell, engine: str) -> None:
    before = (threading.active_count(), len(list(Path("/proc/self/fd").iterdir())))
    profile(shell, "kept = [number for number in range(10)]", engine)
    run_profiled(shell, "1 / 0", engine)
    assert sys.gettrace() is None
    assert threading.gettrace() is None
    assert (threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))) == before
    if sys.version_info >= (3, 12):
        assert all(sys.monitoring.get_tool(number) is None for number in (3, 4, 5))


def test_memory_profilers_own_engine_gives_its_own_account(shell: InteractiveShell) -> None:
    report = profile(shell, "kept = block(30)\ndel kept", "--engine memory-profiler")
    assert report.engine.name == "memory-profiler"
    assert abs(line(report, "kept").host_delta_bytes - 30 * MIB) < 2 * MIB
    assert line(report, "kept").hits == 1


def test_a_report_is_the_same_when_it_is_saved_and_loaded(
    shell: InteractiveShell, tmp_path: Path
) -> None:
    report = profile(shell, "kept = block(3)\ndel kept", f"-o {tmp_path}/run.json")
    assert oommagic.load(tmp_path / "run.json") == report


WHAT_A_TICK_ASKS_COMES_DURING_A_READING = """
from oommagic.magics import open_shell
from oommagic.measure import host, interrupts, settrace

engines = []
start, read = settrace.SettraceEngine.start, host.KernelCounters.read

def start_and_tell(self):
    engines.append(self)
    start(self)

def read_while_a_tick_asks(self):
    for engine in engines:
        interrupts.ask_main_thread(engine._resume_if_lost)
    return read(self)

settrace.SettraceEngine.start = start_and_tell
host.KernelCounters.read = read_while_a_tick_asks
shell = open_shell()
shell.run_cell("%%oomprofile -q --engine settrace\\nimport json\\njson.loads('{')")
import oommagic
told["outcome"] = oommagic.last_report().outcome.kind
"""


def test_what_a_tick_asks_does_not_wait_for_the_reading_that_it_comes_into() -> None:
    assert run_python(WHAT_A_TICK_ASKS_COMES_DURING_A_READING)["outcome"] == "failed"


AN_INTERRUPT_COMES_AS_A_PAUSE_ENDS = """
from oommagic.magics import open_shell
from oommagic.measure import settrace

resume = settrace.SettraceEngine.resume

def resume_interrupted(self):
    settrace.SettraceEngine.resume = resume
    raise KeyboardInterrupt

settrace.SettraceEngine.resume = resume_interrupted
shell = open_shell()
shell.run_cell("%%oomprofile -q --engine settrace\\nimport json\\njson.loads('[]')\\nx = 1")
import oommagic
told["outcome"] = oommagic.last_report().outcome.kind
"""


def test_an_interrupt_that_comes_as_a_pause_ends_is_not_lost() -> None:
    assert run_python(AN_INTERRUPT_COMES_AS_A_PAUSE_ENDS)["outcome"] == "interrupted"
