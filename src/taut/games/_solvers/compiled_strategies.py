"""Strategies of one game in compiled loops: what the compiled Newton method is made of.

Loops instead of slices: numba takes seconds longer to compile those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut.games._solvers.temperature_path import RISE


@njit(error_model="numpy")
def dot(a: Any, b: Any) -> float:
    """The inner product; numba's own would need scipy."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(error_model="numpy")
def copy(source: Any, target: Any) -> None:
    """Copy a vector."""
    for i in range(source.size):
        target[i] = source[i]


@njit(error_model="numpy")
def mix(logs: Any, weights: Any) -> None:
    """Normalise log-probabilities in place, and fill in the probabilities."""
    top, total = logs[0], 0.0
    for i in range(1, logs.size):
        top = max(top, logs[i])
    for i in range(logs.size):
        weights[i] = np.exp(logs[i] - top)
        total += weights[i]
    shift = top + np.log(total)
    for i in range(logs.size):
        logs[i] -= shift
        weights[i] /= total


@njit(error_model="numpy")
def move(logs: Any, weights: Any, step: Any, level: float) -> None:
    """Take a step, the rise of strategies bounded as in ``newton._moved``."""
    mean = dot(weights, step)
    for i in range(logs.size):
        logs[i] += min(step[i] - mean, max(level - logs[i], RISE))
    mix(logs, weights)


@njit(error_model="numpy")
def answer(products: Any, tau: float, logs: Any, weights: Any) -> None:
    """The best answer σ(products/τ)."""
    for i in range(logs.size):
        logs[i] = products[i] / tau
    mix(logs, weights)


@njit(error_model="numpy")
def divergence(logs: Any, weights: Any, other_logs: Any, other_weights: Any) -> float:
    """KL without cancellation, as in :func:`taut.games._solvers.duality_gap.divergence`."""
    total = 0.0
    for i in range(logs.size):
        d = logs[i] - other_logs[i]
        if d < -1:
            total += other_weights[i] + weights[i] * (d - 1)
        else:
            total += weights[i] * (np.expm1(-d) + d)
    return total


@njit(error_model="numpy")
def products(A: Any, x: Any, y: Any, costs: Any, gains: Any) -> None:
    """−A y and Aᵀx: what the players maximise."""
    n, m = A.shape
    for j in range(m):
        gains[j] = 0.0
    for i in range(n):
        total = 0.0
        for j in range(m):
            total += A[i, j] * y[j]
            gains[j] += A[i, j] * x[i]
        costs[i] = -total
