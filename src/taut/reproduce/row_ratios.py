"""Ratios along random and worst directions on rows of logits, beside their exact constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import taut

Array = np.ndarray[Any, np.dtype[Any]]


class Measured(NamedTuple):
    """The largest of all rows and the means, (step sizes, norms) and (norms,)."""

    random: Array
    worst: Array
    lower: Array  # of the local constants: both sides are the same for p = 1, 2 and ∞
    upper: Array
    mean_random: Array  # of all rows and all trials
    mean_lower: Array
    mean_upper: Array

    def largest_constant(self, j: int) -> str:
        """The largest local constant in the norm number j, or what it lies between."""
        return bracket(self.lower[j], self.upper[j])

    def mean_constant(self, j: int) -> str:
        """The mean of the local constants in the norm number j, or what it lies between."""
        return bracket(self.mean_lower[j], self.mean_upper[j])


def bracket(low: float, high: float) -> str:
    """One number if both sides are the same in print."""
    sides = f"{low:.4f}", f"{high:.4f}"
    return sides[1] if sides[0] == sides[1] else " to ".join(sides)


def below(value: float, limit: float = 0.5) -> str:
    """A number that rounding does not lift to its limit."""
    text = f"{value:.6f}"
    return f"{limit:g} − {limit - value:.1e}" if float(text) >= limit > value else text


def measure(
    x: Array, norms: Sequence[float], epsilons: Sequence[float], *, scale: float = 1.0,
    trials: int = 1, seed: int = 0,
) -> Measured:  # fmt: skip
    """Ratios along the paper's random directions and along the worst ones, and both constants."""
    grid, line = (len(epsilons), len(norms)), len(norms)
    random, worst, mean = (np.zeros(grid) for _ in range(3))
    lower, upper, mean_lower, mean_upper = (np.zeros(line) for _ in range(4))
    for j, p in enumerate(norms):
        local = taut.local_lipschitz(x, p=p, scale=scale)
        sides = np.asarray(local.lower), np.asarray(local.upper)
        lower[j], upper[j] = (side.max() for side in sides)
        mean_lower[j], mean_upper[j] = (side.mean() for side in sides)
        for i, epsilon in enumerate(epsilons):
            # One direction for each row and trial: the largest of several is another number.
            tried = [
                np.asarray(taut.empirical_lipschitz(
                    x, p, epsilon=epsilon, samples=1, seed=seed + trial, scale=scale
                ).lower)
                for trial in range(trials)
            ]  # fmt: skip
            random[i, j], mean[i, j] = np.max(tried), np.mean(tried)
            along = taut.empirical_lipschitz(x, p, epsilon=epsilon, along="worst", scale=scale)
            worst[i, j] = np.max(along.lower)
    return Measured(random, worst, lower, upper, mean, mean_lower, mean_upper)
