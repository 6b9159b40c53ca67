"""What of a step can go on while one of its ops waits for memory, by the graph of its ops.

An op that waits keeps what it was given, and those after it, however far, do not begin. All others
do, and give back what they no longer need.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from oommagic.explain.scaling import INHERITED, Allocation, Script

_Ops = frozenset[str]
_NONE: _Ops = frozenset()


class Orders:
    """What need not wait for what, in steps of one model."""

    def __init__(self, needs: Mapping[str, Iterable[str]], processors: int) -> None:
        """Turn around which op needs which others; behind one that is not known may be all."""
        self.threads = processors + 1
        """An op that waits keeps one of them: when the last one waits, nothing goes on."""
        self._known = frozenset(needs)
        self._users: defaultdict[str, list[str]] = defaultdict(list)
        for op, needed in needs.items():
            for one in needed:
                self._users[one].append(op)
        self._reached: dict[tuple[str, _Ops], _Ops] = {}
        self._giving: dict[int, _Ops] = {}

    def stopped_by(self, script: Script, event: int) -> _Ops:
        """Give the op that waits with that event, and all that cannot begin before it is over."""
        op = _allocation(script, event).op
        return self._behind(op) | {op} if op in self._known else self._known

    def goes_on(self, script: Script, event: int, stopped: AbstractSet[str]) -> bool:
        """Say whether that event comes about while these ops are stopped."""
        if event >= INHERITED:
            return False
        one = _allocation(script, event)
        if one.op not in self._known or one.op in stopped:
            return False
        is_ops_own = event >= 0 or one.role.kind == "workspace"
        return is_ops_own or stopped.isdisjoint(self._behind(one.op, self._giving_out(script)))

    def _behind(self, op: str, ends: _Ops = _NONE) -> _Ops:
        """Give all that comes after an op, however far.

        With `ends`, those that may hold what it gives out: who gives out nothing of its own passes
        on what it was given.
        """
        if (op, ends) not in self._reached:
            self._reached[op, ends] = self._reach(op, ends)
        return self._reached[op, ends]

    def _reach(self, op: str, ends: _Ops) -> _Ops:
        reached, left = set[str](), [op]
        while left:
            for user in self._users[left.pop()]:
                if user not in reached:
                    reached.add(user)
                    left += [] if user in ends else [user]
        return frozenset(reached)

    def _giving_out(self, script: Script) -> _Ops:
        if id(script) not in self._giving:
            giving = (one.op for one in script.allocations if one.role.kind != "workspace")
            self._giving[id(script)] = frozenset(giving)
        return self._giving[id(script)]


def _allocation(script: Script, event: int) -> Allocation:
    return script.allocations[event if event >= 0 else ~event]
