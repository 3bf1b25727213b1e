"""LayerMeasurement: the numbers of every head of one attention softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from taut.models import RowMeasurements

Array = np.ndarray[Any, np.dtype[Any]]
PREFIX = "taut"  # trackers group what begins alike
# The numbers of a head by the names that they have in logs.
HEAD = {
    "local_constant": "mean_constant",
    "largest_constant": "largest_constant",
    "entropy": "mean_entropy",
    "largest_score": "largest_score",
}


class LayerMeasurement(NamedTuple):
    """The heads of one attention softmax, one number each; NaN where no row counts."""

    name: str
    largest_score: Array
    mean_entropy: Array
    mean_constant: Array
    largest_constant: Array
    broken: int  # rows with NaN or +inf, which do not count
    sigma: dict[str, float]  # spectral norms of the projections, if asked for

    def heads(self, label: str) -> dict[str, float]:
        """The numbers of each head under their keys; ``label`` is the name of the layer in logs."""
        return {
            f"{PREFIX}/{label}/head_{h:02d}/{name}": float(getattr(self, what)[h])
            for h in range(len(self.largest_score))
            for name, what in HEAD.items()
        }

    def summary(self, label: str) -> dict[str, float]:
        """The numbers of the layer: extremes and means over its heads."""
        found = {f"{PREFIX}/{label}/{name}": value for name, value in together([self]).items()}
        sigma = {f"{PREFIX}/{label}/sigma_max/{name}": v for name, v in self.sigma.items()}
        return found | sigma


def together(layers: Sequence[LayerMeasurement]) -> dict[str, float]:
    """Extremes and means over the heads of one layer, or of all of them."""
    if not layers:
        return {}
    scores, entropies, means, largest = (
        np.concatenate([getattr(layer, what) for layer in layers])
        for what in ("largest_score", "mean_entropy", "mean_constant", "largest_constant")
    )
    return {
        "local_constant": over_heads(means, np.mean),
        "largest_constant": over_heads(largest, np.max),
        "entropy": over_heads(entropies, np.mean),
        "lowest_entropy": over_heads(entropies, np.min),
        "largest_score": over_heads(scores, np.max),
    }


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
