"""The duality gap: how far a pair of strategies is from the equilibrium, rounding included.

g(x, y) = τ KL(x ‖ σ(−Ay/τ)) + τ KL(y ‖ σ(Aᵀx/τ)) (theorem gap). Written with Kullback–Leibler
divergences it has no cancellation: gaps far below the rounding error of a payoff are right.
"""

from __future__ import annotations

from typing import NamedTuple

from taut._array import Array, namespace
from taut.games._game import Game


class Point(NamedTuple):
    """A pair of mixed strategies for each game, with the two products that judge it."""

    log_x: Array
    log_y: Array
    costs: Array  # A y
    gains: Array  # Aᵀx

    def take(self, index: Array) -> Point:
        """The points of the games with these numbers."""
        if len(index) == self.log_x.shape[0]:
            return self
        return Point(*(field[index] for field in self))

    def where(self, chosen: Array, other: Point) -> Point:
        """The point itself for the chosen games, the other one for the rest."""
        xp = namespace(self.log_x)
        pairs = zip(self, other, strict=True)
        return Point(*(xp.where(chosen[:, None], a, b) for a, b in pairs))


def point(game: Game, log_x: Array, log_y: Array) -> Point:
    """The point with these log-strategies; costs two products."""
    xp = namespace(log_x)
    costs, gains = game.to_rows(xp.exp(log_y)), game.to_columns(xp.exp(log_x))
    return Point(log_x, log_y, costs, gains)


def normalise(logits: Array) -> Array:
    """Log-probabilities of logits, over the last axis."""
    xp = namespace(logits)
    logits = logits - xp.max(logits, axis=-1, keepdims=True)
    return logits - xp.log(xp.sum(xp.exp(logits), axis=-1, keepdims=True))


def answer_rows(game: Game, costs: Array) -> Array:
    """Log-probabilities of the row player's best answer, σ(−Ay/τ)."""
    return normalise(costs / -game.tau[:, None])


def answer_columns(game: Game, gains: Array) -> Array:
    """Log-probabilities of the column player's best answer, σ(Aᵀx/τ)."""
    return normalise(gains / game.tau[:, None])


def divergence(log_p: Array, log_q: Array) -> Array:
    """KL(p ‖ q) = Σ p (e^−d − 1 + d) with d = log p − log q: no term is negative."""
    xp = namespace(log_p)
    p, d = xp.exp(log_p), log_p - log_q
    nearby = xp.maximum(d, xp.full_like(d, -1.0))
    near = p * (xp.expm1(-nearby) + nearby)
    nearest = p * d * d * (0.5 - d * (1 / 6 - d / 24))  # expm1 has lost its digits here
    far = xp.exp(log_q) + p * (d - 1)  # also where p underflows
    terms = xp.where(d < -1, far, xp.where(xp.abs(d) < 1e-4, nearest, near))
    return xp.sum(terms, axis=-1)


def gap(game: Game, at: Point) -> Array:
    """Upper bound on the duality gap of each game, in units of payoff.

    A perturbation of the logits by at most e moves the root of a divergence by at most e/√2
    (theorem gap); the rounding of the weights multiplies it by at most 1 + 4e.
    """
    e = game.logit_error
    x = divergence(at.log_x, answer_rows(game, at.costs))
    y = divergence(at.log_y, answer_columns(game, at.gains))
    total = (x**0.5 + e) ** 2 + (y**0.5 + e) ** 2
    return game.tau * total * (1 + 16 * e)


def floor(game: Game) -> Array:
    """The smallest gap that rounding lets anybody prove."""
    e = game.logit_error
    return 2 * game.tau * e**2 * (1 + 16 * e)
