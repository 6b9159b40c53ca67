"""Which calls of watched code lead to nothing watched: learnt from what they did before."""

from types import FrameType

from oommagic.measure.watched_code import WatchedCode
from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_QUIET_VISITS_BEFORE_PAUSE = 3
# Pausing costs about as much as tracing this many calls.
_CALLS_WORTH_A_PAUSE = 8


class _Site:
    """A call in watched code: how often in a row it led to nothing that is watched."""

    __slots__ = ("led_home", "quiet_visits", "tick")

    def __init__(self) -> None:
        self.quiet_visits = 0
        self.led_home = False
        self.tick = -1


class QuietCalls:
    """What is known of the calls that stand in watched code."""

    __slots__ = ("_site", "_sites", "_tick", "_watched", "calls_heard")

    def __init__(self, watched: WatchedCode) -> None:
        """Know nothing yet."""
        self.calls_heard = 0
        """How many calls of other code followed from the one that is looked at."""
        self._watched = watched
        self._sites: dict[tuple[int, int], _Site] = {}
        self._site: _Site | None = None
        self._tick = 0

    def tick(self) -> None:
        """Look again into calls that were quiet."""
        self._tick += 1

    def led_home(self) -> None:
        """The call that is looked at has come to watched code."""
        if self._site:
            self._site.led_home = True

    def is_quiet(self, caller: FrameType) -> bool:
        """Whether nothing watched can run inside this call, as far as one can know."""
        code_id = id(caller.f_code)
        watched = self._watched
        if not watched.may_be_called_back and caller.f_lineno not in watched.guarded_lines[code_id]:
            return True
        self._judge_last_visit()
        site = self._sites.setdefault((code_id, caller.f_lasti), _Site())
        if site.quiet_visits >= _QUIET_VISITS_BEFORE_PAUSE and site.tick == self._tick:
            return True
        site.tick, site.led_home = self._tick, False
        self._site, self.calls_heard = site, 0
        return False

    def clear(self) -> None:
        """Forget all calls."""
        self._sites.clear()

    def _judge_last_visit(self) -> None:
        if self._site is None:
            return
        if self._site.led_home:
            self._site.quiet_visits = 0
        elif self.calls_heard >= _CALLS_WORTH_A_PAUSE:
            self._site.quiet_visits += 1
        self._site = None
