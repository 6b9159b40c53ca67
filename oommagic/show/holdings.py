"""A composition in words: what filled a device, by kind and by holder, in figures that add up."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from oommagic.report import Composition, Holding, HoldingKind
from oommagic.show.characters import label, visible
from oommagic.units import GIB, KIB, MIB, TIB, format_bytes

_MOST_HOLDERS = 12

_NAMES = {"rounding": "the allocator's rounding", "unknown": "not known"}
"""What a reader calls the kinds whose own names do not say it."""

_SOURCES = {
    "tape": "From TensorFlow's own record of every allocation.",
    "compiled buffers": "From TensorFlow's own record of every allocation, and the compiled "
    "step's buffers (XLA).",
    "names": "From the names in the notebook.",
    "plan": "Predicted from a few recorded steps.",
}

_UNITS = (("TB", TIB), ("GB", GIB), ("MB", MIB), ("KB", KIB), ("B", 1))
_LEAST_STEPS = 100

_SayAll = Callable[[Sequence[int]], list[str]]
"""Says the sizes of a column, all in one unit."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kind's share of a device, in words."""

    kind: HoldingKind
    name: str
    fraction: float
    """Of the bar that all parts make up together."""
    bytes_text: str
    percent_text: str


@dataclass(frozen=True, slots=True)
class Holder:
    """One row of the table of holders; the last ones sum up the others and all of them."""

    name: str
    kind: str
    bytes_text: str
    percent_text: str
    count_text: str = ""
    tensor: str = ""


HEADS = Holder("held by", "kind", "bytes", "share", "count", "shape and type")
"""What stands above the columns of the table of holders."""


@dataclass(frozen=True, slots=True)
class CompositionView:
    """What filled one device: the kinds, the largest holders, and the sum that both come to."""

    title: str
    note: str
    parts: tuple[Part, ...]
    holders: tuple[Holder, ...]
    total: Holder
    exact_total: str


def composition_views(compositions: Iterable[Composition]) -> tuple[CompositionView, ...]:
    """Put compositions into words; a device that held nothing needs none."""
    return tuple(_view(one) for one in compositions if one.total_bytes > 0)


def kind_name(kind: HoldingKind) -> str:
    """Say what a reader calls a kind."""
    return _NAMES.get(kind, kind)


def kind_parts(by_kind: Mapping[HoldingKind, int]) -> tuple[Part, ...]:
    """Put sizes by kind into figures that add up, the largest first."""
    held = {kind: size for kind, size in by_kind.items() if size > 0}
    return tuple(_parts(held, _common_unit(sum(held.values())))) if held else ()


def _view(composition: Composition) -> CompositionView:
    total = composition.total_bytes
    say_bytes = _common_unit(total)
    held = list(_complete(composition))
    rows = _merged(held)
    total_text = say_bytes([total])[0]
    return CompositionView(
        title=_title(composition),
        note=visible(f"{_SOURCES[composition.source]} {composition.note}".rstrip()),
        parts=tuple(_parts(_by_kind(held), say_bytes)),
        holders=tuple(_holders(rows, say_bytes)),
        total=Holder("in all", "", total_text, "100 %"),
        exact_total=f"{total:,} bytes",
    )


def _title(composition: Composition) -> str:
    device, size = label(composition.device), format_bytes(composition.total_bytes)
    if composition.moment == "failure":
        return f"What filled {device} when it ran out: {size}"
    return f"What filled {device} at its peak of {size}"


def _complete(composition: Composition) -> Iterator[Holding]:
    """Give the holdings, and as not known whatever they leave of the total."""
    yield from (holding for holding in composition.holdings if holding.bytes)
    missing = composition.total_bytes - sum(holding.bytes for holding in composition.holdings)
    if missing:
        yield Holding("unknown", missing, count=0)


def _by_kind(holdings: Iterable[Holding]) -> Mapping[HoldingKind, int]:
    by_kind: dict[HoldingKind, int] = defaultdict(int)
    for holding in holdings:
        by_kind[holding.kind] += holding.bytes
    return by_kind


def _parts(by_kind: Mapping[HoldingKind, int], say_bytes: _SayAll) -> Iterator[Part]:
    kinds = sorted(by_kind, key=lambda kind: (kind in _NAMES, -by_kind[kind]))
    sizes = [by_kind[kind] for kind in kinds]
    drawn = sum(size for size in sizes if size > 0)
    texts = zip(kinds, sizes, say_bytes(sizes), _percents(sizes), strict=True)
    for kind, size, bytes_text, percent_text in texts:
        yield Part(kind, kind_name(kind), max(0, size) / drawn, bytes_text, percent_text)


@dataclass(frozen=True, slots=True)
class _Row:
    """What one holder has of one kind."""

    name: str
    kind: HoldingKind
    bytes: int
    count: int
    tensor: str


def _merged(holdings: Iterable[Holding]) -> list[_Row]:
    """Join what has the same holder and the same kind, the largest first."""
    groups: dict[tuple[str, HoldingKind], list[Holding]] = defaultdict(list)
    for holding in holdings:
        groups[_holder_name(holding), holding.kind].append(holding)
    rows = [
        _Row(name, kind, sum(one.bytes for one in members), _count(members), _tensor(members))
        for (name, kind), members in groups.items()
    ]
    return sorted(rows, key=lambda row: -row.bytes)


def _count(holdings: Iterable[Holding]) -> int:
    return sum(holding.count for holding in holdings)


def _holder_name(holding: Holding) -> str:
    if holding.kind in _NAMES:
        return _NAMES[holding.kind]
    if holding.layer and holding.owner:
        return visible(f"{holding.layer} of {holding.owner}")
    name = holding.layer or holding.owner or holding.op
    if holding.line_number is not None:
        name = f"line {holding.line_number}: {name}" if name else f"line {holding.line_number}"
    return visible(name or "no name in the notebook")


def _tensor(holdings: Sequence[Holding]) -> str:
    """Say the shape and type that all have, or those of the largest."""
    largest = max(holdings, key=lambda holding: holding.bytes)
    if largest.shape is None:
        return ""
    alike = {(holding.shape, holding.dtype) for holding in holdings} == {
        (largest.shape, largest.dtype)
    }
    sizes = "×".join(map(str, largest.shape)) or "scalar"
    return visible(f"{'' if alike else 'largest: '}{sizes} {largest.dtype}".rstrip())


def _holders(rows: Sequence[_Row], say_bytes: _SayAll) -> Iterator[Holder]:
    # One row more costs no more room than the line that would sum it up.
    most = len(rows) if len(rows) <= _MOST_HOLDERS + 1 else _MOST_HOLDERS
    others = rows[most:]
    sizes = [row.bytes for row in rows[:most]]
    if others:
        sizes.append(sum(row.bytes for row in others))
    texts = list(zip(say_bytes(sizes), _percents(sizes), strict=True))
    for row, (size, percent) in zip(rows[:most], texts, strict=False):
        count = f"{row.count:,}" if row.count > 0 and row.kind not in _NAMES else ""
        kind = "" if row.kind in _NAMES else row.kind
        yield Holder(row.name, kind, size, percent, count, row.tensor)
    if others:
        yield Holder(f"… and {len(others):,} more", "", *texts[-1])


def _common_unit(total: int) -> _SayAll:
    """Choose the unit for all parts of a total; said in it, they add up to the total."""
    unit, scale = next(
        (unit, scale) for unit, scale in _UNITS if total >= scale * _LEAST_STEPS or scale == 1
    )
    steps = (total + scale // 2) // scale
    return lambda sizes: _say_steps(sizes, steps, unit)


def _percents(sizes: Sequence[int]) -> list[str]:
    return _say_steps(sizes, 100, "%")


def _say_steps(sizes: Sequence[int], steps: int, unit: str) -> list[str]:
    return [
        f"<1 {unit}" if size > 0 and share == 0 else f"{share:,} {unit}"
        for size, share in zip(sizes, _apportioned(sizes, steps), strict=True)
    ]


def _apportioned(sizes: Sequence[int], steps: int) -> list[int]:
    """Share out whole steps by size, so that they add up: what is left goes to the largest rests.

    Rounded each by itself, the figures of a column would often miss their own sum.
    """
    total = sum(sizes)
    shares = [divmod(size * steps, total) for size in sizes]
    left = steps - sum(whole for whole, _ in shares)
    by_rest = sorted(range(len(sizes)), key=lambda place: -shares[place][1])
    raised = set(by_rest[:left])
    return [whole + (place in raised) for place, (whole, _) in enumerate(shares)]
