"""Takes the README's picture: the demo's own report, as a notebook shows it.

`python docs/picture.py` runs the demo, and needs a Chromium on PATH.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from oommagic import report
from oommagic.show import html

PICTURE = Path(__file__).parent / "images" / "report.png"
_ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_PAGE = "<body style='margin:12px;background:#fff;color:#222;font-family:sans-serif'>{}</body>"


def main() -> int:
    """Run the demo, draw its report, photograph it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("The picture is taken with Chromium, and there is none on PATH.")
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "demo.json"
        demo = [sys.executable, "-m", "oommagic", "demo", "-o", str(saved)]
        subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
        page = _PAGE.format(html.render(report.load(saved)))
    PICTURE.parent.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        tab = browser.new_page(viewport={"width": 1000, "height": 700}, device_scale_factor=2)
        tab.set_content(page)
        tab.locator("body").screenshot(path=PICTURE)
        browser.close()
    print(f"took {PICTURE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
