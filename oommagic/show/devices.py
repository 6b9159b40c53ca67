"""What there is to train on, in text and HTML: both say the same facts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from oommagic.devices import DeviceNow, Overview
from oommagic.show.characters import label, visible
from oommagic.show.facts import Fact, fact_lines, facts_in_html
from oommagic.show.page import page
from oommagic.show.terminal import room_of
from oommagic.show.view import gpu_words
from oommagic.units import format_bytes


def render_text(overview: Overview, columns: int | None = None) -> str:
    """Say an overview in at most so many columns; without a number, as the terminal has."""
    return "\n".join(fact_lines(_facts(overview), room_of(columns)))


def render_html(overview: Overview) -> str:
    """Say an overview in HTML that can stand in any page."""
    return page([facts_in_html(_facts(overview))])


def _facts(overview: Overview) -> Sequence[Fact]:
    return [replace(fact, text=visible(fact.text)) for fact in _all_facts(overview)]


def _all_facts(overview: Overview) -> Iterator[Fact]:
    yield Fact("Training device", overview.training_device)
    for warning in overview.warnings:
        yield Fact("Beware", warning)
    yield Fact("TensorFlow", overview.tensorflow)
    for device in overview.devices:
        yield Fact(label(device.name), _figures(device))
    yield Fact("GPUs (NVML)", overview.gpu_status)
    for gpu in overview.gpus:
        yield Fact(f"GPU {gpu.index} (NVML)", gpu_words(gpu))
    for card in overview.cards:
        yield Fact(f"--like {card.name}", f"{format_bytes(card.usable_bytes)} ({card.source})")


def _figures(device: DeviceNow) -> str:
    if device.in_use_bytes is None or device.peak_bytes is None:
        return "its allocator keeps no figures."
    limit = "" if device.limit_bytes is None else f" of {format_bytes(device.limit_bytes)}"
    return (
        f"{format_bytes(device.in_use_bytes)} in use{limit}, peak "
        f"{format_bytes(device.peak_bytes)} (TensorFlow's allocator)."
    )
