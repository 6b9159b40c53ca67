"""Renders the pages to `docs/_build`: plain HTML that opens from a folder, without a network."""

import html
import re
import shutil
import sys
from pathlib import Path

from markdown_it import MarkdownIt

PAGES = Path(__file__).resolve().parent
OUTPUT = PAGES / "_build"
ORDER = (
    "index",
    "magic",
    "why",
    "plan",
    "small-device",
    "how-it-measures",
    "coming-from",
    "report",
    "troubleshooting",
)
_HEADING = re.compile(r"<h([23])>(.*?)</h\1>")
_LINK = re.compile(r'href="(?!https?:)(?P<page>[\w-]*)(?P<end>\.md)?(?:#(?P<anchor>[\w-]+))?"')


def render(name: str) -> str:
    """Turn one page into HTML, its headings with anchors, its links to other pages mended."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    body = MarkdownIt("commonmark").enable("table").render(text)
    anchored = _HEADING.sub(_with_anchor, body)
    return _LINK.sub(lambda link: link[0].replace(".md", ".html"), anchored)


def _with_anchor(heading: re.Match[str]) -> str:
    level, title = heading.groups()
    return f'<h{level} id="{_anchor(title)}">{title}</h{level}>'


def _anchor(title: str) -> str:
    words = re.sub(r"<[^>]+>", "", html.unescape(title)).lower()
    return re.sub(r"[^\w-]+", "-", words).strip("-")


def broken_links(rendered: dict[str, str]) -> list[str]:
    """Name each link to a page or a heading that is not there."""
    broken = []
    for name, body in rendered.items():
        for link in re.finditer(r'href="(?!https?:)([\w-]*)(?:\.html)?(?:#([\w-]+))?"', body):
            target, anchor = link[1] or name, link[2]
            page = rendered.get(target)
            if page is None or (anchor and f'id="{anchor}"' not in page):
                broken.append(f"docs/{name}.md links to {link[0]}, which is not there")
    return broken


def title(name: str) -> str:
    """Take a page's title from its first line."""
    first = (PAGES / f"{name}.md").read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("# ")


def main() -> int:
    """Write every page; fail if one is not in the order or a link leads nowhere."""
    names = {path.stem for path in PAGES.glob("*.md")}
    if names != set(ORDER):
        print(f"ORDER in docs/build.py and the pages differ: {sorted(names ^ set(ORDER))}")
        return 1
    rendered = {name: render(name) for name in ORDER}
    broken = broken_links(rendered)
    for line in broken:
        print(line)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    shutil.copy(PAGES / "style.css", OUTPUT)
    template = (PAGES / "template.html").read_text(encoding="utf-8")
    for name, body in rendered.items():
        page = template.format(title=html.escape(title(name)), pages=_menu(name), body=body)
        (OUTPUT / f"{name}.html").write_text(page, encoding="utf-8")
    print(f"Written: docs/_build/index.html and {len(ORDER) - 1} more")
    return 1 if broken else 0


def _menu(current: str) -> str:
    entries = []
    for name in ORDER:
        mark = ' aria-current="page"' if name == current else ""
        entries.append(f'<a href="{name}.html"{mark}>{html.escape(title(name))}</a>')
    return "\n".join(entries)


if __name__ == "__main__":
    sys.exit(main())
