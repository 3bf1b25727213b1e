"""One small game from payoffs to proof in a single compiled call.

Array operations on five numbers take as long as on five thousand: of a small game they would be
nearly all the time. The formulas and the steps are those of the other games; whatever is not solved
as asked, or is out of range, is left to them and to their messages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types

from taut._base.compiled import compiled
from taut._base.rounding import EPS
from taut.games._solvers.compiled_strategies import answer, divergence, dot, mix, products
from taut.games._solvers.formulas import (
    centre,
    error_of_guarantees,
    error_of_logits,
    gap_above,
    size_fits,
    temperature_fits,
    value_sides,
    wanted_gap,
)
from taut.games._solvers.interaction import survey_rows, widest_pair
from taut.games._solvers.newton_compiled import follow

Host = np.ndarray[Any, np.dtype[Any]]


class SolvedGame(NamedTuple):
    """Strategies of one game that was solved as asked, and what is proved of them.

    ``below`` and ``above`` are what the strategies guarantee without entropy and offset, ``best``
    is D as computed and ``spread`` the range of the payoffs.
    """

    x: Host
    y: Host
    lower: float
    upper: float
    payoff: float
    gap: float
    below: float
    above: float
    target: float
    steps: int
    best: float
    spread: float


def solve_one(payoffs: Host, tau: float, tolerance: float, limit: int) -> SolvedGame | None:
    """Solve a game (n, m) to a gap of ``tolerance``; None if it cannot be done here."""
    n, m = payoffs.shape
    x, y = np.empty(n), np.empty(m)
    solved, *numbers = _kernel()(np.ascontiguousarray(payoffs), tau, tolerance, limit, x, y)
    return SolvedGame(x, y, *numbers) if solved else None


@lru_cache
def _kernel() -> Callable[..., Any]:
    """The kernel, compiled or loaded from numba's cache on first use."""
    f8, i8, vector = types.float64, types.int64, types.Array(types.float64, 1, "C")
    matrix = types.Array(f8, 2, "C", readonly=True)
    result = types.Tuple((types.boolean, *[f8] * 7, i8, f8, f8))  # type: ignore[no-untyped-call]
    return compiled(_solve_one, result(matrix, f8, f8, i8, vector, vector))


@njit(error_model="numpy")
def _gap(A: Any, tau: float, error: float, first: Any, second: Any) -> Any:
    """The duality gap of a point from above; fills in the products and the answers."""
    lx, x, costs, ax, bx = first
    ly, y, gains, ay, by = second
    products(A, x, y, costs, gains)
    answer(costs, tau, ax, bx)
    answer(gains, tau, ay, by)
    kl_x, kl_y = divergence(lx, x, ax, bx), divergence(ly, y, ay, by)
    # Rounding can make a divergence negative; NaN stays.
    kl_x, kl_y = 0.0 if kl_x < 0 else kl_x, 0.0 if kl_y < 0 else kl_y
    return gap_above(tau, error, kl_x, kl_y)


@njit(error_model="numpy")
def _soft_maximum(logits: Any, tau: float) -> Any:
    """τ log Σ exp(logits/τ)."""
    top, total = logits[0], 0.0
    for i in range(1, logits.size):
        top = max(top, logits[i])
    for i in range(logits.size):
        total += np.exp((logits[i] - top) / tau)
    return top + tau * np.log(total)


@njit(error_model="numpy")
def _interaction(A: Any, turned: Any) -> Any:
    """D as computed, from the pairs of strategies of the player who has fewer."""
    short = A if A.shape[0] <= A.shape[1] else turned
    n, m = short.shape
    result, unknown = np.zeros(1), np.full((1, n), np.inf)  # so few pairs are not worth ordering
    widest_pair(short.reshape(1, n, m), np.arange(n).reshape(1, n), unknown, result)
    return result[0]


def _solve_one(payoffs: Any, tau: float, tolerance: float, limit: int, x: Any, y: Any) -> Any:
    """Centre, follow, judge (compiled); the numbers of :class:`SolvedGame` after success."""
    n, m = payoffs.shape
    low, high, sums = np.empty(n), np.empty(n), np.empty(n)
    survey_rows(payoffs, low, high, sums)
    bottom, top, finite = low[0], high[0], True
    for i in range(n):
        bottom, top = min(bottom, low[i]), max(top, high[i])
        finite &= np.isfinite(sums[i])
    offset, size = centre(bottom, top)
    none = (False, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0)
    in_range = finite & size_fits(max(abs(bottom), abs(top))) & temperature_fits(tau, size)
    if not in_range:
        return none
    A, turned = np.empty((n, m)), np.empty((m, n))
    for i in range(n):
        for j in range(m):
            A[i, j] = payoffs[i, j] - offset
            turned[j, i] = A[i, j]
    error, target = error_of_logits(n, m, size / tau, EPS), wanted_gap(tolerance, tau, size)
    best, spent = _interaction(A, turned), 0
    first = (np.zeros(n), x, np.empty(n), np.empty(n), np.empty(n))
    second = (np.zeros(m), y, np.empty(m), np.empty(m), np.empty(m))
    mix(first[0], x)
    mix(second[0], y)
    products(A, x, y, first[2], second[2])
    answer(first[2], tau, first[0], x)  # the row player's answer to the uniform strategy
    gap = _gap(A, tau, error, first, second)
    if not gap <= target:
        if n < m:
            spent = follow(-turned, tau, best, target, limit, second[0], first[0])
        else:
            spent = follow(A, tau, best, target, limit, first[0], second[0])
        mix(first[0], x)
        mix(second[0], y)
        gap = _gap(A, tau, error, first, second)
        if not gap <= target:
            return none
    costs, gains = first[2], second[2]  # costs are −Ay: what the row player maximises
    pays = _soft_maximum(gains, tau) + tau * dot(x, first[0])
    earns = -tau * dot(y, second[0]) - _soft_maximum(costs, tau)
    lower, upper = value_sides(earns, pays, offset, tau, error, n, m)
    below, above = -costs[0], gains[0]
    for i in range(n):
        below = min(below, -costs[i])
    for j in range(m):
        above = max(above, gains[j])
    edge = error_of_guarantees(n, m, size)
    below, above, payoff = below - edge, above + edge, offset - dot(x, costs)
    return (True, lower, upper, payoff, gap, below, above, target, spent, best, top - bottom)
