"""S1's empirical constants over a grid of step sizes and norms, on a sample of the rows.

Which rows are taken depends on the seed, the layer and the number of the sample alone, so that
several processes take the same ones as a single process would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from taut._empirical import empirical_lipschitz
from taut._lipschitz import local_lipschitz
from taut.audit._layout import Rows
from taut.audit._measure import HIDDEN

SAMPLES = 64  # one row of each layer is taken from each of the first samples
EPSILONS = (1e-3, 1e-2, 1e-1, 1.0)
_ARRAYS = ("random", "worst", "lower", "upper")
NORMS = (1.0, 2.0, 4.0, math.inf)


class Grid:
    """Largest empirical constants of a layer: along random and along worst directions."""

    def __init__(self, epsilons: Sequence[float], norms: Sequence[float]) -> None:
        self.epsilons, self.norms = tuple(epsilons), tuple(norms)
        shape = (len(self.epsilons), len(self.norms))
        self.random, self.worst = np.zeros(shape), np.zeros(shape)
        # Largest exact or certified local constant of the same rows, for each norm.
        self.lower, self.upper = np.zeros(shape[1]), np.zeros(shape[1])
        self.rows = 0

    def add(self, rows: Rows, kept: Any, samples: Any, layer: int, seed: int) -> None:
        """Take in one row of every sample."""
        for index, sample in enumerate(samples):
            source = np.random.default_rng((seed, layer, int(sample), index % rows.windows))
            heads, queries = np.nonzero(kept[index])
            if sample >= SAMPLES or not len(heads):
                continue
            pick = source.integers(len(heads))
            row = rows.scores[index, heads[pick], queries[pick]].detach().double().cpu()
            row = row[row > HIDDEN]
            if len(row) > 1:
                self._row(row, int(source.integers(1 << 31)))

    def _row(self, row: torch.Tensor, seed: int) -> None:
        self.rows += 1
        for j, p in enumerate(self.norms):
            bound = local_lipschitz(row, p=p)
            self.lower[j] = max(self.lower[j], float(bound.lower))
            self.upper[j] = max(self.upper[j], float(bound.upper))
            for i, epsilon in enumerate(self.epsilons):
                found = empirical_lipschitz(row, p=p, epsilon=epsilon, seed=seed).lower
                self.random[i, j] = max(self.random[i, j], float(found))
                found = empirical_lipschitz(row, p=p, epsilon=epsilon, along="worst").lower
                self.worst[i, j] = max(self.worst[i, j], float(found))

    def merge(self, other: Grid) -> None:
        """Take in what another process has seen."""
        if (other.epsilons, other.norms) != (self.epsilons, self.norms):
            raise ValueError("cannot merge grids of other step sizes or norms")
        self.rows += other.rows
        for name in _ARRAYS:
            setattr(self, name, np.maximum(getattr(self, name), getattr(other, name)))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; the exponent ∞ is written as a word."""
        return {
            "epsilons": list(self.epsilons),
            "norms": ["inf" if math.isinf(p) else p for p in self.norms],
            "rows": self.rows,
            **{name: getattr(self, name).tolist() for name in _ARRAYS},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Grid:
        """The grid that :meth:`to_dict` wrote."""
        grid = cls(data["epsilons"], [float(p) for p in data["norms"]])
        grid.rows = int(data["rows"])
        for name in _ARRAYS:
            setattr(grid, name, np.asarray(data[name], dtype=np.float64))
        return grid
