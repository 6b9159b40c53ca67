"""A composition in words: what filled a device, by kind and by holder, in figures that add up."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_LEAST_OF_UNIT = 10
_WITHOUT_TENTHS = 100
_ALL_PERCENTS = 100


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
    return tuple(_parts(held, _Shares.of(held))) if held else ()


def _view(composition: Composition) -> CompositionView:
    total = composition.total_bytes
    held = list(_complete(composition))
    by_kind = _by_kind(held)
    shares = _Shares.of(by_kind)
    return CompositionView(
        title=_title(composition),
        note=visible(f"{_SOURCES[composition.source]} {composition.note}".rstrip()),
        parts=tuple(_parts(by_kind, shares)),
        holders=tuple(_holders(_merged(held), shares)),
        total=Holder("in all", "", *shares.said(shares.in_all)),
        exact_total=f"{total:,} bytes",
    )


def _title(composition: Composition) -> str:
    device, size = label(composition.device), format_bytes(composition.total_bytes)
    if composition.moment == "failure" and composition.source == "names":
        return f"What is on {device} now: {size}"
    if composition.moment == "failure":
        return f"What filled {device} when it ran out: {size}"
    if composition.moment == "recorded":
        return f"What filled {device} at the highest point that was recorded: {size}"
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


def _parts(by_kind: Mapping[HoldingKind, int], shares: "_Shares") -> Iterator[Part]:
    drawn = sum(size for size in by_kind.values() if size > 0)
    for kind in sorted(by_kind, key=lambda kind: (kind in _NAMES, -by_kind[kind])):
        size, share = by_kind[kind], shares.by_kind[kind]
        yield Part(kind, kind_name(kind), max(0, size) / drawn, *shares.said(share))


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


def _holders(rows: Sequence[_Row], shares: "_Shares") -> Iterator[Holder]:
    # One row more costs no more room than the line that would sum it up.
    most = len(rows) if len(rows) <= _MOST_HOLDERS + 1 else _MOST_HOLDERS
    others = shares.in_all
    for row, share in _by_share(zip(rows, shares.of_rows(rows), strict=True))[:most]:
        count = f"{row.count:,}" if row.count > 0 and row.kind not in _NAMES else ""
        kind = "" if row.kind in _NAMES else row.kind
        yield Holder(row.name, kind, *shares.said(share), count, row.tensor)
        others = others.without(share)
    if len(rows) > most:
        yield Holder(f"… and {len(rows) - most:,} more", "", *shares.said(others))


@dataclass(frozen=True, slots=True)
class _Share:
    """A part of a total: its bytes, and how many steps of the unit and percents are said of it."""

    bytes: int
    steps: int
    percents: int

    def without(self, other: "_Share") -> "_Share":
        """Take a part away."""
        return _Share(
            self.bytes - other.bytes, self.steps - other.steps, self.percents - other.percents
        )


def _by_share(told: Iterable[tuple[_Row, _Share]]) -> list[tuple[_Row, _Share]]:
    """Put the largest first as they are told: what is as large may have been rounded otherwise."""
    return sorted(told, key=lambda one: (-one[1].steps, -one[1].percents, -one[0].bytes))


@dataclass(frozen=True, slots=True)
class _Shares:
    """A total in words that add up: shared out to the kinds, and each kind's to its holders.

    Rounded each by itself, the figures of a column would often miss their own sum. Shared out to
    kinds and holders apart, a kind of one holder would be told in two ways.
    """

    in_all: _Share
    by_kind: Mapping[HoldingKind, _Share]
    unit: "_Unit"

    @classmethod
    def of(cls, by_kind: Mapping[HoldingKind, int]) -> "_Shares":
        """Choose the unit for a total, and share it out to its kinds."""
        total = sum(by_kind.values())
        unit = _unit_for(total)
        in_all = _Share(total, unit.rounded(total), _ALL_PERCENTS)
        shares = _shared_out(in_all, list(by_kind.values()), unit, total)
        return cls(in_all, dict(zip(by_kind, shares, strict=True)), unit)

    def of_rows(self, rows: Sequence[_Row]) -> list[_Share]:
        """Share out what each kind has to its rows."""
        by_place: dict[int, _Share] = {}
        for kind, share in self.by_kind.items():
            places = [place for place, row in enumerate(rows) if row.kind == kind]
            sizes = [rows[place].bytes for place in places]
            shares = _shared_out(share, sizes, self.unit, self.in_all.bytes)
            by_place.update(zip(places, shares, strict=True))
        return [by_place[place] for place in range(len(rows))]

    def said(self, share: _Share) -> tuple[str, str]:
        """Say a share in the common unit, and in percent; what is there is never called 0."""
        is_little = share.bytes > 0 and share.steps == 0
        size = f"<{self.unit.said(1)}" if is_little else self.unit.said(share.steps)
        is_little = share.bytes > 0 and share.percents == 0
        return size, "<1 %" if is_little else f"{share.percents} %"


@dataclass(frozen=True, slots=True)
class _Unit:
    """What a column's figures count in: steps of a unit, or of a tenth of it."""

    name: str
    bytes: int
    steps: int
    """In one unit: 1 or 10."""

    def rounded(self, size: int) -> int:
        """Give the nearest number of steps."""
        return (2 * size * self.steps + self.bytes) // (2 * self.bytes)

    def said(self, steps: int) -> str:
        """Say a number of steps."""
        figure = f"{steps:,}" if self.steps == 1 else f"{steps / self.steps:.1f}"
        return f"{figure} {self.name}"


def _unit_for(total: int) -> _Unit:
    """Choose the unit in which a total has at least three digits, or as many as it has bytes."""
    name, scale = next(
        (name, scale) for name, scale in _UNITS if total >= scale * _LEAST_OF_UNIT or scale == 1
    )
    has_tenths = scale > 1 and total < scale * _WITHOUT_TENTHS
    return _Unit(name, scale, 10 if has_tenths else 1)


def _shared_out(whole: _Share, sizes: Sequence[int], unit: _Unit, total: int) -> list[_Share]:
    in_steps = [divmod(size * unit.steps, unit.bytes) for size in sizes]
    in_percents = [divmod(size * _ALL_PERCENTS, total) for size in sizes]
    steps = _apportioned(in_steps, whole.steps)
    percents = _apportioned(in_percents, whole.percents)
    return [_Share(*share) for share in zip(sizes, steps, percents, strict=True)]


def _apportioned(wanted: Sequence[tuple[int, int]], steps: int) -> list[int]:
    """Round whole figures and their rests so that they add up: the largest rests are rounded up."""
    left = steps - sum(whole for whole, _ in wanted)
    by_rest = sorted(range(len(wanted)), key=lambda place: -wanted[place][1])
    raised = set(by_rest[:left])
    return [whole + (place in raised) for place, (whole, _) in enumerate(wanted)]
