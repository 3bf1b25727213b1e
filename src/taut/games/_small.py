"""Newton's method for small games, compiled: the same path as :mod:`taut.games._newton`.

A small game takes thirty array operations a step, whose overhead is all the time it takes; here a
game of five strategies takes some twenty microseconds. The kernel only proposes strategies: they
are judged, like all others, in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, types

from taut._compile import compiled
from taut.games._path import GENTLE, IDLE, LONGEST, QUICK, RISE, ROUGH, SHORTEST, STEPS, STRIDE

Host = np.ndarray[Any, np.dtype[Any]]

SMALL = 48  # strategies of the larger side, up to which this is faster than array operations


def propose(
    payoffs: Host, tau: Host, interaction: Host, target: Host, limit: Host
) -> tuple[Host, Host, Host]:
    """Log-strategies of each game and the steps they took; it may give up, in time or early.

    ``target`` is the wanted gap in units of payoff, ``limit`` the number of steps.
    """
    games, n, m = payoffs.shape
    flip = n < m  # the linear systems have the size of the second player
    if flip:
        payoffs = -np.swapaxes(payoffs, -1, -2)
    log_x, log_y = np.empty((games, max(n, m))), np.empty((games, min(n, m)))
    steps = np.empty(games, dtype=np.int64)
    fields = (tau, interaction, target)
    numbers = (np.ascontiguousarray(part, dtype=np.float64) for part in fields)
    _kernel()(np.ascontiguousarray(payoffs), *numbers, limit.astype(np.int64), log_x, log_y, steps)
    return (log_y, log_x, steps) if flip else (log_x, log_y, steps)


@lru_cache
def _kernel() -> Callable[..., None]:
    """The kernel, compiled or loaded from numba's cache on first use."""
    f8, vector = types.float64, types.Array(types.float64, 1, "C")
    matrix, whole = types.Array(f8, 2, "C"), types.Array(types.int64, 1, "C")
    cube = types.Array(f8, 3, "C", readonly=True)
    signature = types.void(cube, vector, vector, vector, whole, matrix, matrix, whole)
    return compiled(_propose, signature)


@njit(error_model="numpy")
def _dot(a: Any, b: Any) -> float:
    """The inner product; numba's own would need scipy."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(error_model="numpy")
def _copy(source: Any, target: Any) -> None:
    """Copy a vector; slices would take seconds longer to compile."""
    for i in range(source.size):
        target[i] = source[i]


@njit(error_model="numpy")
def _mix(logs: Any, weights: Any) -> None:
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
def _move(logs: Any, weights: Any, step: Any, level: float) -> None:
    """Take a step, the rise of strategies bounded as in :func:`taut.games._newton._moved`."""
    mean = _dot(weights, step)
    for i in range(logs.size):
        logs[i] += min(step[i] - mean, max(level - logs[i], RISE))
    _mix(logs, weights)


@njit(error_model="numpy")
def _answer(products: Any, tau: float, logs: Any, weights: Any) -> None:
    """The best answer σ(products/τ)."""
    for i in range(logs.size):
        logs[i] = products[i] / tau
    _mix(logs, weights)


@njit(error_model="numpy")
def _divergence(logs: Any, weights: Any, other_logs: Any, other_weights: Any) -> float:
    """KL without cancellation, as in :func:`taut.games._gap.divergence`."""
    total = 0.0
    for i in range(logs.size):
        d = logs[i] - other_logs[i]
        if d < -1:
            total += other_weights[i] + weights[i] * (d - 1)
        else:
            total += weights[i] * (np.expm1(-d) + d)
    return total


@njit(error_model="numpy")
def _products(A: Any, x: Any, y: Any, costs: Any, gains: Any) -> None:
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


@njit(error_model="numpy")
def _direction(
    A: Any, tau: float, x: Any, y: Any, gains: Any, rx: Any, ry: Any, work: Any, dx: Any, dy: Any
) -> None:
    """Newton's step by Cholesky's factorisation of 1 + SᵀAᵀXAS/τ² (:mod:`_direction`)."""
    n, m = A.shape
    mean = _dot(x, rx)
    for j in range(m):
        dy[j] = ry[j]
    for i in range(n):
        weight = x[i] * (rx[i] - mean) / tau
        for j in range(m):
            dy[j] += A[i, j] * weight
    # work = centred rows √x (A − gains)/τ, less their mean under y, times √y.
    for j in range(m):
        for k in range(j + 1):
            work[j, k] = 1.0 if j == k else 0.0
    row = np.empty(m)
    spread = np.empty(m)
    for i in range(n):
        root = np.sqrt(x[i]) / tau
        centre = 0.0
        for j in range(m):
            row[j] = (A[i, j] - gains[j]) * root
            centre += row[j] * y[j]
        for j in range(m):
            spread[j] = (row[j] - centre) * np.sqrt(y[j])
        for j in range(m):
            for k in range(j + 1):
                work[j, k] += spread[j] * spread[k]
    mean = _dot(y, dy)
    z = np.empty(m)
    for j in range(m):  # factorise and solve forwards
        for k in range(j + 1):
            total = work[j, k]
            for p in range(k):
                total -= work[j, p] * work[k, p]
            work[j, k] = np.sqrt(total) if j == k else total / work[k, k]
        total = np.sqrt(y[j]) * (dy[j] - mean)
        for p in range(j):
            total -= work[j, p] * z[p]
        z[j] = total / work[j, j]
    for j in range(m - 1, -1, -1):  # and backwards
        total = z[j]
        for p in range(j + 1, m):
            total -= work[p, j] * z[p]
        z[j] = total / work[j, j]
    for i in range(n):  # dy = rhs − G S z
        root = np.sqrt(x[i]) / tau
        centre, image = 0.0, 0.0
        for j in range(m):
            row[j] = (A[i, j] - gains[j]) * root
            centre += row[j] * y[j]
        for j in range(m):
            image += (row[j] - centre) * np.sqrt(y[j]) * z[j]
        for j in range(m):
            dy[j] -= row[j] * image
    mean = _dot(y, dy)
    for i in range(n):
        total = rx[i]
        for j in range(m):
            total -= A[i, j] * y[j] * (dy[j] - mean) / tau
        dx[i] = total


def _propose(
    payoffs: Any,
    taus: Any,
    interactions: Any,
    targets: Any,
    limits: Any,
    out_x: Any,
    out_y: Any,
    out_steps: Any,
) -> None:
    """Follow every game down to its temperature (compiled)."""
    games, n, m = payoffs.shape
    x, y, bx, by = np.empty(n), np.empty(m), np.empty(n), np.empty(m)
    lx, ly, ax, ay = np.empty(n), np.empty(m), np.empty(n), np.empty(m)
    costs, gains, dx, dy = np.empty(n), np.empty(m), np.empty(n), np.empty(m)
    base_x, base_y, best_x, best_y = np.empty(n), np.empty(m), np.empty(n), np.empty(m)
    work = np.empty((m, m))
    for g in range(games):
        A, goal, spent = payoffs[g], taus[g], 0
        tau = max(goal, interactions[g] / GENTLE)
        base = max(interactions[g], 2 * tau)
        for logs in (lx, base_x):
            for i in range(n):
                logs[i] = 0.0
        for logs in (ly, base_y):
            for j in range(m):
                logs[j] = 0.0
        stride, steps, idle, least, best = STRIDE, 0, 0, np.inf, np.inf
        _mix(lx, x)
        _mix(ly, y)
        _products(A, x, y, costs, gains)
        _copy(lx, best_x)
        _copy(ly, best_y)
        while spent < limits[g]:
            _answer(costs, tau, ax, bx)
            _answer(gains, tau, ay, by)
            for i in range(n):
                ax[i] -= lx[i]
            for j in range(m):
                ay[j] -= ly[j]
            _direction(A, tau, x, y, gains, ax, ay, work, dx, dy)
            level = np.log(tau / interactions[g]) if interactions[g] > 0 else 0.0
            _move(lx, x, dx, level)
            _move(ly, y, dy, level)
            _products(A, x, y, costs, gains)
            _answer(costs, tau, ax, bx)
            _answer(gains, tau, ay, by)
            relative = _divergence(lx, x, ax, bx) + _divergence(ly, y, ay, by)
            spent += 1
            steps += 1
            halved = relative < 0.5 * least
            idle = 0 if halved else idle + 1
            least = relative if halved else least
            if tau == goal:
                if relative < best:
                    best = relative
                    _copy(lx, best_x)
                    _copy(ly, best_y)
                if relative * goal <= 0.5 * targets[g]:
                    break
            elif relative <= ROUGH:  # this temperature is solved: lower it
                stride = max(stride**1.5, LONGEST) if steps <= QUICK else stride
                base = tau
                _copy(lx, base_x)
                _copy(ly, base_y)
                tau = max(goal, tau * stride)
                steps, idle, least = 0, 0, np.inf
                continue
            if steps > STEPS or idle > IDLE or not np.isfinite(relative):
                tau = np.sqrt(tau * base)
                stride = tau / base
                if stride > SHORTEST:
                    break
                _copy(base_x, lx)
                _copy(base_y, ly)
                _mix(lx, x)
                _mix(ly, y)
                _products(A, x, y, costs, gains)
                steps, idle, least = 0, 0, np.inf
        _copy(best_x, out_x[g])
        _copy(best_y, out_y[g])
        out_steps[g] = spent
