"""The largest batch that really fits, found by trying."""

from collections.abc import Callable, Iterator

_STRIDES = (0.05, 0.1, 0.25)
_CLOSE = 0.05


def largest_that_fits(start: int, fits: Callable[[int], bool]) -> int:
    """Go up from where it should fit (or down, where it does not), then halve what is left."""
    fitting, too_large = _from_below(start, fits) if fits(start) else _from_above(start, fits)
    while too_large - fitting > max(1, _CLOSE * fitting):
        middle = (fitting + too_large) // 2
        if fits(middle):
            fitting = middle
        else:
            too_large = middle
    return fitting


def _from_below(start: int, fits: Callable[[int], bool]) -> tuple[int, int]:
    fitting = start
    for stride in _strides():
        batch = max(fitting + 1, round(start * (1 + stride)))
        if not fits(batch):
            return fitting, batch
        fitting = batch
    raise AssertionError("the strides do not end")


def _from_above(start: int, fits: Callable[[int], bool]) -> tuple[int, int]:
    too_large = start
    for stride in _strides():
        batch = min(too_large - 1, round(start / (1 + stride)))
        if batch < 1 or fits(batch):
            return max(batch, 0), too_large
        too_large = batch
    raise AssertionError("the strides do not end")


def _strides() -> Iterator[float]:
    """Begin small: the answer should be near."""
    yield from _STRIDES
    stride = _STRIDES[-1]
    while True:
        stride = (1 + stride) * (1 + _STRIDES[-1]) - 1
        yield stride
