"""The phrases that verdicts and suggestions are made of."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from oommagic.explain.account import Account
from oommagic.explain.facts import Facts, root_of
from oommagic.explain.growth import Growth
from oommagic.report import Composition, Failure, Holding
from oommagic.source_files import of_file
from oommagic.units import format_bytes

_SHOWN = 3
_MOST = 0.5
_NEARLY_ALL = 0.75
_OF_A_STEP = frozenset({"activations", "gradients", "workspace"})
_AT_FAILURE = "When it failed"
_WITHOUT_A_NAME = frozenset({"unknown", "rounding"})


def a_list(words: Sequence[str]) -> str:
    """Join words as one says them: `a, b and c`."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def code_list(names: Iterable[str]) -> str:
    """Join names of the cell's: `a`, `b` and `c`, each marked as code."""
    return a_list([f"`{name}`" for name in names])


def shape_words(failure: Failure) -> str:
    """Say a tensor's type and shape: `float32 64×112×112×64`."""
    shape = "×".join(map(str, failure.shape or ())) or ("scalar" if failure.shape == () else "")
    return " ".join(part for part in (failure.dtype, shape) if part)


def asked_for(failure: Failure) -> str:
    """Say what was asked for, as far as the error tells."""
    tensor = shape_words(failure)
    if failure.asked_bytes is None:
        return f"a tensor ({tensor})" if tensor else "the memory that was asked for"
    return f"{format_bytes(failure.asked_bytes)}{f' ({tensor})' if tensor else ''}"


def where(failure: Failure) -> str:
    """Say which op of which layer asked, and at which line."""
    op = f" for {failure.op}" if failure.op else ""
    layer = f" in layer {failure.layer}" if failure.layer else ""
    return f"{op}{layer}{_at_line(failure)}"


def _at_line(failure: Failure) -> str:
    if failure.line_number is None:
        return ""
    file = f" {of_file(failure.filename)}" if failure.filename else ""
    source = f": {failure.line_source.strip()}" if failure.line_source else ""
    return f", line {failure.line_number}{file}{source}"


def plural(per: str, count: int) -> str:
    """Say how often: `1 step`, `300 steps`."""
    return f"{count} {per}" if count == 1 else f"{count} {per}s"


def needs(account: Account) -> str:
    """Say how much the step needs at once, or what it asked for beside what it had."""
    needed, limit, asked = account.needed or 0, account.limit or 0, account.asked
    has = format_bytes(limit)
    if needed > limit and asked is not None and not account.is_exact:
        most = format_bytes(needed - asked)
        more = format_bytes(asked)
        return f"it asked for {more} more with up to {most} in use, and {account.place} has {has}"
    if needed > limit:
        return f"it needs at least {format_bytes(needed)} at once and {account.place} has {has}"
    had = f"it had {format_bytes(needed - (asked or 0))} of {has} in use"
    if asked is None or account.free is None:
        return f"{had} and asked for more"
    more, free = format_bytes(asked), format_bytes(account.free)
    return f"{had} and asked for {more} more, where {free} were free, in pieces"


# ---- What holds it ------------------------------------------------------------------------------


def biggest(facts: Facts, account: Account) -> str:
    """Say what most of the step's memory is, where that was recorded when or before it failed."""
    composition = facts.composition(account.place)
    if composition is None or composition.source == "names" or not account.needed:
        return ""
    top = _holders(composition, facts).most_common(1)
    if not top or composition.total_bytes < _NEARLY_ALL * (account.in_use or 0):
        return ""
    name, size = top[0]
    when = "" if _when(composition) == _AT_FAILURE else " of what was recorded"
    share = (
        "most of it" if size >= _MOST * account.needed and not when else f"the largest part{when}"
    )
    return f"; {share} is {name} ({format_bytes(size)})"


def biggest_layer(facts: Facts, account: Account) -> str:
    """Name the layer that held most, or nothing if that is not known."""
    composition = facts.composition(account.place)
    sizes = Counter[str]()
    for holding in composition.holdings if composition is not None else ():
        if holding.layer and holding.kind in _OF_A_STEP:
            sizes[holding.layer] += holding.bytes
    return next((layer for layer, _ in sizes.most_common(1)), "")


def largest_holders(facts: Facts, account: Account) -> Iterator[str]:
    """Name what held most, and whether that was when it failed."""
    composition = facts.composition(account.place)
    if composition is None:
        return
    top = _holders(composition, facts).most_common(_SHOWN)
    if top:
        held = a_list([f"{name} {format_bytes(size)}" for name, size in top])
        yield f"{_when(composition)}, the largest were {held}."


def _when(composition: Composition) -> str:
    """Say of which moment it is; one made of names alone is of the end."""
    if composition.source == "names":
        return "By name, as far as it is still there"
    return _AT_FAILURE if composition.moment == "failure" else "At the recorded peak"


def _holders(composition: Composition, facts: Facts) -> Counter[str]:
    sizes = Counter[str]()
    for holding in composition.holdings:
        is_left = bool(holding.owner) and not facts.uses(holding.owner)
        if holding.kind not in _WITHOUT_A_NAME and not is_left:
            sizes[_called(holding)] += holding.bytes
    return sizes


def _called(holding: Holding) -> str:
    """Name a holding after its kind, and its layer or the name that holds it, if it has one."""
    if holding.layer:
        return f"the {holding.kind} of {holding.layer}"
    if holding.owner:
        return f"the {holding.kind} of `{root_of(holding.owner)}`"
    return f"unnamed {holding.kind}"


# ---- What grows ---------------------------------------------------------------------------------


def growth_sentence(grown: Growth, place: str, limit: int | None) -> str:
    """Say how fast it grows, until when, and what it is that grows."""
    full = f"{place} ({format_bytes(limit)})" if limit is not None else place
    if grown.per == "run":
        return (
            f"Each run of this cell leaves {format_bytes(grown.rate_bytes)} more: "
            f"{plural('run', grown.repeats)} have left {format_bytes(grown.total_bytes)}, until "
            f"{full} was full{_in_its_list(grown)}."
        )
    if not grown.is_since_known:
        each = "" if grown.per == "second" else f" of each {grown.per}"
        return (
            f"It grows: `{grown.owner}` keeps {grown.what or 'tensors'}{each}, {grown.count_after} "
            f"by now, which take {format_bytes(grown.total_bytes)}, until {full} was full."
        )
    rate = f"It grows by {format_bytes(grown.rate_bytes)} {_each(grown)}"
    total = f"by {format_bytes(grown.total_bytes)} in {plural(grown.per, grown.repeats)}"
    return f"{rate}, {total}, until {full} was full: {_reason(grown)}."


def _in_its_list(grown: Growth) -> str:
    if not grown.owner:
        return ""
    return f": `{grown.owner}` keeps {grown.what or 'tensors'} of each ({grown.count_after} by now)"


def _each(grown: Growth) -> str:
    return "a second" if grown.per == "second" else f"with each {grown.per}"


def _reason(grown: Growth) -> str:
    """Say what keeps it, as far as that is known."""
    if grown.what == "models" and not grown.owner:
        return f"`{grown.maker}` builds a new model each time, and the memory of old ones stays"
    if grown.what == "graphs":
        return (
            f"{grown.maker} was traced {grown.count_after} times (a tf.function is traced anew "
            "for each new Python value and each new shape), and what a trace keeps stays"
        )
    if grown.owner:
        return f"`{grown.owner}` keeps {grown.what or 'tensors'} of each{_counts(grown)}"
    if grown.line_number is not None:
        return f"what line {grown.line_number} takes is not given back"
    if grown.op:
        return f"what {grown.layer or grown.op} allocates is not given back"
    return "what is taken is not given back"


def _counts(grown: Growth) -> str:
    if not grown.count_after:
        return ""
    return f" ({grown.count_before} at first, {grown.count_after} at last)"


def told_growth(grown: Growth) -> str:
    """Say the same in a few words."""
    total = format_bytes(grown.total_bytes)
    if not grown.is_since_known:
        return f"`{grown.owner}` has {grown.count_after} {grown.what or 'tensors'}, {total}"
    in_all = f"{total} in {plural(grown.per, grown.repeats)}"
    if grown.owner and grown.count_after and grown.per != "run":
        counts = f"from {grown.count_before} to {grown.count_after} {grown.what or 'tensors'}"
        return f"`{grown.owner}` grew {counts}, {total}"
    if grown.maker and grown.what == "models":
        return f"models of `{grown.maker}` grew to {in_all}"
    if grown.what == "graphs":
        return f"{grown.maker} was traced {grown.count_after} times, and {in_all} were taken"
    at_line = f" at line {grown.line_number}" if grown.line_number is not None else ""
    return f"{grown.place} rose by {in_all}{at_line}"
