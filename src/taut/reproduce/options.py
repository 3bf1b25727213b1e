"""Options of the experiments."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

NORMS = (1.0, 2.0, 4.0, 8.0, math.inf)
SCALES = (0.5, 1.0, 2.0, 4.0)
EPSILONS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


def numbers_above_zero(values: tuple[float, ...], name: str) -> None:
    """Refuse numbers that cannot be step sizes or inverse temperatures."""
    if not values or not all(0 < value < math.inf for value in values):
        raise ValueError(f"{name} must be numbers above 0, got {values}")


class Options(NamedTuple):
    """Options of a run; None means the experiment's default."""

    quick: bool = False
    seed: int = 0
    norms: tuple[float, ...] = NORMS
    epsilons: tuple[float, ...] = EPSILONS
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    limit: int | None = None
    scales: tuple[float, ...] = SCALES
    folder: Path = Path("taut-reproduce")

    def checked(self) -> Options:
        """The same, or an error that says what is wrong."""
        numbers_above_zero(self.epsilons, "epsilons")
        numbers_above_zero(self.scales, "scales")
        if not self.norms or not all(p >= 1 for p in self.norms):
            raise ValueError(f"exponents p must be at least 1, got {self.norms}")
        return self

    def size(self, full: int, quick: int) -> int:
        """How much of something: as asked, or what is usual."""
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, got {self.limit}")
        return self.limit or (quick if self.quick else full)
