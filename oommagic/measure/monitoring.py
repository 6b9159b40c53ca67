"""Which line is running, by `sys.monitoring` (Python 3.12 and newer).

Events are switched on for the watched code objects alone, so all other code runs untouched.
(`sys._getframe` is how Python itself documents to find the frame that an event is about.)
"""

import sys
from types import CodeType, FrameType
from typing import Any

from oommagic.measure.interrupts import InterruptLater
from oommagic.measure.ledger import Ledger
from oommagic.own_builtins import keep_builtins

keep_builtins(globals())

_getframe = sys._getframe  # noqa: SLF001 (bound once: the cell may rebind it)

# Not the ids of a debugger, of coverage or of cProfile: those stay free for the user's own tools.
_OUR_TOOL_IDS = (4, 3, 5)
_TOOL_NAME = "oommagic"


if sys.version_info >= (3, 12):
    _monitoring = sys.monitoring
    _EVENTS = _monitoring.events

    def free_tool_id() -> int | None:
        """Return a tool id that nobody uses."""
        return next((i for i in _OUR_TOOL_IDS if _monitoring.get_tool(i) is None), None)

    class MonitoringEngine:
        """Listens to the lines, returns and yields of the watched code."""

        def __init__(self, ledger: Ledger, tool_id: int) -> None:
            self._ledger = ledger
            self._tool_id = tool_id
            self._watched: dict[int, CodeType] = {}
            ledger.hear_again = _monitoring.restart_events

        def start(self) -> None:
            """Take the tool id and register the callbacks."""
            _monitoring.use_tool_id(self._tool_id, _TOOL_NAME)
            for event, callback in self._callbacks().items():
                _monitoring.register_callback(self._tool_id, event, callback)
            # This one cannot be had for some code alone. It comes only where an error passes.
            _monitoring.set_events(self._tool_id, _EVENTS.PY_UNWIND)

        def watch(self, code: CodeType, guarded_lines: frozenset[int]) -> None:  # noqa: ARG002
            """Report the lines of one code object from now on."""
            self._watched[id(code)] = code
            wanted = _EVENTS.LINE | _EVENTS.PY_RETURN | _EVENTS.PY_YIELD | _EVENTS.PY_RESUME
            _monitoring.set_local_events(self._tool_id, code, wanted)

        def adopt(self, frame: FrameType) -> None:
            """Do nothing more: events reach frames that run already."""

        def statement_failed(self) -> None:
            """Do nothing: the end of a frame is heard however it ends."""

        def tick(self, *, silenced: bool) -> None:
            """Switch silenced locations on again."""
            if silenced:
                _monitoring.restart_events()

        def stop(self) -> str:
            """Leave no event, callback or tool id behind."""
            if _monitoring.get_tool(self._tool_id) != _TOOL_NAME:
                return "The cell freed oommagic's tool id: lines after that were not measured."
            _monitoring.set_events(self._tool_id, _EVENTS.NO_EVENTS)
            for code in self._watched.values():
                _monitoring.set_local_events(self._tool_id, code, _EVENTS.NO_EVENTS)
            for event in self._callbacks():
                _monitoring.register_callback(self._tool_id, event, None)
            _monitoring.free_tool_id(self._tool_id)
            self._watched.clear()
            return ""

        def _callbacks(self) -> dict[int, Any]:
            return {
                _EVENTS.LINE: self._on_line,
                _EVENTS.PY_RETURN: self._on_leave,
                _EVENTS.PY_YIELD: self._on_leave,
                _EVENTS.PY_RESUME: self._on_resume,
                _EVENTS.PY_UNWIND: self._on_unwind,
            }

        def _on_line(self, code: CodeType, line: int) -> Any:
            try:
                silence = self._ledger.at_line(id(_getframe(1)), id(code), line)
            except KeyboardInterrupt:
                _later = InterruptLater()
                return None
            except RecursionError:
                return None  # the user's own one follows
            return _monitoring.DISABLE if silence else None

        def _on_leave(self, code: CodeType, offset: int, value: object) -> Any:  # noqa: ARG002
            try:
                silence = self._ledger.left(id(_getframe(1)))
            except KeyboardInterrupt:
                _later = InterruptLater()
                return None
            except RecursionError:
                return None
            return _monitoring.DISABLE if silence else None

        def _on_unwind(self, code: CodeType, offset: int, error: object) -> None:  # noqa: ARG002
            try:
                if id(code) in self._watched:
                    self._ledger.left(id(_getframe(1)))
            except KeyboardInterrupt:
                _later = InterruptLater()
            except RecursionError:
                return

        def _on_resume(self, code: CodeType, offset: int) -> Any:  # noqa: ARG002
            frame = _getframe(1)
            try:
                silence = self._ledger.at_line(id(frame), id(code), frame.f_lineno, hit=0)
            except KeyboardInterrupt:
                _later = InterruptLater()
                return None
            except RecursionError:
                return None
            return _monitoring.DISABLE if silence else None
