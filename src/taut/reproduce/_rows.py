"""Rows of logits measured as S1 does, with exact constants beside: what Figures 2 and 4 share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import taut

Array = np.ndarray[Any, np.dtype[Any]]


class Measured(NamedTuple):
    """The largest of all rows, (step sizes, norms) and (norms,), and the means of all rows."""

    random: Array
    worst: Array
    exact: Array
    mean_random: Array
    mean_exact: Array


def measure(
    x: Array, norms: Sequence[float], epsilons: Sequence[float], *, scale: float = 1.0,
    trials: int = 1, seed: int = 0,
) -> Measured:  # fmt: skip
    """S1's recipe and worst directions on all rows, and the upper sides of their constants."""
    shape = (len(epsilons), len(norms))
    sides = len(norms)
    found = Measured(
        np.zeros(shape), np.zeros(shape), np.zeros(sides), np.zeros(shape), np.zeros(sides)
    )
    for j, p in enumerate(norms):
        local = np.asarray(taut.local_lipschitz(x, p=p, scale=scale).upper)
        found.exact[j], found.mean_exact[j] = local.max(), local.mean()
        for i, epsilon in enumerate(epsilons):
            random = taut.empirical_lipschitz(
                x, p, epsilon=epsilon, samples=trials, seed=seed, scale=scale
            ).lower
            worst = taut.empirical_lipschitz(x, p, epsilon=epsilon, along="worst", scale=scale)
            found.random[i, j], found.mean_random[i, j] = np.max(random), np.mean(random)
            found.worst[i, j] = np.max(worst.lower)
    return found
