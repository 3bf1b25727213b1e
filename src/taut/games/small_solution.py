"""The answer to one small game, put together with as little around its kernel as possible."""

from __future__ import annotations

from functools import partial

import numpy as np

from taut._base.array import Array
from taut._base.checks import finite_above_zero, real_number
from taut._base.rounding import over, root, up
from taut.games._solvers.newton_compiled import SMALL
from taut.games._solvers.one_small_game import solve_one
from taut.games._solvers.prepare import as_payoffs
from taut.games.certificate import total_variation_of_one
from taut.games.solution import Solution, distance_bound


def small_solution(
    payoffs: Array, temperature: Array, tolerance: float, limit: int
) -> Solution | None:
    """The solution by Newton's method, if this is one small game in float64 that it solves."""
    kind = as_payoffs(payoffs, name="payoffs")
    single = type(kind) is np.ndarray and kind.dtype == np.float64 and kind.ndim == 2
    if not single or max(kind.shape) > SMALL or not isinstance(temperature, (int, float)):
        return None
    tau = real_number(temperature, name="temperature")
    found = solve_one(kind, tau, finite_above_zero(tolerance, name="tolerance"), limit)
    if found is None:
        return None
    return Solution(
        x=found.x,
        y=found.y,
        value=found.lower + (found.upper - found.lower) / 2,
        lower=found.lower,
        upper=found.upper,
        payoff=found.payoff,
        gap=found.gap,
        distance=distance_bound(root(over(2 * found.gap, tau))),
        exploitability=up(found.above - found.below),
        converged=True,
        status="converged",
        target=found.target,
        method="newton" if found.steps else "start",
        iterations=found.steps,
        products=4 + 4 * found.steps if found.steps else 2,  # two for each of the points judged
        certificate=partial(total_variation_of_one, found.best, found.spread, tau, kind.shape),
    )
