"""What all tests share."""

import os
import signal

import pytest
from hypothesis import settings

# CI repeats the same examples, so that a red run is about the change and not about luck. A first
# allocation can take long: no deadline.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# A shell lets what it starts in the background ignore interrupts, and so would every child here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Let more tests run than there are processors: an allocation that fails waits for 10 s."""
    return (os.cpu_count() or 1) + 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have slow tests: the last of them would keep one worker alone."""
    slow = {item.path for item in items if item.get_closest_marker("slow_once")}
    items.sort(key=lambda item: item.path not in slow)
