"""An interpreter that has imported TensorFlow, once: it forks for each piece of source it is sent.

What is forked has TensorFlow as if it had just been imported: the import makes no device, and of
threads only those of the linear algebra, which mends itself in a fork.
"""

import json
import os
import sys
from types import ModuleType
from typing import Any

# No child of the tests' process: some tests look at what the children of that hold.
if os.fork():
    os._exit(0)

import tensorflow as tf

assert tf.keras.Model  # which imports Keras

_ADDING = os.O_WRONLY | os.O_APPEND


def next_task() -> dict[str, Any]:
    """Give a task in a fork of this process; say here how each ended."""
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            task: dict[str, Any] = json.loads(line)
            return task
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    sys.exit()


def begin(task: dict[str, Any]) -> None:
    """Read nothing, write to the task's files, and have its environment."""
    ways = {0: (os.devnull, os.O_RDONLY), 1: (task["output"], _ADDING)}
    for number, (path, way) in {**ways, 2: (task["errors"], _ADDING)}.items():
        opened = os.open(path, way)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(task["folder"])
    os.environ.clear()
    os.environ.update(task["environment"])


_task = next_task()
begin(_task)
# The end of the process is the source's own: its errors, its way out, what it does at exit.
_main = sys.modules["__main__"] = ModuleType("__main__")
exec(compile(_task["source"], "<string>", "exec"), _main.__dict__)  # noqa: S102 (the tests' own)
