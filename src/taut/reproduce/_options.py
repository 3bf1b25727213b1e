"""What every experiment can be told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

NORMS = (1.0, 2.0, 4.0, 8.0, math.inf)
EPSILONS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


class Options(NamedTuple):
    """Options of a run; None stands for what the experiment takes by itself."""

    quick: bool = False
    seed: int = 0
    norms: tuple[float, ...] = NORMS
    epsilons: tuple[float, ...] = EPSILONS
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    limit: int | None = None
    folder: Path = Path("taut-reproduce")

    def size(self, full: int, quick: int) -> int:
        """How much of something: as asked, or what is usual."""
        return self.limit or (quick if self.quick else full)
