"""`with oommagic.profile()`: plain Python, line by line, on both tracing engines."""

import asyncio
import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest
from blocks import ENGINES, block
from children import run_python
from shell import line

import oommagic
from oommagic.block import ProfiledBlock
from oommagic.errors import UsageError
from oommagic.report import Report
from oommagic.units import MIB


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def recorders() -> list[int]:
    """Name all recordings that something still holds."""
    gc.collect()
    return sorted(id(found) for found in gc.get_objects() if type(found).__name__ == "Recorder")


def changes_mib(report: Report) -> list[int]:
    return [round(usage.host_delta_bytes / MIB) for usage in report.profile.lines]


def test_each_line_of_the_body_is_measured(engine: str) -> None:
    with oommagic.profile(engine=engine) as run:
        kept = block(5)
        more = block(3)
        del kept
    assert changes_mib(run.report) == [5, 3, -5]
    assert [usage.hits for usage in run.report.profile.lines] == [1, 1, 1]
    assert run.report is oommagic.last_report()
    more.close()


def test_what_the_body_lets_go_is_gone_at_once(engine: str) -> None:
    kept = block(9)
    with oommagic.profile(engine=engine) as run:
        del kept
        gone = True
    assert gone
    assert changes_mib(run.report) == [-9, 0]


def test_a_body_on_the_line_of_its_with_is_measured(engine: str) -> None:
    with oommagic.profile(engine=engine) as run:
        kept = block(4)
    (usage,) = run.report.profile.lines
    assert abs(usage.host_delta_bytes - 4 * MIB) < MIB
    kept.close()


def test_a_block_in_a_loop_gives_a_report_each_time(engine: str) -> None:
    reports = []
    for size in (2, 6):
        with oommagic.profile(engine=engine) as run:
            kept = block(size)
            kept.close()
        reports.append(changes_mib(run.report))
    assert reports == [[2, -2], [6, -6]]


def test_a_head_of_several_lines_and_items_is_found(engine: str) -> None:
    with (
        contextlib.nullcontext(),
        oommagic.profile(
            engine=engine,
        ) as run,
    ):
        kept = block(4)
    assert changes_mib(run.report) == [4]
    kept.close()


def test_an_error_passes_through_and_its_line_is_named(engine: str) -> None:
    def fail() -> ProfiledBlock:
        run = oommagic.profile(engine=engine)
        with contextlib.suppress(ValueError), run:
            kept = block(2)
            raise ValueError(str(len(kept)))
        return run

    report = fail().report
    assert report.outcome.kind == "failed"
    assert report.outcome.error_type == "ValueError"
    named = [u for u in report.profile.lines if u.line_number == report.outcome.line_number]
    assert [usage.source.strip() for usage in named] == ["raise ValueError(str(len(kept)))"]


def test_a_block_inside_a_block_is_refused_and_breaks_nothing(engine: str) -> None:
    with oommagic.profile(engine=engine) as run:
        with pytest.raises(UsageError, match="runs already"), oommagic.profile():
            pass
        kept = block(3)
    assert abs(line(run.report, "kept =").host_delta_bytes - 3 * MIB) < MIB
    kept.close()


def test_the_report_of_a_running_block_is_refused_in_a_sentence(engine: str) -> None:
    with oommagic.profile(engine=engine) as run:
        with pytest.raises(UsageError, match="still runs"):
            _ = run.report
        finished = True
    assert finished
    assert line(run.report, "finished").hits == 1


def test_without_its_source_a_block_has_figures_as_a_whole(engine: str) -> None:
    names = {"oommagic": oommagic, "block": block, "engine": engine}
    exec("with oommagic.profile(engine=engine) as run:\n    kept = block(3)", names)  # noqa: S102
    report = names["run"].report  # type: ignore[attr-defined]
    assert report.profile.lines == ()
    assert report.host.after_bytes - report.host.before_bytes > 2 * MIB
    assert any("as a whole only" in note for note in report.notes)


def test_a_function_defined_in_the_block_can_be_asked_for(engine: str) -> None:
    with oommagic.profile("helper", engine=engine) as run:

        def helper(size: int) -> object:
            return block(size)

        kept = helper(3)
    (shown,) = run.report.profile.functions
    assert shown.name == "helper"
    assert [usage.source.strip() for usage in shown.lines][-1] == "return block(size)"
    assert abs(shown.lines[-1].host_delta_bytes - 3 * MIB) < MIB
    del kept


def test_a_function_that_is_not_there_is_said_without_the_magics_options(engine: str) -> None:
    with oommagic.profile("nope", engine=engine) as run:
        pass
    (said,) = [note for note in run.report.notes if "nope" in note]
    assert said.startswith("nope: there is no Python function of that name")
    assert "-f" not in said


def test_a_coroutine_and_a_generator_can_hold_a_block(engine: str) -> None:
    async def wait() -> ProfiledBlock:
        with oommagic.profile(engine=engine) as run:
            await asyncio.sleep(0.01)
            block(2).close()
        return run

    def pause() -> Iterator[ProfiledBlock]:
        with oommagic.profile(engine=engine) as run:
            yield run
            block(2).close()

    waited = asyncio.run(wait()).report
    assert [usage.hits for usage in waited.profile.lines] == [1, 1]
    (paused,) = pause()
    assert [usage.hits for usage in paused.report.profile.lines] == [1, 1]


def test_nothing_of_the_user_s_is_kept_and_no_hook_is_left(engine: str) -> None:
    class Thing:
        pass

    threads, before = threading.active_count(), recorders()
    with oommagic.profile(engine=engine) as run:
        thing = Thing()
        died = weakref.ref(thing)
        del thing
        died_at_once = died() is None
    assert run.report.outcome.kind == "finished"
    assert died_at_once
    assert sys.gettrace() is None
    assert sys._getframe().f_trace is None
    assert threading.active_count() == threads
    assert recorders() == before


def fail_elsewhere() -> None:
    raise ValueError("elsewhere")


def test_an_error_in_another_function_of_the_file_is_placed_at_the_blocks_line() -> None:
    run = oommagic.profile()
    with pytest.raises(ValueError, match="elsewhere"), run:
        fail_elsewhere()
    stopped_at = run.report.outcome.line_number
    (usage,) = run.report.profile.lines
    assert stopped_at == usage.line_number


def test_a_syntax_error_that_the_block_meets_is_told_in_its_own_words() -> None:
    run = oommagic.profile()
    with pytest.raises(SyntaxError), run:
        compile("a: = 1", "<text>", "exec")
    assert run.report.outcome.message == "invalid syntax"


def test_a_forked_child_that_leaves_the_block_leaves_the_recording_to_its_parent() -> None:
    told = run_python("""
import glob, os, sys, tempfile
import oommagic
tempfile.tempdir = place = tempfile.mkdtemp()  # other tests run beside this one
def folders():
    return glob.glob(f"{place}/oommagic-*-*")
told["child"] = 1
try:
    with oommagic.profile() as run:
        if (child := os.fork()) == 0:
            sys.exit()
        told["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        told["folders"] = len(folders())
except SystemExit:
    with oommagic.profile() as again:
        pass
    os._exit(7 if again.report.outcome.kind == "finished" and not sys.gettrace() else 8)
told["outcome"] = run.report.outcome.kind
told["left"] = len(folders())
os.rmdir(place)
""")
    assert told == {"child": 7, "folders": 1, "outcome": "finished", "left": 0}
