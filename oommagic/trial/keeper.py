"""The thread that starts a child process, hears it and ends it.

An interrupt is raised in the main thread, between any two instructions, and the child must end
all the same. So the child is this thread's alone, which nothing interrupts, and it lives while
the main thread holds a lock: `with lock:` gives it back whatever happens, without a line of ours.
"""

import json
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from oommagic.tf.folders import new_folder, remove, remove_left_behind
from oommagic.trial.outcomes import Died
from oommagic.trial.wire import Inbox, NotAMessageError

# The user's search path comes in the command, not in PYTHONPATH, where each folder would stand
# before Python's own.
_COMMAND = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; "
    "from oommagic.trial.child import main; main()"
)
_ROOT = str(Path(__file__).resolve().parents[2])
_LOOK_S = 0.02
_GONE_S = 1.0
_PIECE_BYTES = 1 << 16
_LOG_BYTES = 4000

_Process = subprocess.Popen[bytes]

_SIGNALS = {
    "SIGKILL": "was killed by the system (SIGKILL): most likely the host's memory ran out",
    "SIGABRT": "was stopped by a check of its own (SIGABRT), as TensorFlow has many",
    "SIGSEGV": "crashed (SIGSEGV)",
    "SIGBUS": "crashed (SIGBUS): a file or shared memory that it used was cut short",
    "SIGTERM": "was ended by another process (SIGTERM)",
}
_NO_HOST_MEMORY = "std::bad_alloc"


class Keeper(threading.Thread):
    """Has a child process from `start()` until the lock `leash` is free."""

    def __init__(
        self,
        leash: Any,
        environment: Mapping[str, str],
        modules: Sequence[str],
        *,
        is_for_cell: bool = False,
    ) -> None:
        super().__init__(name="oommagic-trial", daemon=True)
        self.folder = new_folder()
        """Files for the child; gone with it."""
        self.heard: SimpleQueue[Any] = SimpleQueue()
        """What the child said, and `Died` at its end."""
        self.is_over = False
        """The main thread wants no more of it; where the lock is still held all the same."""
        self._leash = leash
        # What the child leaves among the temporary files is gone with the folder: AutoGraph's code
        # would stay, as no child is left the time to tidy up.
        self._environment = {**os.environ, **environment, "TMPDIR": str(self.folder)}
        self._orders: deque[dict[str, Any]] = deque(
            [{"modules": list(modules), "is_for_cell": is_for_cell}]
        )
        self._log = b""

    def order(self, order: dict[str, Any]) -> None:
        """Have the child do something."""
        self._orders.append(order)

    def log(self) -> str:
        """Give the end of what the child wrote to its screen."""
        return self._log.decode(errors="replace").strip()

    def run(self) -> None:
        """Keep the child; called by `start()`."""
        try:
            if self._is_wanted():
                self.heard.put(self._keep())
        except OSError as error:
            self.heard.put(Died(f"could not be started: {error}"))
        finally:
            while self._is_wanted():  # the main thread may still be writing to the folder
                time.sleep(_LOOK_S)
            remove(self.folder)

    def _is_wanted(self) -> bool:
        return self._leash.locked() and not self.is_over

    def _keep(self) -> Died:
        remove_left_behind()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        child = _start(self._environment)
        try:
            with _Ears({child.stdout: self._understand(), child.stderr: self._keep_log}) as ears:
                self._hear(child, ears)
        except NotAMessageError:
            return Died("said something that is not an answer", self.log())
        finally:
            _end(child)
            # The way in which it ended is known once it was waited for.
            child.wait()
            _end_all_with(b"TMPDIR=" + os.fsencode(self.folder))
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
        return Died(_in_words(child.returncode, self.log()), self.log())

    def _hear(self, child: _Process, ears: "_Ears") -> None:
        """Listen until the child has ended and nothing more is to be heard."""
        while self._is_wanted() and not _has_ended(child):
            self._pass_orders(child)
            ears.listen(_LOOK_S)
        _end(child)
        while self._is_wanted() and ears.listen(0):
            pass

    def _pass_orders(self, child: _Process) -> None:
        """Write what was ordered; a few lines never fill the pipe."""
        with suppress(BrokenPipeError):
            while self._orders and child.stdin is not None:
                order = {**self._orders.popleft(), "folder": str(self.folder)}
                child.stdin.write(json.dumps(order).encode() + b"\n")

    def _understand(self) -> Callable[[bytes], None]:
        inbox = Inbox()

        def understand(piece: bytes) -> None:
            for message in inbox.messages(piece):
                self.heard.put(message)

        return understand

    def _keep_log(self, piece: bytes) -> None:
        self._log = (self._log + piece)[-_LOG_BYTES:]


class _Ears:
    """Hears several pipes at once, without waiting for one of them."""

    def __init__(self, pipes: Mapping[Any, Callable[[bytes], None]]) -> None:
        self._pipes = dict(pipes)
        # Windows can wait for sockets alone.
        self._selector = None if sys.platform == "win32" else selectors.DefaultSelector()
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
            if self._selector is not None:
                self._selector.register(pipe, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._selector is not None:
            self._selector.close()

    def listen(self, seconds: float) -> bool:
        """Wait that long for something, and say whether there was anything."""
        pieces = [(pipe, pipe.read(_PIECE_BYTES)) for pipe in self._ready(seconds)]
        for pipe, piece in pieces:
            if piece == b"":
                self._forget(pipe)
            elif piece is not None:
                self._pipes[pipe](piece)
        return any(piece for _, piece in pieces)

    def _ready(self, seconds: float) -> list[Any]:
        if self._selector is None:
            time.sleep(seconds)
            return list(self._pipes)
        return [key.fileobj for key, _ in self._selector.select(seconds)]

    def _forget(self, pipe: Any) -> None:
        del self._pipes[pipe]
        if self._selector is not None:
            self._selector.unregister(pipe)


def _start(environment: Mapping[str, str]) -> _Process:
    """Start the child in a session of its own, where the user's interrupts don't reach it."""
    if not sys.executable:
        raise FileNotFoundError("this Python does not know where its program is.")
    search_path = [folder for folder in sys.path if isinstance(folder, str)]
    return subprocess.Popen(  # noqa: S603 (this very Python)
        # -P: nothing of the user's folder in place of Python's own modules.
        [sys.executable, "-P", "-c", _COMMAND, *search_path, _ROOT],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )


def _end(child: _Process) -> None:
    """End a child, and those that it has started; it is not waited for, so its number is its."""
    if hasattr(os, "killpg"):
        # A group that has ended already; macOS says of that one that it is not ours.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()


def _end_all_with(setting: bytes) -> None:
    """End processes that left the child's group for one of their own, by what they have of it."""
    for place in Path("/proc").glob("[0-9]*") if hasattr(os, "pidfd_open") else ():
        # Gone meanwhile, or another user's.
        with suppress(OSError):
            held = os.pidfd_open(int(place.name))
            try:
                if setting in (place / "environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(held, signal.SIGKILL)
                    select.select([held], [], [], _GONE_S)  # until then it may write
            finally:
                os.close(held)


def _has_ended(child: _Process) -> bool:
    """Look whether a child has ended, without taking note of it: its number stays its own."""
    if not hasattr(os, "waitid"):
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _in_words(code: int, log: str) -> str:
    if code >= 0:
        return f"ended by itself, with exit code {code}, before it was done"
    if _NO_HOST_MEMORY in log:
        return f"ran out of the host's memory ({_NO_HOST_MEMORY})"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return _SIGNALS.get(name, f"was ended by {name}")
