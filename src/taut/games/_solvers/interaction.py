"""One pass over a matrix of payoffs, and its interaction D, compiled.

D = max |A_ij − A_kj − A_il + A_kl| is the largest oscillation of a difference of two rows. It is
what total variation sees of a game: adding a constant to a row or a column does not change it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit, types

from taut._base.array import processors
from taut._base.compiled import compiled
from taut._base.compiled_operations import largest, plus, wide_vectors
from taut._base.rounding import EPS, enlarged, times
from taut._base.rounding import plus as plus_up
from taut._base.threads import in_threads

Matrix = np.ndarray[Any, np.dtype[Any]]

SHARE = 1 << 20  # payoffs that are worth starting a thread for


def survey(payoffs: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Smallest, largest and sum of every row of payoffs (games, n, m).

    A NaN or an infinite payoff shows in the sum of its row, for which the others say nothing.
    """
    kernel, _ = _kernels()
    games, n, m = payoffs.shape
    flat = np.ascontiguousarray(payoffs).reshape(games * n, m)
    low, high, total = np.empty((3, games * n))
    threads = max(1, min(processors(), flat.size // SHARE))
    edges = np.linspace(0, len(flat), threads + 1).astype(int)

    def work(share: tuple[int, int]) -> None:
        kernel(flat[slice(*share)], *(out[slice(*share)] for out in (low, high, total)))

    in_threads(work, list(pairwise(edges)))
    low, high, total = (out.reshape(games, n) for out in (low, high, total))
    return low, high, total


def row_bound(low: Matrix, high: Matrix) -> Matrix:
    """Upper bound on D of each game: the two largest oscillations of a row together."""
    oscillations = np.sort(high - low, axis=-1)[:, -2:]
    if oscillations.shape[-1] < 2:
        return np.zeros(len(low))
    return np.asarray(enlarged(np.sum(oscillations, axis=-1), 8))


def interaction(payoffs: Matrix, low: Matrix, high: Matrix) -> Matrix:
    """D of each game (games, n, m), rounded up; n²m/2 operations, fewer where rows differ in size.

    The pair of rows (i, k) cannot matter if their own oscillations add up to less than the best
    pair so far: in descending order most pairs never are looked at.
    """
    _, kernel = _kernels()
    oscillations = high - low
    order = np.argsort(-oscillations, axis=-1)
    best = np.empty(len(payoffs))
    kernel(np.ascontiguousarray(payoffs), order, oscillations, best)
    spread = np.max(high, axis=-1) - np.min(low, axis=-1)
    return interaction_above(best, spread, payoffs.shape[1:])


def interaction_above(best: Matrix, spread: Matrix, strategies: tuple[int, int]) -> Matrix:
    """D from its computed value: a player with one strategy has no differences to err in.

    Differences of payoffs round relative to themselves, and none exceeds the range of payoffs.
    """
    if min(strategies) == 1:
        return np.zeros_like(best)
    # Also where best is 0: rounding may have swallowed all of D.
    return np.asarray(plus_up(enlarged(best, 8), times(4 * EPS, spread)))


@lru_cache
def _kernels() -> tuple[Callable[..., None], Callable[..., None]]:
    """The two kernels, compiled or loaded from numba's cache on first use."""
    f8 = types.float64
    row = types.Array(f8, 1, "C")
    matrix = types.Array(f8, 2, "C", readonly=True)
    cube = types.Array(f8, 3, "C", readonly=True)
    order, oscillations = types.Array(types.int64, 2, "C"), types.Array(f8, 2, "C")
    return (
        compiled(survey_rows.py_func, types.void(matrix, row, row, row)),
        compiled(widest_pair.py_func, types.void(cube, order, oscillations, row)),
    )


@njit(error_model="numpy")
def survey_rows(rows: Any, low: Any, high: Any, total: Any) -> None:
    """Fill in the smallest, the largest and the sum of each row (compiled)."""
    wide_vectors()
    for i in range(rows.shape[0]):
        below, above, summed = -np.inf, -np.inf, 0.0
        for j in range(rows.shape[1]):
            value = rows[i, j]
            below = largest(below, -value)
            above = largest(above, value)
            summed = plus(summed, value)
        low[i], high[i], total[i] = -below, above, summed


@njit(error_model="numpy")
def widest_pair(payoffs: Any, order: Any, oscillations: Any, result: Any) -> None:
    """Fill in the largest oscillation of a difference of two rows of each game (compiled)."""
    wide_vectors()
    games, n, m = payoffs.shape
    for g in range(games):
        best = 0.0
        for p in range(n):
            i = order[g, p]
            for q in range(p + 1, n):
                k = order[g, q]
                if oscillations[g, i] + oscillations[g, k] <= best:
                    break
                below, above = -np.inf, -np.inf
                for j in range(m):
                    difference = payoffs[g, i, j] - payoffs[g, k, j]
                    below = largest(below, -difference)
                    above = largest(above, difference)
                best = max(best, above + below)
        result[g] = best
