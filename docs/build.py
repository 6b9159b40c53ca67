"""Renders the pages to `docs/_build`: plain HTML that opens from a folder, without a network."""

import html
import posixpath
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
    "advice",
    "plan",
    "small-device",
    "how-it-measures",
    "coming-from",
    "report",
    "troubleshooting",
)
FOLDERS = ("advice",)
"""A page of each of these names has a folder of pages below it, which it links to."""
_HEADING = re.compile(r"<h([23])>(.*?)</h\1>")
_LINK = re.compile(
    r'href="(?!https?:)(?P<page>[\w./-]*?)(?:\.(?:md|html))?(?:#(?P<anchor>[\w-]+))?"'
)


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
        for link in _LINK.finditer(body):
            beside = posixpath.join(posixpath.dirname(name), link["page"])
            target, anchor = posixpath.normpath(beside) if link["page"] else name, link["anchor"]
            page = rendered.get(target)
            if page is None or (anchor and f'id="{anchor}"' not in page):
                broken.append(f"docs/{name}.md links to {link[0]}, which is not there")
    return broken


def title(name: str) -> str:
    """Take a page's title from its first line."""
    first = (PAGES / f"{name}.md").read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("# ").replace("`", "")


def pages() -> tuple[str, ...]:
    """Name all pages, those in folders behind the others."""
    return (*ORDER, *(f"{one}/{path.stem}" for one in FOLDERS for path in _in_folder(one)))


def _in_folder(name: str) -> list[Path]:
    return sorted((PAGES / name).glob("*.md"))


def main() -> int:
    """Write every page; fail if one is not in the order or a link leads nowhere."""
    names = {path.stem for path in PAGES.glob("*.md")}
    if names != set(ORDER):
        print(f"ORDER in docs/build.py and the pages differ: {sorted(names ^ set(ORDER))}")
        return 1
    rendered = {name: render(name) for name in pages()}
    broken = broken_links(rendered)
    for line in broken:
        print(line)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    for folder in ("", *FOLDERS):
        (OUTPUT / folder).mkdir()
    shutil.copy(PAGES / "style.css", OUTPUT)
    for name, body in rendered.items():
        (OUTPUT / f"{name}.html").write_text(_whole(name, body), encoding="utf-8")
    print(f"Written: docs/_build/index.html and {len(rendered) - 1} more")
    return 1 if broken else 0


def _whole(name: str, body: str) -> str:
    """Put a page's frame around it."""
    template = (PAGES / "template.html").read_text(encoding="utf-8")
    root = "../" * name.count("/")
    return template.format(
        title=html.escape(title(name)), root=root, pages=_menu(name, root), body=body
    )


def _menu(current: str, root: str) -> str:
    entries = []
    for name in ORDER:
        mark = ' aria-current="page"' if name == current.partition("/")[0] else ""
        entries.append(f'<a href="{root}{name}.html"{mark}>{html.escape(title(name))}</a>')
    return "\n".join(entries)


if __name__ == "__main__":
    sys.exit(main())
