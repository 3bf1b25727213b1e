"""The duality gap: how far a pair of strategies is from the equilibrium, rounding included.

g(x, y) = τ KL(x ‖ σ(−Ay/τ)) + τ KL(y ‖ σ(Aᵀx/τ)) (theorem gap). Written with Kullback–Leibler
divergences it has no cancellation: gaps far below the rounding error of a payoff are right.
"""

from __future__ import annotations

from typing import NamedTuple

from taut._base.array import Array, namespace
from taut.games._solvers.formulas import gap_above
from taut.games._solvers.game import Game


class Mixed(NamedTuple):
    """A mixed strategy for each game: log-probabilities and probabilities."""

    logs: Array
    weights: Array

    def take(self, index: Array) -> Mixed:
        """The strategies of the games with these numbers."""
        return Mixed(self.logs[index], self.weights[index])


class StrategyPair(NamedTuple):
    """A pair of mixed strategies for each game, with the two products that judge it."""

    x: Mixed
    y: Mixed
    costs: Array  # A y
    gains: Array  # Aᵀx

    def take(self, index: Array) -> StrategyPair:
        """The points of the games with these numbers."""
        if len(index) == self.costs.shape[0]:
            return self
        return StrategyPair(
            self.x.take(index), self.y.take(index), self.costs[index], self.gains[index]
        )

    def where(self, chosen: Array, other: StrategyPair) -> StrategyPair:
        """The point itself for the chosen games, the other one for the rest."""
        xp = namespace(self.costs)
        chosen = chosen[:, None]

        def pick(a: Array, b: Array) -> Array:
            return xp.where(chosen, a, b)

        pairs = ((self.x, other.x), (self.y, other.y))
        x, y = (Mixed(*map(pick, mine, theirs)) for mine, theirs in pairs)
        return StrategyPair(x, y, pick(self.costs, other.costs), pick(self.gains, other.gains))


class Judged(NamedTuple):
    """Upper bounds on the duality gaps of points, and the best answers they were found with."""

    gaps: Array
    answer_x: Mixed
    answer_y: Mixed


def strategy_pair(game: Game, x: Mixed, y: Mixed) -> StrategyPair:
    """The point with these strategies; costs two products."""
    return StrategyPair(x, y, game.to_rows(y.weights), game.to_columns(x.weights))


def mixed(logits: Array) -> Mixed:
    """The strategy with these logits, over the last axis."""
    xp = namespace(logits)
    logs = logits - xp.max(logits, axis=-1, keepdims=True)
    weights = xp.exp(logs)
    total = xp.sum(weights, axis=-1, keepdims=True)
    return Mixed(logs - xp.log(total), weights / total)


def answer_rows(game: Game, costs: Array) -> Mixed:
    """The row player's best answer, σ(−Ay/τ)."""
    return mixed(costs / -game.temperature[:, None])


def answer_columns(game: Game, gains: Array) -> Mixed:
    """The column player's best answer, σ(Aᵀx/τ)."""
    return mixed(gains / game.temperature[:, None])


def divergence(p: Mixed, q: Mixed) -> Array:
    """KL(p ‖ q) = Σ p (e^−d − 1 + d) with d = log p − log q: no term is negative.

    For small d its rounding error is eps·Σp|d| ≤ eps·√(2KL), which the bound on the gap allows
    for.
    """
    xp = namespace(p.logs)
    d = p.logs - q.logs
    near = p.weights * (xp.expm1(-d) + d)
    far = q.weights + p.weights * (d - 1)  # also where p underflows, or the other overflows
    total = xp.sum(xp.where(d < -1, far, near), axis=-1)
    return xp.where(total > 0, total, 0 * total)


def judge(game: Game, at: StrategyPair) -> Judged:
    """The duality gap of each game from above, in units of payoff."""
    answer_x, answer_y = answer_rows(game, at.costs), answer_columns(game, at.gains)
    gaps = gap(game, divergence(at.x, answer_x), divergence(at.y, answer_y))
    return Judged(gaps, answer_x, answer_y)


def gap(game: Game, x: Array, y: Array) -> Array:
    """The gap that computed divergences stand for, from above."""
    return gap_above(game.temperature, game.logit_error, x, y)


def floor(game: Game) -> Array:
    """The smallest gap that rounding lets anybody prove."""
    return gap(game, 0.0, 0.0)
