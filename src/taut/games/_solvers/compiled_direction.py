"""Newton's direction for one small game: :mod:`taut.games._solvers.direction` in compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut.games._solvers.compiled_strategies import dot


@njit(error_model="numpy")
def direction(
    A: Any, tau: float, x: Any, y: Any, gains: Any, rx: Any, ry: Any, work: Any, dx: Any, dy: Any
) -> None:
    """Fill in the step (dx, dy) for the residuals rx and ry; ``work`` is an m × m matrix.

    By Cholesky's factorisation of 1 + SᵀAᵀXAS/τ², with S = Diag(√y)(1 − √y√yᵀ).
    """
    n, m = A.shape
    mean = dot(x, rx)
    for j in range(m):
        dy[j] = ry[j]
    for i in range(n):
        weight = x[i] * (rx[i] - mean) / tau
        for j in range(m):
            dy[j] += A[i, j] * weight
    _gram(A, tau, x, y, gains, work)
    z = _solve(work, y, dy)
    row = np.empty(m)
    for i in range(n):  # dy = rhs − G S z
        centre, image = _row(A, i, tau, x, y, gains, row), 0.0
        for j in range(m):
            image += (row[j] - centre) * np.sqrt(y[j]) * z[j]
        for j in range(m):
            dy[j] -= row[j] * image
    mean = dot(y, dy)
    for i in range(n):
        total = rx[i]
        for j in range(m):
            total -= A[i, j] * y[j] * (dy[j] - mean) / tau
        dx[i] = total


@njit(error_model="numpy")
def _row(A: Any, i: int, tau: float, x: Any, y: Any, gains: Any, row: Any) -> float:
    """Fill in row i of Diag(√x)(A − gains)/τ; its mean under y."""
    root = np.sqrt(x[i]) / tau
    centre = 0.0
    for j in range(row.size):
        row[j] = (A[i, j] - gains[j]) * root
        centre += row[j] * y[j]
    return centre


@njit(error_model="numpy")
def _gram(A: Any, tau: float, x: Any, y: Any, gains: Any, work: Any) -> None:
    """Fill in the lower half of 1 + SᵀAᵀXAS/τ²."""
    n, m = A.shape
    for j in range(m):
        for k in range(j + 1):
            work[j, k] = 1.0 if j == k else 0.0
    row = np.empty(m)
    spread = np.empty(m)
    for i in range(n):
        centre = _row(A, i, tau, x, y, gains, row)
        for j in range(m):
            spread[j] = (row[j] - centre) * np.sqrt(y[j])
        for j in range(m):
            for k in range(j + 1):
                work[j, k] += spread[j] * spread[k]


@njit(error_model="numpy")
def _solve(work: Any, y: Any, rhs: Any) -> Any:
    """Solve for z with the right side Sᵀrhs; ``work`` becomes its Cholesky factor."""
    m = y.size
    mean = dot(y, rhs)
    z = np.empty(m)
    for j in range(m):  # factorise and solve forwards
        for k in range(j + 1):
            total = work[j, k]
            for p in range(k):
                total -= work[j, p] * work[k, p]
            work[j, k] = np.sqrt(total) if j == k else total / work[k, k]
        total = np.sqrt(y[j]) * (rhs[j] - mean)
        for p in range(j):
            total -= work[j, p] * z[p]
        z[j] = total / work[j, j]
    for j in range(m - 1, -1, -1):  # and backwards
        total = z[j]
        for p in range(j + 1, m):
            total -= work[p, j] * z[p]
        z[j] = total / work[j, j]
    return z
