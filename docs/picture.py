"""Takes the README's picture: the demo's own report, as a notebook shows it.

`python docs/picture.py` runs the demo, and needs a Chromium on PATH. It also saves that report's
verdict and composition, which docs/generate.py puts into the README as text.
"""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import sync_playwright

from oommagic import report
from oommagic.show import html

PICTURE = Path(__file__).parent / "images" / "report.png"
SAVED = Path(__file__).parent / "demo.json"
_ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_STYLE = "margin:0;padding:12px;background:#fff;color:#222;font-family:sans-serif"
_PAGE = f"<body style='{_STYLE}'>{{}}</body>"


def main() -> int:
    """Run the demo, draw its report, photograph it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("The picture is taken with Chromium, and there is none on PATH.")
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "demo.json"
        demo = [sys.executable, "-m", "oommagic", "demo", "-o", str(saved)]
        subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
        shown = report.load(saved)
    _without_the_rest(shown).save(SAVED)
    page = _PAGE.format(html.render(shown))
    PICTURE.parent.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        tab = browser.new_page(viewport={"width": 1000, "height": 700}, device_scale_factor=2)
        tab.set_content(page)
        tab.locator("body").screenshot(path=PICTURE)
        browser.close()
    print(f"took {PICTURE.name}")
    return 0


def _without_the_rest(shown: report.Report) -> report.Report:
    """Leave out what takes room, and the message, whose tracebacks name this machine's folders."""
    outcome = replace(shown.outcome, message="")
    return replace(shown, outcome=outcome, timeline=report.Timeline())


if __name__ == "__main__":
    sys.exit(main())
