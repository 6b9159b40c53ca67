"""The sums of one failure: what was asked, what was there, and who held it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from oommagic.explain.facts import Facts, once_each, root_of
from oommagic.explain.growth import Growth
from oommagic.recording import Held
from oommagic.report import HOST, Failure, Holding

Confidence = Literal["certain", "likely", "possible"]

_A_GOOD_PART = 0.25
"""What must be held to count, where it is not known how much was missing."""

_NEARLY_FULL = 0.8

_LEAST_LEFT = 0.1
"""Of the limit: less than that may have been what was missing, but did not fill the device."""

_DATA_OPS = frozenset({"", "_EagerConst", "Const"})
"""An array that becomes a tensor has no op; batches come of an iterator's."""

_PLAIN_KINDS = frozenset({"data", "tensors"})


@dataclass(frozen=True, slots=True)
class Account:
    """What is known in figures of the place that ran out. None: not known."""

    place: str
    limit: int | None = None
    asked: int | None = None
    in_use: int | None = None
    is_exact: bool = False
    """Whether `in_use` was read when it failed."""
    is_of_now: bool = False
    """Whether it is what is in use now; if neither, it is the highest that was seen."""
    limit_counts_reserved: bool = False
    """The limit counts more than what is in use, and is reached before: no sum is to be made."""
    before: int | None = None
    left: tuple[tuple[str, int], ...] = ()
    """What the cell does not use, by name, the largest first; the name is empty for what has
    none."""
    data: tuple[tuple[str, int], ...] = ()
    """Data that lies on the device, by name, or by shape where it has no name."""
    grown: Growth | None = None
    buffer: Growth | None = None
    """A data set's buffer that fills."""

    @property
    def missing(self) -> int | None:
        """How much was wanted beyond the limit; none or less means that it was there, in pieces."""
        if self.limit is None or self.in_use is None or self.asked is None:
            return None
        if self.limit_counts_reserved:
            return None
        return self.in_use + self.asked - self.limit

    @property
    def free(self) -> int | None:
        """How much was free in all."""
        if self.limit is None or self.in_use is None:
            return None
        return max(0, self.limit - self.in_use)

    @property
    def asked_alone_is_too_much(self) -> bool:
        """Whether what was asked for is more than there is in all."""
        return self.asked is not None and self.limit is not None and self.asked > self.limit

    @property
    def left_bytes(self) -> int:
        """All that was left behind."""
        return sum(size for _, size in self.left)

    @property
    def left_counts(self) -> bool:
        """Whether that is a part of what there is that matters."""
        return self.left_bytes >= _LEAST_LEFT * (self.limit or 0)

    @property
    def data_bytes(self) -> int:
        """All data on the device."""
        return sum(size for _, size in self.data)

    @property
    def grown_bytes(self) -> int:
        """What grew, apart from buffers."""
        return self.grown.total_bytes if self.grown is not None else 0

    @property
    def needed(self) -> int | None:
        """What the cell needed at once at least, without what was left behind or had grown."""
        if self.in_use is None:
            return self.asked
        # What earlier runs have left is what has grown from run to run.
        is_same = self.grown is not None and self.grown.per == "run"
        parts = (self.left_bytes if self.left_counts else 0, self.grown_bytes)
        rest = self.in_use - (max(parts) if is_same else sum(parts))
        return max(0, rest) + (self.asked or 0)

    @property
    def is_left_known(self) -> bool:
        """Whether names say what was there before."""
        return any(name for name, _ in self.left)

    @property
    def is_nearly_full(self) -> bool:
        """Whether little would be left if it had got what it asked for."""
        if self.missing is None or self.limit is None:
            return False
        return self.limit + self.missing >= _NEARLY_FULL * self.limit

    def explained_by(self, size: int) -> bool:
        """Say whether it would have had what it asked for without so much.

        What is left of a nearly full device is in pieces: what filled it explains that, too.
        """
        if self.missing is not None and self.missing > 0:
            return self.missing <= size
        if self.missing is not None and not self.is_nearly_full:
            return False
        is_good_part = self.limit is not None and size >= _A_GOOD_PART * self.limit
        return size > 0 and is_good_part and size >= (self.asked or 0)

    @property
    def is_filled(self) -> bool:
        """Whether something that is known to be there explains the failure."""
        buffered = self.buffer.total_bytes if self.buffer is not None else 0
        parts = (self.grown_bytes, self.left_bytes, self.data_bytes, buffered)
        return any(map(self.explained_by, parts))

    def confidence(self, at_best: Confidence = "certain") -> Confidence:
        """Say how sure sums are that stand on these figures."""
        if self.missing is None:
            return "possible"
        return at_best if self.is_exact else "likely"


def account_of(facts: Facts, growths: Iterable[Growth]) -> Account:
    """Add up what is known of the place that ran out."""
    if facts.failure is None:
        return Account(facts.place)
    account = _host_account if facts.place == HOST else _device_account
    here = [growth for growth in growths if growth.place == facts.place]
    return replace(
        account(facts, facts.failure),
        grown=next((growth for growth in here if growth.what != "buffer"), None),
        buffer=next((growth for growth in here if growth.what == "buffer"), None),
    )


def _device_account(facts: Facts, failure: Failure) -> Account:
    device = facts.device(facts.place)
    in_use, is_exact = _in_use(facts)
    is_of_now = not is_exact and facts.is_as_it_failed and not _has_let_go(facts, failure)
    if device is not None and is_of_now:
        in_use = device.after_bytes
    return Account(
        place=facts.place,
        limit=failure.limit_bytes or (device.limit_bytes if device is not None else None),
        asked=failure.asked_bytes,
        in_use=in_use,
        is_exact=is_exact,
        is_of_now=is_of_now,
        before=device.before_bytes if device is not None and facts.profile is not None else None,
        left=_left_behind(facts),
        data=_data(facts),
    )


def _has_let_go(facts: Facts, failure: Failure) -> bool:
    """Say whether there is room now and was none at the peak: what was in hand has been freed.

    Python frees what a comprehension has made so far as soon as it fails.
    """
    device, asked = facts.device(facts.place), failure.asked_bytes or 0
    is_of_one = facts.clues.is_in_comprehension(facts.line_number or failure.line_number)
    if device is None or device.limit_bytes is None or not is_of_one:
        return device is None
    return device.after_bytes + asked <= device.limit_bytes < device.peak_bytes + asked


def _host_account(facts: Facts, failure: Failure) -> Account:
    host = facts.host
    return Account(
        place=HOST,
        limit=host.limit_bytes if host is not None else facts.host_limit_bytes,
        asked=failure.asked_bytes,
        in_use=host.peak_bytes if host is not None else None,
        limit_counts_reserved=host is not None and host.limit_counts_reserved,
        before=host.before_bytes if host is not None and facts.profile is not None else None,
    )


def _in_use(facts: Facts) -> tuple[int | None, bool]:
    if facts.failure is not None and facts.failure.in_use_bytes is not None:
        return facts.failure.in_use_bytes, True
    composition = facts.composition(facts.place)
    # One made of names alone is of now, when much has been freed.
    is_of_then = composition is not None and composition.source != "names"
    if composition is not None and is_of_then and composition.moment == "failure":
        return composition.total_bytes, True
    device = facts.device(facts.place)
    return (device.peak_bytes, False) if device is not None else (None, False)


def _left_behind(facts: Facts) -> tuple[tuple[str, int], ...]:
    """Add up, by name, what was there before and the cell does not use."""
    unused = Counter[str]()
    for each in _unused_now(facts) if facts.profile is None else _unused_before(facts):
        unused[root_of(each.owner)] += each.bytes
    unused[""] += _without_a_name(facts)
    return tuple((name, size) for name, size in unused.most_common() if size > 0)


def _unused_now(facts: Facts) -> Iterator[Held]:
    """Yield what names hold that the cell never mentions; the rest may be the failed cell's."""
    for each in once_each(facts.held_after, facts):
        if each.device == facts.place and _has_name(each.owner) and not facts.uses(each.owner):
            yield each


def _has_name(owner: str) -> bool:
    """Say whether one can delete it by name; else it may be the failed cell's own."""
    root = root_of(owner)
    return root.isidentifier() or root.startswith("Out[")


def _unused_before(facts: Facts) -> Iterator[Held]:
    """Yield what was held before for nothing that the cell uses, and was not freed since.

    A name that the cell gives a new value did not hold for it; but what it held may be freed.
    """
    here = [each for each in once_each(facts.held_after, facts) if each.device == facts.place]
    now = {each.address: each.owner for each in here if each.address}
    for each in once_each(facts.held_before, facts):
        if each.device != facts.place:
            continue
        owner = now.get(each.address, "" if now and each.address else each.owner)
        is_replaced = root_of(each.owner) in facts.clues.names_replaced
        is_used = bool(owner) and facts.uses(owner)
        is_freed = bool(now) and bool(each.address) and each.address not in now
        if not is_used and not is_freed and not (is_replaced and not each.address):
            yield each


def _without_a_name(facts: Facts) -> int:
    """Say how much there was before that no inventory has found; rounding is none of it."""
    device = facts.device(facts.place)
    if device is None or facts.profile is None:
        return 0
    here = (each for each in once_each(facts.held_before, facts) if each.device == device.name)
    unknown = device.before_bytes - sum(each.bytes for each in here)
    return unknown if unknown > device.before_bytes // 10 else 0


def _data(facts: Facts) -> tuple[tuple[str, int], ...]:
    composition = facts.composition(facts.place)
    found = Counter[str]()
    if composition is not None and composition.source != "compiled buffers":
        for holding in composition.holdings:
            if _is_data(holding, facts) and not _is_batch(holding, facts):
                found[root_of(holding.owner) or _said(holding)] += holding.bytes
    else:
        for each in once_each(facts.held_after or facts.held_before, facts):
            if each.device == facts.place and _is_data(each, facts):
                found[root_of(each.owner)] += each.bytes
    return tuple(found.most_common())


def _is_data(held: Held | Holding, facts: Facts) -> bool:
    if isinstance(held, Holding) and not held.owner:
        return held.kind == "data" and held.op in _DATA_OPS
    if held.owner and not facts.uses(held.owner):
        return False
    calls = facts.clues.of("fit", "evaluate", "predict", "from_tensor_slices", "tensor")
    given = {name for call in calls for name in call.arguments}
    return held.kind == "data" or (held.kind in _PLAIN_KINDS and root_of(held.owner) in given)


def _is_batch(holding: Holding, facts: Facts) -> bool:
    """Say whether it is of the step: as long as what the step asked for, or as a batch."""
    if not holding.shape or holding.owner:
        return False
    failure = facts.failure
    asked = failure.shape if failure is not None else None
    batch = facts.clues.batch_size(failure.line_number if failure is not None else None)
    return holding.shape[0] in {asked[0] if asked else None, batch}


def _said(holding: Holding) -> str:
    shape = "×".join(map(str, holding.shape)) if holding.shape else ""
    return " ".join(part for part in (holding.dtype, shape) if part)
