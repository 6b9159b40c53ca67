"""A real Chromium for tests that must see a page as a reader does."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def running_chromium() -> Iterator[Any]:
    """Start a browser, or skip the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=_OPTIONS)
        yield browser
        browser.close()
