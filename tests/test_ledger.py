"""The account itself, with meters that the tests set."""

import threading
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from oommagic.cell import Statement
from oommagic.measure import ledger as ledger_module
from oommagic.measure.ledger import EVENTS_PER_TICK, HOT_FIRES, Ledger
from oommagic.measure.sharing import split

if TYPE_CHECKING:
    from collections.abc import Callable

CODE, FRAME = 1, 100


class Host:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.own = 0
        self.peak = 0
        self.readings = 0
        self.clock: Clock | None = None

    def read(self) -> tuple[int, int, int]:
        self.readings += 1
        if self.clock is not None:
            self.clock.go_on()
        peak, self.peak = max(self.peak, self.own), self.own
        return self.own, 0, peak


class NoDevices:
    """No device has figures."""

    names: tuple[str, ...] = ()

    def find(self) -> bool:
        return False

    def read(self) -> tuple[tuple[int, int], ...]:
        return ()

    def tracing_graph(self) -> bool:
        return False


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.before_telling: Callable[[], object] = int

    def __call__(self) -> float:
        self.before_telling()
        return self.now

    def go_on(self) -> None:
        """Let the time pass that a reading takes."""
        self.now += 0.00001


def statement_of(code_id: int, line: int) -> Statement:
    return Statement(f"<{code_id}>", line, comes_back=False)


def opened() -> tuple[Ledger, Host, Clock]:
    host, clock = Host(), Clock()
    ledger = Ledger(host, NoDevices(), statement_of, clock)
    ledger.open()
    return ledger, host, clock


@given(st.integers(-(10**12), 10**12), st.lists(st.floats(0, 1e9), min_size=1, max_size=20))
def test_nothing_is_lost_when_an_amount_is_split(amount: int, weights: list[float]) -> None:
    assert sum(split(amount, weights)) == amount


_events = st.tuples(
    st.sampled_from(["line", "line", "line", "call", "return", "tick"]),
    st.integers(1, 5),
    st.integers(-50, 50),
)


@given(st.lists(_events, max_size=300))
def test_all_time_and_memory_is_charged_whatever_lines_run(
    events: list[tuple[str, int, int]],
) -> None:
    ledger, host, clock = opened()
    ledger.at_line(FRAME, CODE, 1)
    frames = [FRAME]
    for kind, line, change in events:
        clock.now += 0.001
        host.own += change
        if kind == "tick":
            ledger.tick()
        elif kind == "return" and len(frames) > 1:
            ledger.left(frames.pop())
        else:
            if kind == "call":
                frames.append(FRAME + len(frames))
            ledger.at_line(frames[-1], CODE + len(frames), line)
    ledger.close()
    assert sum(tally.own_delta for tally in ledger.tallies) == host.own
    assert abs(sum(tally.elapsed for tally in ledger.tallies) - clock.now) < 1e-6


def test_a_hot_loop_is_silenced_and_a_rare_line_beside_it_is_not() -> None:
    ledger, host, clock = opened()
    host.clock = clock
    silenced = [ledger.at_line(FRAME, CODE, 1 + turn % 2) for turn in range(EVENTS_PER_TICK + 2)]
    assert not any(silenced[:EVENTS_PER_TICK])
    assert silenced[-1]
    assert not any(ledger.at_line(FRAME, CODE, 3) for _ in range(HOT_FIRES - 1))


def test_counted_lines_read_no_meter_and_keep_their_hits() -> None:
    ledger, host, clock = opened()
    host.clock = clock
    for turn in range(EVENTS_PER_TICK):
        ledger.at_line(FRAME, CODE, 1 + turn % 2)
    assert host.readings < EVENTS_PER_TICK // 2
    assert sum(tally.hits for tally in ledger.tallies) == EVENTS_PER_TICK


def test_a_line_that_waits_is_not_charged_with_what_another_thread_takes() -> None:
    ledger, host, _ = opened()
    ledger.at_line(FRAME, CODE, 1)

    def work() -> None:
        ledger.at_line(FRAME + 1, CODE + 1, 7)
        sum(number * number for number in range(4_000_000))
        host.own += 1_000_000
        ledger.left(FRAME + 1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    ledger.at_line(FRAME, CODE, 2)
    ledger.close()
    charged = {tally.line: tally.own_delta for tally in ledger.tallies}
    assert charged[7] > 900_000
    assert sum(charged.values()) == 1_000_000


def test_a_look_from_another_thread_charges_the_line_that_runs_and_goes_on() -> None:
    ledger, host, _ = opened()
    ledger.at_line(FRAME, CODE, 1)
    host.own = 50
    looking = threading.Thread(target=ledger.look)
    looking.start()
    looking.join()
    assert [tally.own_delta for tally in ledger.tallies] == [50]
    host.own = 80
    ledger.at_line(FRAME, CODE, 2)
    ledger.close()
    assert {tally.line: tally.own_delta for tally in ledger.tallies} == {1: 80, 2: 0}
    assert not any(tally.is_shared for tally in ledger.tallies)


def test_after_the_end_events_change_nothing_and_read_no_meter() -> None:
    ledger, host, _ = opened()
    ledger.at_line(FRAME, CODE, 1)
    ledger.close()
    readings = host.readings
    host.own = 77
    assert ledger.at_line(FRAME, CODE, 2)
    ledger.left(FRAME)
    ledger.close()
    assert host.readings == readings
    assert [tally.own_delta for tally in ledger.tallies] == [0]


def test_the_run_may_end_while_another_thread_is_amid_an_event() -> None:
    ledger, _, clock = opened()
    ledger.at_line(FRAME, CODE, 1)
    ledger.at_line(FRAME + 1, CODE + 1, 1)

    def end() -> None:
        clock.before_telling = int
        ledger.close()

    clock.before_telling = end
    ledger.left(FRAME + 1)
    assert not ledger.is_open
    assert sum(tally.hits for tally in ledger.tallies) == 2


def test_a_forked_child_leaves_its_parent_s_meters_alone() -> None:
    ledger, host, _ = opened()
    ledger.at_line(FRAME, CODE, 1)
    readings, forks = host.readings, ledger_module._forks
    ledger_module._count_fork()
    try:
        assert ledger.at_line(FRAME, CODE, 2)
        ledger.left(FRAME)
        ledger.close()
        assert host.readings == readings
    finally:
        ledger_module._forks = forks


def test_a_frame_that_ended_unheard_does_not_lend_its_number_to_another() -> None:
    ledger, _, clock = opened()
    ledger.at_line(FRAME, CODE, 1)
    ledger.at_line(FRAME + 1, CODE + 1, 5)
    ledger.at_line(FRAME + 1, CODE + 2, 9)
    clock.now += 1.0
    ledger.close()
    assert {tally.line: tally.elapsed for tally in ledger.tallies} == {1: 0.0, 5: 0.0, 9: 1.0}
