"""Solve entropy-regularised zero-sum games, and prove how good the answer is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut._array import Array, quietly, to_host
from taut._bound import Bound, lp
from taut._checks import real_number, whole_number
from taut.games._answer import first_point, guarantees, returned, uniform, values
from taut.games._certificate import Certificate, check_damping, shaped, total_variation
from taut.games._game import Game, prepare
from taut.games._gap import judge
from taut.games._iterate import dsfp, predictive
from taut.games._newton import newton, persist
from taut.games._record import Record
from taut.games._run import Run
from taut.games._small import SMALL

METHODS = ("auto", "dsfp", "predictive", "newton")
BUDGET = 10_000  # iterations, where no certificate says how many are needed
SLOW = 0.05  # a round of plain iteration that leaves more of the gap than this is worth leaving


@dataclass(frozen=True, eq=False)
class Solution(Record):
    """A pair of strategies with a proof of its quality, for one game or each of a batch.

    The answer to one game of a batch is ``solution[i]``; ``to_dict()`` is fit for JSON.

    Attributes
    ----------
    x, y
        Mixed strategies of the row player, who pays, and of the column player, who receives.
    value, lower, upper
        Value of the regularised game, what the row player pays, and numbers between which it
        certainly lies, rounding included.
    payoff
        xᵀAy, without entropies.
    gap
        Duality gap of (x, y), each divided by its sum: an upper bound that includes rounding, in
        units of payoff.
    distance
        What follows from it (theorem gap): √(‖x − x*‖₁² + ‖y − y*‖₁²) is at most this, x and y
        divided by their sums, which are 1 but for rounding.
    exploitability
        max Aᵀx − min Ay, rounded up: what best answers win in the game without entropy.
    converged
        Whether ``gap`` is at most ``target``, the gap that was asked for.
    status
        "converged", or why not: "budget" (iterations ran out), "rounding" (the gap is as small as
        floating-point numbers let anybody prove), "stalled" (the method gave up) or "stopped" (by
        the callback).
    method, iterations, products
        Who found the point ("start" if nothing was better than where the run began), in how many
        iterations and matrix-vector products. A Newton step costs a factorisation besides.
    certificate
        What was known beforehand: see :class:`Certificate`.
    """

    x: Array
    y: Array
    value: Any
    lower: Any
    upper: Any
    payoff: Any
    gap: Any
    distance: Bound
    exploitability: Any
    converged: Any
    status: Any
    target: Any
    method: Any
    iterations: Any
    products: Any
    certificate: Certificate

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the batch; () for a single game."""
        return self.distance.shape

    def facts(self) -> list[tuple[str, str]]:
        """What there is to say about the answer to a single game, as names and texts."""
        self.single()
        asked = "as asked for" if self.converged else f"asked for {self.target:.3g}: {self.status}"
        certified = self.certificate
        plain = certified.iterations(self.target)
        rate = f"; rounds for this gap: at most {plain:.0f}" if plain < math.inf else ""
        return [
            ("row pays column", f"{self.value:.10g} with entropies, {self.payoff:.10g} without"),
            ("duality gap", f"at most {self.gap:.3g} ({asked})"),
            ("distance", f"x and y are within {self.distance.upper:.3g} in l1 (theorem gap)"),
            ("exploitability", f"at most {self.exploitability:.6g} in the game without entropy"),
            ("found by", f"{self.method}, {self.iterations} iterations, {self.products} products"),
            ("certificate", f"{certified}{rate}"),
        ]

    def __str__(self) -> str:
        if self.distance.shape:
            solved = np.count_nonzero(to_host(self.converged))
            worst = np.max(self.gap, initial=0.0)
            return f"{solved} of {np.size(self.gap)} games solved, largest gap {worst:.3g}"
        end = "" if self.converged else f", not the {self.target:.3g} asked for ({self.status})"
        return (
            f"value {self.value:.10g}, gap at most {self.gap:.3g}{end}; {self.method}, "
            f"{self.iterations} iterations, {self.products} products"
        )


@quietly
def solve(
    payoffs: Array,
    tau: Array,
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
    tau
        Temperature τ > 0 in units of payoff, one number or an array that broadcasts with the
        batch: several τ for one game give a batch of answers. The inverse λ = 1/τ has units
        1/payoff: multiply the payoffs by c, and τ must be multiplied by c.
    method
        "dsfp" (the double-softmax fixed point iteration of Nair's paper, plain iteration for
        short; certified where ``certificate.contracts``), "predictive" (certified for every τ,
        slower), "newton" (follows τ downwards), or "auto": plain iteration while it is fast, then
        Newton, and the predictive update where Newton gives up. The best point is kept, by its
        gap, so that nothing can do harm.
    tolerance
        The gap that is wanted, as a fraction of τ or of the range of the payoffs, whichever is
        smaller. The distance to the equilibrium is then at most √(2 tolerance).
    max_iterations
        By default what the certificate predicts, or 10,000 without one. A run that ends early says
        so in ``status``, and its gap is right all the same.
    damping
        α in (0, 1] of "dsfp": y ← (1 − α) y + α T(y).
    start
        The column player's first strategy, say the y of a nearby game; uniform by default.
    callback
        Called with iteration and best gap (of a batch: where it is furthest from its target) after
        each iteration; a true answer stops the run.

    Examples
    --------
    >>> solution = solve([[2.0, -1.0], [-1.0, 1.0]], tau=0.5)
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
        raise ValueError("damping belongs to method='dsfp'")
    game, kind = prepare(payoffs, tau)
    batch = tuple(kind.shape[:-2])
    certificate = total_variation(game, batch)
    target = _target(game, tolerance)
    limit = _limit(max_iterations, certificate, target, method, damping)
    # The predictive update's rate counts from the uniform strategies.
    both = method == "predictive" and start is None
    first = uniform(game) if both else first_point(game, start, batch)
    run = Run(game, first, target, limit=limit, watch=callback)
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


def _auto(run: Run) -> None:
    """Plain iteration while it is fast, Newton for the rest, and what converges always."""
    if max(run.game.payoffs.shape[1:]) > SMALL:  # else a few compiled Newton steps cost less
        dsfp(run, enough=lambda before, after: after > SLOW * before)
    persist(run)


def _target(game: Game, tolerance: float) -> np.ndarray:
    """The gap that is wanted of each game, in units of payoff."""
    tolerance = real_number(tolerance, name="tolerance")
    if not 0 < tolerance < math.inf:
        raise ValueError(f"tolerance must be a finite number > 0, got {tolerance}")
    tau, size = to_host(game.tau), 2 * to_host(game.largest)
    # A game whose payoffs are all the same has no scale of its own.
    return np.asarray(tolerance * np.where(size > 0, np.minimum(tau, size), tau))


def _limit(
    asked: int | None, certificate: Certificate, target: np.ndarray, method: str, damping: float
) -> np.ndarray:
    """Iterations that each game may take."""
    if asked is not None:
        return np.full(target.shape, whole_number(asked, name="max_iterations", least=0))
    if method not in ("dsfp", "predictive"):
        return np.full(target.shape, BUDGET)
    shape = np.shape(certificate.tau)
    needed = certificate.iterations(target.reshape(shape), method=method, damping=damping)
    needed = np.reshape(np.minimum(needed, 1e15), target.shape)
    return np.where(needed < 1e15, needed, BUDGET).astype(np.int64)


def _solution(run: Run, kind: Array, batch: tuple[int, ...], certificate: Certificate) -> Solution:
    """The best points in the caller's arrays, judged as they are returned."""
    game, found, status = run.game, run.best_gap, np.asarray(run.status())
    x, y, at = returned(game, run.best, kind, batch)
    if at is not run.best:
        found, run.products = to_host(judge(game, at).gaps), run.products + 2
        status = np.where((status == "converged") & (found > run.target), "rounding", status)
    distance = np.sqrt(2 * found / to_host(game.tau)) * (1 + 1e-15)
    below, above = guarantees(game, at)  # without the offset, which cancels
    lower, upper, payoff = values(game, at)
    numbers = {
        "value": lower + (upper - lower) / 2,
        "lower": lower,
        "upper": upper,
        "payoff": payoff,
        "gap": found,
        "exploitability": (above - below) * (1 + 1e-15),
        "converged": status == "converged",
        "status": status,
        "target": run.target,
        "method": np.asarray(run.methods),
        "iterations": run.iterations,
        "products": run.products,
    }
    distance = shaped(np.minimum(distance, math.sqrt(8.0)), batch)
    bound = Bound(
        0 * distance,
        distance,
        "upper",
        lp(1),
        "x and y over their sums",
        "gap",
        quantity="distance",
    )
    return Solution(
        x=x,
        y=y,
        distance=bound,
        certificate=certificate,
        **{name: shaped(part, batch) for name, part in numbers.items()},
    )
