"""Counts steps until they are enough, and takes their time."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """How many steps there are: so many, and more as long as they are quick."""

    at_least: int
    most: int
    seconds: float
    fits_s: float = 60.0
    """A call of `fit` that would begin later than this after the first one ends the cell."""
    fits: int = 0
    """So many calls of `fit` there are, however long they take; 0 for as many as time allows."""


class Count:
    """The steps of one call, or of one loop."""

    def __init__(self, budget: Budget) -> None:
        """Begin before the first step."""
        self.steps = 0
        self._budget = budget
        self._began_s = time.perf_counter()
        self._first: tuple[int, float] | None = None
        self._last_s = self._began_s

    def is_enough(self) -> bool:
        """Say whether no other step should follow."""
        budget, took_s = self._budget, time.perf_counter() - self._began_s
        if self.steps < budget.at_least:
            return False
        return self.steps >= budget.most or took_s >= budget.seconds

    def end(self, steps: int = 1) -> None:
        """Take note of the end of a step, or of several at once."""
        self.steps += steps
        self._last_s = time.perf_counter()
        if self._first is None:
            self._first = self.steps, self._last_s

    @property
    def step_s(self) -> float | None:
        """The mean time of a step, without the first if there are others."""
        if self._first is None:
            return None
        steps, first_s = self._first
        if self.steps > steps:
            return (self._last_s - first_s) / (self.steps - steps)
        return (first_s - self._began_s) / steps
