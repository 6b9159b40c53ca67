"""What makes memory grow that no name holds: models, graphs, and the buffers of data sets."""

from collections.abc import Iterator
from dataclasses import replace

from oommagic.explain.clues import Clue
from oommagic.explain.facts import Facts
from oommagic.explain.growth.lines import source_of
from oommagic.explain.growth.value import Growth
from oommagic.recording import TracedLines

_FEW_TRACES = 5
"""A function that takes inputs of a few kinds has as many graphs; more are a mistake."""

_FEWEST_ELEMENTS = 16


def with_its_maker(growth: Growth, facts: Facts) -> Growth:
    """Say what makes it grow, if no name holds it: models in a loop, graphs, or a buffer."""
    if growth.owner:
        return growth
    built = _model_in(growth, facts)
    if built is not None:
        return replace(
            growth,
            what="models",
            per="iteration",
            maker=built.text,
            line_number=built.first_line,
            line_source=source_of(facts, built.first_line),
        )
    traced, buffer = retraced(facts), _buffer_in(growth.place, facts)
    if buffer is not None and (growth.kind == "data" or (traced is None and not growth.kind)):
        return replace(growth, what="buffer", owner=buffer.name, maker=buffer.text)
    if traced is not None:
        return replace(growth, what="graphs", maker=traced.name, count_after=traced.traces)
    return growth


def retraced(facts: Facts) -> TracedLines | None:
    """Find the function of the cell's that was traced most, if it was more than a few times."""
    used = (each for each in facts.traced if facts.uses(each.name))
    most = max(used, key=lambda each: each.traces, default=None)
    return most if most is not None and most.traces > _FEW_TRACES else None


def buffers(facts: Facts) -> Iterator[Growth]:
    """Yield data sets' buffers that were seen filling: many pieces alike that no layer made."""
    for composition in facts.compositions:
        clue = _buffer_in(composition.device, facts)
        elements = [
            holding
            for holding in composition.holdings
            if holding.count >= _FEWEST_ELEMENTS and not holding.layer and not holding.owner
        ]
        if clue is not None and elements:
            yield Growth(
                place=composition.device,
                per="step",
                repeats=sum(holding.count for holding in elements),
                total_bytes=sum(holding.bytes for holding in elements),
                what="buffer",
                owner=clue.name,
                maker=clue.text,
            )


def _buffer_in(place: str, facts: Facts) -> Clue | None:
    """Find a buffer of a data set's; they never stand on a GPU."""
    found = facts.clues.of("cache", "shuffle")
    return found[0] if found and not place.startswith("GPU") else None


def _model_in(growth: Growth, facts: Facts) -> Clue | None:
    """Find a model that is built in the loop that grows, or in any if the line is not known."""
    loop = facts.clues.loop_of(growth.line_number) if growth.line_number is not None else None
    for clue in facts.clues.of("model"):
        here = loop is None or loop.first_line <= clue.first_line <= loop.last_line
        if clue.is_in_loop and here:
            return clue
    return None
