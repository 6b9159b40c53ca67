"""Writes the parts of the pages that come out of the code.

A page marks such a part with `<!-- generated: name -->` and `<!-- end -->`; what stands between
is replaced. A page for each rule of the advice is written as a whole. `--check` writes nothing and
fails where a page is not what the code would write, or is of a rule that is gone.
"""

import argparse
import ast
import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, get_args

import advice_pages

from oommagic import report
from oommagic.explain.verdict import DEVICE_CAUSES, HOST_CAUSES
from oommagic.magics import OommagicMagics
from oommagic.show.why_text import why_text
from oommagic.tf import arena
from oommagic.units import format_bytes

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "docs" / "demo.json"
"""The demo's report, as docs/picture.py has saved it."""
_PROFILERS = ("oomprofile", "memory_profiler", "memray", "scalene", "fil")
_PART = re.compile(
    r"(?P<head><!-- generated: (?P<name>\S+) -->\n).*?(?P<tail><!-- end -->)", flags=re.DOTALL
)


def options_of_oomprofile() -> str:
    """List the magic's options as its own parser has them."""
    return _options(OommagicMagics.oomprofile)


def options_of_oomdevice() -> str:
    """List what can stand behind the magic, as its own parser has it."""
    return _options(OommagicMagics.oomdevice)


def _options(magic: Any) -> str:
    rows = "\n".join(_option(action) for action in magic.parser._actions)  # noqa: SLF001 (no other way)
    return f"| option | meaning |\n|---|---|\n{rows}\n"


def _option(action: argparse.Action) -> str:
    value = "\\|".join(action.choices) if action.choices else (action.metavar or "")
    # What has no name of its own stands there by itself.
    words = (f"{name} {value}".strip() for name in action.option_strings or [action.dest.upper()])
    names = ", ".join(f"`{word}`" for word in words)
    return f"| {names} | {_sentence(action.help or '')} |"


def _sentence(words: str) -> str:
    return words.replace("|", "\\|")


def report_values() -> str:
    """List the values that a saved report holds, with their fields."""
    found = (value for _, value in inspect.getmembers(report, dataclasses.is_dataclass))
    return "\n".join(_value(value) for value in found if isinstance(value, type))


def _value(value: type) -> str:
    fields = "\n".join(
        f"| `{field.name}` | `{_type_name(field.type)}` |" for field in dataclasses.fields(value)
    )
    return f"### {value.__name__}\n\n{_summary(value)}\n\n| field | type |\n|---|---|\n{fields}\n"


def _summary(described: object) -> str:
    return (inspect.getdoc(described) or "").split("\n\n")[0].replace("\n", " ")


def _type_name(kind: object) -> str:
    name = kind.__name__ if type(kind) is type else str(kind)
    short = re.sub(r"\b(?:typing|collections\.abc|oommagic\.report)\.", "", name)
    return short.replace("|", "\\|")


def report_format() -> str:
    """Say which format number a saved report has."""
    return (
        f'The JSON has one more entry, its format number: `"format": {report.FORMAT}`. '
        "oommagic says so when a report's format is newer than its own.\n"
    )


def cards() -> str:
    """List the cards that a device can be like, with where their figures come from."""
    rows = "\n".join(
        f"| `{card.name}` | {format_bytes(card.usable_bytes)} | {card.source} |"
        for card in arena.CARDS
    )
    return f"| card | memory | source |\n|---|---|---|\n{rows}\n"


def running_out() -> str:
    """Lay out which models ran out of memory on a small device, and what came of it."""
    path = ROOT / "bench" / "running_out" / "results.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = "\n".join(
        f"| {one['model'].replace('_', ' ')} | {one['batch']:,} | {one['raised']} | "
        f"{one['seconds']:.0f} s | {'trained on' if one['then_trained'] else 'did not train on'} |"
        for one in found["attempts"]
    )
    return f"| model | batch | raised | after | then |\n|---|---|---|---|---|\n{rows}\n"


_NOT_JUDGED = frozenset({"none", "unknown"})


def causes() -> str:
    """List the causes in the order in which they are judged, each in its own file's words."""
    lines = "\n".join(
        f"| `{name}` | {_summary(sys.modules[module])} | {_where(module)} |"
        for name, module in _judged()
    )
    return f"| cause | what it means | judged for |\n|---|---|---|\n{lines}\n"


def _judged() -> Sequence[tuple[str, str]]:
    """Name each cause and the module that judges it."""
    judged = dict.fromkeys(cause.__module__ for cause in (*DEVICE_CAUSES, *HOST_CAUSES))
    rows = [(name, module) for module in judged for name in _causes_in(module)]
    missing = set(get_args(report.Cause)) ^ {name for name, _ in rows} ^ _NOT_JUDGED
    if missing:
        raise ValueError(f"docs/generate.py does not find the judges of {sorted(missing)}")
    return rows


def _causes_in(module: str) -> Sequence[str]:
    """Name the causes that a file blames."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    blamed = (
        ast.literal_eval(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "cause"
    )
    return tuple(dict.fromkeys(blamed))


def _where(module: str) -> str:
    tables = {"devices": DEVICE_CAUSES, "the host": HOST_CAUSES}
    return ", ".join(
        place
        for place, table in tables.items()
        if any(cause.__module__ == module for cause in table)
    )


_KINDS = {
    "weights": "a model's variables, trained or not",
    "optimizer slots": "what the optimizer keeps for each weight: Adam's two moments",
    "gradients": "what backpropagation computes",
    "activations": "what the layers' forward pass computes and keeps for backpropagation",
    "workspace": "scratch memory of one operation, gone when it ends",
    "loss and metrics": "what losses and metrics compute and keep",
    "data": "batches, and arrays that became tensors",
    "variables": "variables that belong to no model",
    "tensors": "other tensors: those that a name of the notebook holds, and those without one",
    "rounding": "what the allocator hands out beyond what was asked for: it rounds up, and does "
    "not split every block",
    "unknown": "not known: what has neither an operation nor a name that could be found",
}


def kinds() -> str:
    """List the kinds of what fills a device, each with its meaning."""
    rows = "\n".join(f"| `{kind}` | {_KINDS[kind]} |" for kind in get_args(report.HoldingKind))
    return f"| kind | what it is |\n|---|---|\n{rows}\n"


def demo_why() -> str:
    """Show the demo's verdict, and what filled its device by kind."""
    found = report.load(DEMO)
    if found.verdict is None:
        raise ValueError(f"{DEMO.name} has no verdict: it is not the demo's report")
    told = why_text(found.verdict, found.compositions, columns=100)
    by_kind, _, _ = told.partition("\n\nheld by")
    return f"```\n{by_kind}\n```\n"


def overhead() -> str:
    """Lay out what the benchmark measured: how many times longer, as the median of its rounds."""
    path = ROOT / "bench" / "overhead" / "results.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    heads = " | ".join(_PROFILERS)
    rows = "\n".join(_overhead_rows(python, found) for python, found in results.items())
    return f"| Python | work | {heads} |\n|{'---|' * (2 + len(_PROFILERS))}\n{rows}\n"


def _overhead_rows(python: str, comparisons: Sequence[Mapping[str, Any]]) -> str:
    ratios = {(one["workload"], one["profiler"]): one["ratios"] for one in comparisons}
    works = dict.fromkeys(one["workload"] for one in comparisons)
    return "\n".join(
        f"| {python} | {work.replace('_', ' ')} | "
        + " | ".join(_median(ratios[work, name]) for name in _PROFILERS)
        + " |"
        for work in works
    )


def _median(ratios: Sequence[float]) -> str:
    if not ratios:
        return "did not run"
    middle = median(ratios)
    return f"{middle:,.0f}×" if middle >= 10 else f"{middle:.2f}×"  # noqa: PLR2004 (digits)


def startup() -> str:
    """Say what the benchmark measured for the import and `%load_ext`."""
    path = ROOT / "bench" / "startup" / "results.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    parts = " and ".join(f"{one['median_ms']:.0f} ms on Python {at}" for at, one in found.items())
    return f"`import oommagic` and `%load_ext oommagic` together take {parts}.\n"


GENERATORS: Mapping[str, Callable[[], str]] = {
    "options-of-oomprofile": options_of_oomprofile,
    "options-of-oomdevice": options_of_oomdevice,
    "overhead": overhead,
    "startup": startup,
    "report-values": report_values,
    "report-format": report_format,
    "cards": cards,
    "causes": causes,
    "kinds": kinds,
    "demo-why": demo_why,
    "running-out": running_out,
    "advice": advice_pages.index,
    "advice-speed": advice_pages.speed,
    "articles": advice_pages.articles,
}
"""What can stand in a page's marks, by name. A new part is one function and one line here."""


def written(page: str) -> str:
    """Give the page's text with its generated parts as the code has them now."""
    return _PART.sub(lambda part: part["head"] + GENERATORS[part["name"]]() + part["tail"], page)


def pages() -> Mapping[Path, str]:
    """Give each page that has generated parts, or is one, as the code would write it."""
    marked = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    meanings = {name: _summary(sys.modules[module]) for name, module in _judged()}
    return {
        **{path: written(path.read_text(encoding="utf-8")) for path in marked},
        **advice_pages.rule_pages(meanings),
    }


def _is_stale(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text(encoding="utf-8") != text


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` name those that are not current."""
    stale = {path: text for path, text in pages().items() if _is_stale(path, text)}
    strays = advice_pages.stray_pages()
    if arguments == ["--check"]:
        for path in (*stale, *strays):
            print(f"{path.relative_to(ROOT)} is not what the code says; run: make docs")
        return 1 if stale or strays else 0
    for path, text in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"Written: {path.relative_to(ROOT)}")
    for path in strays:
        path.unlink()
        print(f"Removed: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
