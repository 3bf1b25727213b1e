"""LayerMeasurement: the numbers of every head of one attention softmax."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from taut.models import RowMeasurements

Array = np.ndarray[Any, np.dtype[Any]]
HEAD = ("largest_score", "mean_entropy", "mean_constant", "largest_constant")


class LayerMeasurement(NamedTuple):
    """The heads of one attention softmax, one number each; NaN where no row counts."""

    name: str
    largest_score: Array
    mean_entropy: Array
    mean_constant: Array
    largest_constant: Array
    broken: int  # rows with NaN or +inf, which do not count
    sigma: dict[str, float]  # spectral norms of the projections, if asked for

    def values(self) -> dict[str, float]:
        """All numbers under their keys: of each head, then of the layer."""
        found = {
            f"attention/{self.name}/head_{h}/{what}": float(getattr(self, what)[h])
            for h in range(len(self.largest_score))
            for what in HEAD
        }
        return found | self.summary()

    def summary(self) -> dict[str, float]:
        """The numbers of the layer: extremes and means over its heads."""
        whole = {
            "largest_score": over_heads(self.largest_score, np.max),
            "mean_entropy": over_heads(self.mean_entropy, np.mean),
            "lowest_entropy": over_heads(self.mean_entropy, np.min),
            "mean_constant": over_heads(self.mean_constant, np.mean),
            "largest_constant": over_heads(self.largest_constant, np.max),
            **{f"sigma_max/{name}": value for name, value in self.sigma.items()},
        }
        return {f"attention/{self.name}/{what}": value for what, value in whole.items()}


def over_rows(name: str, measured: RowMeasurements, sigma: dict[str, float]) -> LayerMeasurement:
    """Reduce measurements of rows, (samples, heads, queries), to those of heads."""
    kept = measured.kept
    count = kept.sum(axis=(0, 2))

    def mean(what: str) -> Array:
        total = np.where(kept, measured.values[what], 0.0).sum(axis=(0, 2), dtype=np.float64)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def largest(what: str) -> Array:
        top = np.where(kept, measured.values[what], -np.inf).max(axis=(0, 2), initial=-np.inf)
        return np.where(count > 0, top, np.nan)

    return LayerMeasurement(
        name, largest("score"), mean("entropy"), mean("two"), largest("two"),
        int(measured.broken.sum()), sigma,
    )  # fmt: skip


def over_heads(values: Array, reduce: Any) -> float:
    """A mean or an extreme of the heads that have a value."""
    known = values[~np.isnan(values)]
    return float(reduce(known)) if known.size else math.nan
