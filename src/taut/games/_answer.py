"""Between the caller's arrays and the solvers' points: where a run starts, and what it returns."""

from __future__ import annotations

import math

import numpy as np

from taut._array import Array, eps_of, host_view, like, namespace, to_host
from taut._checks import as_float_array
from taut.games._game import Game
from taut.games._gap import Point, answer_rows, normalise, point


def uniform(game: Game) -> Point:
    """Both players' uniform strategies."""
    return point(game, normalise(0 * game.means), normalise(0 * game.payoffs[:, 0, :]))


def first_point(game: Game, start: Array | None, batch: tuple[int, ...]) -> Point:
    """The first point: a strategy of the column player, and the row player's answer to it."""
    xp = namespace(game.tau)
    games, _, m = game.payoffs.shape
    if start is None:
        log_y, costs = xp.zeros_like(game.payoffs[:, 0, :]) - math.log(m), game.means
    else:
        _, first = as_float_array(start, name="start")
        values = to_host(first).astype(np.float64)
        shape = (*batch, m)
        if values.shape not in (shape, (m,)):
            raise ValueError(f"start has shape {values.shape}, but y has shape {shape}")
        if not np.all(values >= 0) or not np.allclose(values.sum(axis=-1), 1, atol=1e-6):
            raise ValueError("start must hold probabilities that sum to 1")
        values = np.broadcast_to(values, shape).reshape(games, m)
        # A strategy without weight could never come back.
        log_y = normalise(np.log(np.maximum(values, 1e-300)))
        log_y = log_y if host_view(game.tau) is not None else like(log_y, game.tau)
        costs = game.to_rows(xp.exp(log_y))
    log_x = answer_rows(game, costs)
    return Point(log_x, log_y, costs, game.to_columns(xp.exp(log_x)))


def returned(
    game: Game, at: Point, kind: Array, batch: tuple[int, ...]
) -> tuple[Array, Array, Point]:
    """The strategies as the caller's kind of array, and the point they really are.

    Rounding to float32 moves strategies: that point is judged anew, for two products.
    """
    xp = namespace(at.log_x)
    x, y = xp.exp(at.log_x), xp.exp(at.log_y)
    if eps_of(kind) > 1e-10:
        x, y = (xp.astype(s, xp.float32) for s in (x, y))
        at = point(game, *(_logs(xp.astype(s, xp.float64)) for s in (x, y)))
    return _back(x, kind, batch), _back(y, kind, batch), at


def guarantees(game: Game, at: Point) -> tuple[np.ndarray, np.ndarray]:
    """What y earns at least and x pays at most in the game without entropy, rounded outward."""
    error = to_host(game.tau * game.logit_error)
    offset = to_host(game.offset)
    below = to_host(at.costs).min(axis=-1) - error + offset
    above = to_host(at.gains).max(axis=-1) + error + offset
    eps = np.finfo(float).eps
    return below - eps * np.abs(below), above + eps * np.abs(above)


def values(game: Game, at: Point) -> tuple[np.ndarray, np.ndarray]:
    """xᵀAy, and the middle of the two values that x and y guarantee in the regularised game."""
    log_x, log_y, costs, gains = (to_host(part) for part in at)
    tau, offset = to_host(game.tau), to_host(game.offset)

    def entropy(logs: np.ndarray) -> np.ndarray:
        return np.asarray(-np.sum(np.exp(logs) * logs, axis=-1))

    def soft_maximum(logits: np.ndarray) -> np.ndarray:
        top = logits.max(axis=-1)
        rest = np.exp((logits - top[:, None]) / tau[:, None]).sum(axis=-1)
        return np.asarray(top + tau * np.log(rest))

    above = soft_maximum(gains) - tau * entropy(log_x)
    below = tau * entropy(log_y) - soft_maximum(-costs)
    payoff = np.sum(np.exp(log_x) * costs, axis=-1)
    return payoff + offset, above + (below - above) / 2 + offset


def _logs(p: Array) -> Array:
    """Logarithms of probabilities, of which some may have underflowed."""
    xp = namespace(p)
    return normalise(xp.log(xp.maximum(p, xp.full_like(p, 1e-300))))


def _back(values: Array, kind: Array, batch: tuple[int, ...]) -> Array:
    """Strategies as the caller's kind of array."""
    if namespace(values) is not namespace(kind):
        values = like(values, kind)
    return namespace(values).reshape(values, (*batch, values.shape[-1]))
