"""Solve entropy-regularised zero-sum games, and prove how good the answer is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taut._base.array import Array, quietly, to_host
from taut._base.checks import finite_above_zero, whole_number
from taut._base.rounding import over, root, up
from taut.games._solvers.bookkeeping import Bookkeeping
from taut.games._solvers.duality_gap import judge
from taut.games._solvers.first_order import dsfp, predictive
from taut.games._solvers.formulas import wanted_gap
from taut.games._solvers.game import Game
from taut.games._solvers.newton import newton, persist
from taut.games._solvers.newton_compiled import SMALL
from taut.games._solvers.prepare import prepare
from taut.games._solvers.strategies import first_point, guarantees, returned, uniform, values
from taut.games.certificate import (
    ContractionCertificate,
    check_damping,
    shaped,
    total_variation_of,
)
from taut.games.small_solution import small_solution
from taut.games.solution import Solution, distance_bound

METHODS = ("auto", "dsfp", "predictive", "newton")
BUDGET = 10_000  # iterations, where no certificate says how many are needed
SLOW = 0.05  # a round of plain iteration that leaves more of the gap than this is worth leaving


@quietly
def solve(
    payoffs: Array,
    temperature: Array,
    *,
    method: str = "auto",
    tolerance: float = 1e-10,
    max_iterations: int | None = None,
    damping: float = 1.0,
    start: Array | None = None,
    callback: Callable[[int, float], object] | None = None,
) -> Solution:
    """Solve min_x max_y xᵀAy − τH(x) + τH(y): the logit equilibrium of a zero-sum game.

    The row player **pays** and minimises. The matrices of Nashpy and Gambit are what the row player
    gains: pass −A, or ``read(game).costs``.

    Parameters
    ----------
    payoffs
        A, of shape (..., n, m): the row player pays xᵀAy to the column player. NumPy, PyTorch, JAX
        or lists. Everything is computed in float64, and nothing is differentiated; float32 payoffs
        get float32 strategies, whose gap is what is reported.
    temperature
        Temperature τ > 0 in units of payoff, one number or an array that broadcasts with the
        batch: several τ for one game give a batch of answers. The inverse λ = 1/τ has units
        1/payoff: multiply the payoffs by c, and τ must be multiplied by c.
    method
        "dsfp" (the double-softmax fixed point iteration of Nair 2025, plain iteration for
        short; certified where ``certificate.contracts``), "predictive" (certified for every τ,
        slower), "newton" (follows τ downwards), or "auto": plain iteration while it is fast, then
        Newton, and the predictive update where Newton gives up. The best point is kept, by its
        gap, so that nothing can do harm.
    tolerance
        The gap that is wanted, as a fraction of τ or of the range of the payoffs, whichever is
        smaller. The distance to the equilibrium is then at most √(2·tolerance).
    max_iterations
        By default what the certificate predicts, or 10,000 without one. A run that ends early says
        so in ``status``, and its gap is right all the same.
    damping
        α in (0, 1] of "dsfp": y ← (1 − α) y + α T(y).
    start
        The column player's first strategy, say the y of a nearby game; uniform by default.
    callback
        Called with iteration and best gap (of a batch: where it is furthest from its target) after
        each iteration; return a true value to stop.

    Examples
    --------
    >>> solution = solve([[2.0, -1.0], [-1.0, 1.0]], temperature=0.5)
    >>> print(solution)
    value 0.207..., gap at most ...; newton, ... iterations, ... products
    >>> solution.x.round(4)
    array([0.3796, 0.6204])
    >>> solution.certificate.contracts, solution.converged
    (False, True)
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    damping = check_damping(damping)
    if damping != 1 and method != "dsfp":
        raise ValueError("damping is only for method='dsfp'")
    if method in ("auto", "newton") and start is None and callback is None:
        found = small_solution(payoffs, temperature, tolerance, _given(max_iterations))
        if found is not None:
            return found
    game, kind = prepare(payoffs, temperature)
    batch = tuple(kind.shape[:-2])
    certificate = total_variation_of(game, batch)
    target = _target(game, tolerance)
    limit = _limit(max_iterations, certificate, target, method, damping)
    # The predictive update's rate counts from the uniform strategies.
    both = method == "predictive" and start is None
    first = uniform(game) if both else first_point(game, start, batch)
    run = Bookkeeping(game, first, target, limit=limit, watch=callback)
    run.products += 2
    if method == "dsfp":
        dsfp(run, damping=damping)
    elif method == "predictive":
        predictive(run)
    elif method == "newton":
        newton(run)
    else:
        _auto(run)
    return _solution(run, kind, batch, certificate)


def _auto(run: Bookkeeping) -> None:
    """Plain iteration while it is fast, Newton for the rest, and what converges always."""
    if max(run.game.payoffs.shape[1:]) > SMALL:  # else a few compiled Newton steps cost less
        dsfp(run, enough=lambda before, after: after > SLOW * before)
    persist(run)


def _target(game: Game, tolerance: float) -> np.ndarray:
    """The gap that is wanted of each game, in units of payoff."""
    tolerance = finite_above_zero(tolerance, name="tolerance")
    return np.asarray(wanted_gap(tolerance, to_host(game.temperature), to_host(game.largest)))


def _limit(
    asked: int | None,
    certificate: ContractionCertificate,
    target: np.ndarray,
    method: str,
    damping: float,
) -> np.ndarray:
    """Iterations that each game may take."""
    if asked is not None or method not in ("dsfp", "predictive"):
        return np.full(target.shape, _given(asked))
    shape = np.shape(certificate.temperature)
    needed = certificate.iterations(target.reshape(shape), method=method, damping=damping)
    needed = np.reshape(np.minimum(needed, 1e15), target.shape)
    return np.where(needed < 1e15, needed, BUDGET).astype(np.int64)


def _given(asked: int | None) -> int:
    """Iterations that were asked for, or the budget without a certificate."""
    if asked is None:
        return BUDGET
    return whole_number(asked, name="max_iterations", least=0)


def _solution(
    run: Bookkeeping, kind: Array, batch: tuple[int, ...], certificate: ContractionCertificate
) -> Solution:
    """The best points in the caller's arrays, judged as they are returned."""
    game, found, status = run.game, run.best_gap, np.asarray(run.status())
    x, y, at = returned(game, run.best, kind, batch)
    if at is not run.best:
        found, run.products = to_host(judge(game, at).gaps), run.products + 2
        status = np.where((status == "converged") & (found > run.target), "rounding", status)
    distance = root(over(2 * found, to_host(game.temperature)))
    below, above = guarantees(game, at)  # without the offset, which cancels
    lower, upper, payoff = values(game, at)
    numbers = {
        "value": lower + (upper - lower) / 2,
        "lower": lower,
        "upper": upper,
        "payoff": payoff,
        "gap": found,
        "exploitability": up(above - below),
        "converged": status == "converged",
        "status": status,
        "target": run.target,
        "method": np.asarray(run.methods),
        "iterations": run.iterations,
        "products": run.products,
    }
    return Solution(
        x=x,
        y=y,
        distance=distance_bound(shaped(distance, batch)),
        certificate=certificate,
        **{name: shaped(part, batch) for name, part in numbers.items()},
    )
