"""What an area of the campaign has to say: how cases are made, changed and judged."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fuzz.case import Array, Case


class Area(ABC):
    """One kind of bounds, with the cases that try to break them."""

    name: str  # also of its files
    goal: int  # cases of a full run
    unit: str  # what is counted
    ratio: str  # what the ratio of a case says; above 1 the bound is broken

    @abstractmethod
    def fresh(self, rng: np.random.Generator) -> Case:
        """A new case."""

    @abstractmethod
    def changed(self, case: Case, rng: np.random.Generator) -> Case:
        """A case near one that came close to breaking a bound."""

    @abstractmethod
    def judge(self, case: Case) -> Array:
        """The ratio of every member of the case; NaN counts as broken."""

    def member(self, case: Case, index: int) -> Case:
        """The member of a case with this place in what ``judge`` returns."""
        return case

    def improved(self, case: Case) -> Case:
        """The case as it is to be kept, if judging found a worse one on its way."""
        return case
