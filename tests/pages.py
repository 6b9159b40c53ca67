"""Pages as notebooks show them, and what every page of ours must hold to."""

from html.parser import HTMLParser

# What JupyterLab, VS Code and a bare page give a cell's output, light and dark.
PAGES = {
    "bare, light": ("#ffffff", ""),
    "JupyterLab light": ("#ffffff", "--jp-content-font-color1: rgba(0, 0, 0, 0.87)"),
    "JupyterLab dark": ("#111111", "--jp-content-font-color1: rgba(255, 255, 255, 1)"),
    "VS Code light": ("#ffffff", "--vscode-editor-foreground: #3b3b3b"),
    "VS Code dark": ("#1f1f1f", "--vscode-editor-foreground: #cccccc"),
    "Colab dark": ("#383838", "color: #d5d5d5"),
}

# For each text of the page: its contrast with the darkest or lightest ground that it stands on,
# bars and what the style sheet writes included.
CONTRASTS = """(ground) => {
  const parse = (text) => {
    const [r, g, b, a] = text.match(/[\\d.]+%?/g);
    return [+r, +g, +b, a === undefined ? 1 : a.endsWith('%') ? parseFloat(a) / 100 : +a];
  };
  const over = (top, below) => below.map((c, i) => top[3] * top[i] + (1 - top[3]) * c);
  const light = (c) => {
    const [r, g, b] = c.map((v) => v / 255).map(
      (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const bars = (element) => {
    const style = getComputedStyle(element);
    return new Set(style.backgroundImage.match(/rgba?\\([^)]*\\)/g) ?? []);
  };
  const page = parse(ground).slice(0, 3);
  const texts = [...document.querySelectorAll('.oommagic *')].filter((element) =>
    [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
    && element.tagName !== 'STYLE' && element.tagName !== 'title'
    || !['none', '""'].includes(getComputedStyle(element, '::after').content));
  return texts.map((element) => {
    let grounds = [page];
    const chain = [];
    for (let e = element; e; e = e.parentElement) chain.unshift(e);
    for (const e of chain) {
      const own = parse(getComputedStyle(e).backgroundColor);
      const ground = over(own, grounds.at(-1));
      grounds = own[3] === 1 ? [ground] : [...grounds, ground];
      for (const colour of bars(e)) grounds.push(over(parse(colour), grounds.at(-1)));
    }
    const style = getComputedStyle(element);
    const opacity = chain.reduce((all, e) => all * getComputedStyle(e).opacity, 1);
    const ink = parse(style.color);
    ink[3] *= opacity;
    return Math.min(...grounds.map((below) => ratio(over(ink, below), below)));
  });
}"""

# Every text that stands in the way of another, or that its box cuts off.
CLUTTER = """() => {
  const leaves = [...document.querySelectorAll('.oommagic *')].filter((e) =>
    e.offsetParent && e.tagName !== 'STYLE' && e.tagName !== 'OPTION' &&
    [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
  const controls = [...document.querySelectorAll('.oommagic input, .oommagic select')];
  const boxes = [...leaves, ...controls].map((e) => [e, e.getBoundingClientRect()]);
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1
    || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
  const said = (e) => e.textContent || e.type;
  const found = [];
  boxes.forEach(([e, a], i) => {
    if (a.right > innerWidth || a.left < 0 || e.scrollWidth > e.clientWidth + 1 && e.clientWidth)
      found.push(`cut: ${said(e)}`);
    for (const [other, b] of boxes.slice(i + 1))
      if (!e.contains(other) && !apart(a, b)) found.push(`${said(e)} / ${said(other)}`);
  });
  return found;
}"""


class Tags(HTMLParser):
    """All tags of a page with their attributes, its text, and whether each tag is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


HARMLESS_TAGS = {
    *("div", "span", "p", "code", "style", "details", "summary", "ul", "li", "dl", "dt", "dd"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "svg", "path", "rect", "title"),
}


def assert_harmless(page: str) -> None:
    """Check that a page has only tags and attributes of ours, each tag closed."""
    parsed = Tags(page)
    assert not parsed.open
    assert {tag for tag, _ in parsed.tags} <= HARMLESS_TAGS
    names = {name for _, attributes in parsed.tags for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in {"href", "src"}]
