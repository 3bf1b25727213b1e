"""Newton's method for small games, compiled: the same path as :mod:`taut.games._solvers.newton`.

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

from taut._base.compiled import compiled
from taut.games._solvers.compiled_direction import direction
from taut.games._solvers.compiled_strategies import answer, copy, divergence, mix, move, products
from taut.games._solvers.temperature_path import (
    GENTLE,
    IDLE,
    LONGEST,
    QUICK,
    ROUGH,
    SHORTEST,
    STEPS,
    STRIDE,
)

Host = np.ndarray[Any, np.dtype[Any]]

SMALL = 48  # strategies of the larger side, up to which this is faster than array operations


def propose(
    payoffs: Host, tau: Host, interaction: Host, target: Host, limit: Host
) -> tuple[Host, Host, Host]:
    """Log-strategies of each game and the steps they took; it may give up, in time or early.

    ``target`` is the wanted gap in units of payoff, ``limit`` the number of steps.
    """
    games, n, m = payoffs.shape
    flip = n < m
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
def _newton_step(A: Any, tau: float, level: float, first: Any, second: Any, work: Any) -> float:
    """Move both players by one step; the gap afterwards, as a part of the temperature.

    A player is log-probabilities, probabilities, those of its answer, what it maximises, a step.
    """
    lx, x, ax, bx, costs, dx = first
    ly, y, ay, by, gains, dy = second
    answer(costs, tau, ax, bx)
    answer(gains, tau, ay, by)
    for i in range(lx.size):
        ax[i] -= lx[i]
    for j in range(ly.size):
        ay[j] -= ly[j]
    direction(A, tau, x, y, gains, ax, ay, work, dx, dy)
    move(lx, x, dx, level)
    move(ly, y, dy, level)
    products(A, x, y, costs, gains)
    answer(costs, tau, ax, bx)
    answer(gains, tau, ay, by)
    return divergence(lx, x, ax, bx) + divergence(ly, y, ay, by)


@njit(error_model="numpy")
def _place(A: Any, log_x: Any, log_y: Any, first: Any, second: Any) -> None:
    """Put both players at these log-probabilities, which need not be normalised."""
    copy(log_x, first[0])
    copy(log_y, second[0])
    mix(first[0], first[1])
    mix(second[0], second[1])
    products(A, first[1], second[1], first[4], second[4])


@njit(error_model="numpy")
def follow(
    A: Any, goal: float, interaction: float, target: float, limit: int, out_x: Any, out_y: Any
) -> int:
    """Follow one game down to its temperature; the steps that it took.

    ``A`` has at least as many rows as columns: the linear systems have the size of the latter.
    """
    n, m = A.shape
    first = (np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n))
    second = (np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m))
    base_x, base_y = np.zeros(n), np.zeros(m)
    work = np.empty((m, m))
    tau, spent = max(goal, interaction / GENTLE), 0
    base = max(interaction, 2 * tau)
    stride, steps, idle, least, best = STRIDE, 0, 0, np.inf, np.inf
    _place(A, base_x, base_y, first, second)
    copy(first[0], out_x)
    copy(second[0], out_y)
    while spent < limit:
        level = np.log(tau / interaction) if interaction > 0 else 0.0
        relative = _newton_step(A, tau, level, first, second, work)
        spent += 1
        steps += 1
        halved = relative < 0.5 * least
        idle = 0 if halved else idle + 1
        least = relative if halved else least
        if tau == goal:
            if relative < best:
                best = relative
                copy(first[0], out_x)
                copy(second[0], out_y)
            if relative * goal <= 0.5 * target:
                break
        elif relative <= ROUGH:  # this temperature is solved: lower it
            stride = max(stride**1.5, LONGEST) if steps <= QUICK else stride
            base = tau
            copy(first[0], base_x)
            copy(second[0], base_y)
            tau = max(goal, tau * stride)
            steps, idle, least = 0, 0, np.inf
            continue
        if steps > STEPS or idle > IDLE or not np.isfinite(relative):
            tau = np.sqrt(tau * base)
            stride = tau / base
            if stride > SHORTEST:
                break
            _place(A, base_x, base_y, first, second)
            steps, idle, least = 0, 0, np.inf
    return spent


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
    for g in range(payoffs.shape[0]):
        out_steps[g] = follow(
            payoffs[g], taus[g], interactions[g], targets[g], limits[g], out_x[g], out_y[g]
        )
