"""Annealing: follow the temperature downwards to a Nash equilibrium of the game without entropy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from taut._base.array import Array, eps_of, namespace, quietly
from taut._base.checks import finite_above_zero, whole_number
from taut._base.rounding import up
from taut.games._solvers.bookkeeping import Bookkeeping
from taut.games._solvers.game import Game
from taut.games._solvers.newton import newton, persist
from taut.games._solvers.prepare import prepare
from taut.games._solvers.strategies import first_point, guarantees, returned
from taut.games.answer import Answer

ROUGH = 1e-3  # part of τ to which an equilibrium on the way is solved
STRIDE = 0.2
PATIENCE = 500  # iterations that a temperature may take
LOWEST = 1e-12  # of D: below, rounding hides what the strategies are


@dataclass(frozen=True, eq=False)
class Annealed(Answer):
    """An approximate Nash equilibrium, for one game or each of a batch.

    The answer to one game of a batch is ``nash[i]``; ``to_dict()`` is fit for JSON.

    Attributes
    ----------
    x, y
        Mixed strategies of the row player, who pays, and of the column player, who receives.
    lower, upper
        The value of the game, what the row player pays, lies between them, rounding included.
    exploitability
        max Aᵀx − min Ay, rounded up: neither player can gain more than this by deviating.
    converged, status, target
        Whether the exploitability that was asked for, ``target``, was reached: "converged", or
        "budget" (iterations ran out), "rounding" (no lower temperature helps) or "stopped".
    temperature
        The temperature of the logit equilibrium that x and y approximate.
    iterations, products
        What it cost: iterations, and matrix-vector products.
    """

    x: Array
    y: Array
    lower: Any
    upper: Any
    exploitability: Any
    converged: Any
    status: Any
    target: Any
    temperature: Any
    iterations: Any
    products: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the batch; () for a single game."""
        return np.shape(self.converged)

    def facts(self) -> list[tuple[str, str]]:
        """The answer to a single game in words, as pairs of name and text."""
        self.single()
        asked = "as asked for" if self.converged else f"asked for {self.target:.3g}: {self.status}"
        return [
            ("row pays column", f"between {self.lower:.12g} and {self.upper:.12g}"),
            ("exploitability", f"at most {self.exploitability:.3g} ({asked})"),
            (
                "found by",
                f"annealing to temperature {self.temperature:.3g}, {self.iterations} iterations, "
                f"{self.products} products",
            ),
        ]

    def __str__(self) -> str:
        if self.shape:
            return (
                f"{np.count_nonzero(self.converged)} of {np.size(self.converged)} games solved, "
                f"largest exploitability {np.max(self.exploitability, initial=0.0):.3g}"
            )
        end = "" if self.converged else f", not the {self.target:.3g} asked for ({self.status})"
        return (
            f"value between {self.lower:.10g} and {self.upper:.10g}, exploitability at most "
            f"{self.exploitability:.3g}{end}; temperature {self.temperature:.3g}, "
            f"{self.iterations} iterations"
        )


def anneal(
    payoffs: Array,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 10_000,
    callback: Callable[[float, float], object] | None = None,
) -> Annealed:
    """Find a Nash equilibrium of a zero-sum game by following logit equilibria as τ → 0.

    The row player **pays** and minimises: pass −A for a matrix of what the row player gains. Of
    many equilibria it finds one in the relative interior of their set. The answer is judged by its
    exploitability, into which no argument about τ enters.

    Parameters
    ----------
    payoffs
        A, of shape (..., n, m): the row player pays xᵀAy to the column player.
    tolerance
        Exploitability that is wanted, as a fraction of the range of the payoffs.
    max_iterations
        For each game, over all temperatures.
    callback
        Called with τ and exploitability at each temperature; return a true value to stop.

    Examples
    --------
    >>> nash = anneal([[0.0, 2.0, -1.0], [-2.0, 0.0, 1.0], [1.0, -1.0, 0.0]])
    >>> nash.x.round(4), nash.converged
    (array([0.25, 0.25, 0.5 ]), True)
    """
    tolerance = finite_above_zero(tolerance, name="tolerance")
    limit = whole_number(max_iterations, name="max_iterations", least=0)
    game, kind = prepare(payoffs, 1.0, own_scale=True)
    batch = tuple(kind.shape[:-2])
    each = (game.take(np.asarray([k])) for k in range(game.temperature.shape[0]))
    found = [_anneal_one(one, kind, tolerance, limit, callback) for one in each]
    if not batch:
        return found[0]
    columns = {f.name: [getattr(one, f.name) for one in found] for f in fields(Annealed)}
    stack = namespace(kind).stack
    x, y = (stack(columns.pop(name)).reshape((*batch, -1)) for name in ("x", "y"))
    return Annealed(x, y, **{k: np.asarray(v).reshape(batch) for k, v in columns.items()})


@quietly
def _anneal_one(
    game: Game,
    kind: Array,
    tolerance: float,
    limit: int,
    callback: Callable[[float, float], object] | None,
) -> Annealed:
    """Anneal a single game; the strategies come in ``kind``'s library and precision."""
    largest = float(game.largest[0])
    offset = float(game.offset[0])
    # Payoffs that are all the same have no range: there only rounding is left.
    rounding = eps_of(game.temperature) * (sum(game.payoffs.shape[1:]) + 16) * largest
    target = max(tolerance * 2 * largest, 8 * rounding, 1e-300)
    size = max(float(game.interaction[0]), 2 * target)
    temperature, iterations, products = size / 4, 0, 2
    at = first_point(_at(game, temperature), None, ())
    solved_at: float | None = None
    best: Annealed | None = None
    while True:
        level = _at(game, temperature)
        budget = np.asarray([min(limit - iterations, PATIENCE)])
        run = Bookkeeping(level, at, np.asarray([ROUGH * temperature]), limit=budget)
        if solved_at is not None:
            newton(run, solved_at=np.asarray([solved_at]))
        persist(run)
        iterations, products = iterations + int(run.iterations[0]), products + int(run.products[0])
        x, y, at = returned(level, run.best, kind, ())
        below, above = (float(side[0]) for side in guarantees(level, at))
        exploited = up(above - below)
        if best is None or exploited < best.exploitability:
            # The offset rounds with the sum, so it must not enter the exploitability.
            edge = 4 * eps_of(game.temperature) * (abs(offset) + largest)
            sides = below + offset - edge, above + offset + edge
            best = Annealed(
                x, y, *sides, exploited, exploited <= target, "", target, temperature, 0, 0
            )
        stop = callback is not None and bool(callback(temperature, exploited))
        status = _status(good=best.converged, stop=stop, spent=iterations >= limit)
        # A temperature that cannot be solved roughly is beyond what rounding allows.
        lost = run.best_gap[0] > temperature
        if status or lost or temperature <= LOWEST * size:
            status = status or "rounding"
            return replace(best, status=status, iterations=iterations, products=products)
        at, solved_at, temperature = run.best, temperature, max(temperature * STRIDE, LOWEST * size)


def _status(*, good: bool, stop: bool, spent: bool) -> str:
    """Why to end, or nothing."""
    if good:
        return "converged"
    return "stopped" if stop else "budget" if spent else ""


def _at(game: Game, temperature: float) -> Game:
    """The game at one temperature."""
    return game.at(namespace(game.temperature).full_like(game.temperature, temperature))
