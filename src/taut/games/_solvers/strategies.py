"""Between the caller's arrays and the solvers' points: where a run starts, and what it returns."""

from __future__ import annotations

import numpy as np

from taut._base.array import Array, eps_of, host_view, like, namespace, to_host
from taut._base.checks import as_float_array
from taut.games._solvers.duality_gap import Mixed, StrategyPair, answer_rows, mixed, strategy_pair
from taut.games._solvers.formulas import error_of_guarantees, value_sides
from taut.games._solvers.game import Game


def uniform(game: Game) -> StrategyPair:
    """Both players' uniform strategies."""
    return strategy_pair(game, mixed(0 * game.means), mixed(0 * game.payoffs[:, 0, :]))


def first_point(game: Game, start: Array | None, batch: tuple[int, ...]) -> StrategyPair:
    """The first point: a strategy of the column player, and the row player's answer to it."""
    games, _, m = game.payoffs.shape
    if start is None:
        y, costs = mixed(0 * game.payoffs[:, 0, :]), game.means
    else:
        _, first = as_float_array(start, name="start")
        values = to_host(first).astype(np.float64)
        shape = (*batch, m)
        if values.shape not in (shape, (m,)):
            raise ValueError(f"start has shape {values.shape}, but y has shape {shape}")
        sums = values.sum(axis=-1)
        if not np.all(values >= 0) or not np.allclose(sums, 1, atol=1e-6):
            raise ValueError(
                "start must hold probabilities that sum to 1; the smallest is "
                f"{values.min():.6g}, a sum {np.ravel(sums)[np.argmax(np.abs(sums - 1))]:.6g}"
            )
        values = np.broadcast_to(values, shape).reshape(games, m)
        values = (
            values
            if host_view(game.temperature) is not None
            else like(values.copy(), game.temperature)
        )
        y = strategy(values)
        costs = game.to_rows(y.weights)
    x = answer_rows(game, costs)
    return StrategyPair(x, y, costs, game.to_columns(x.weights))


def returned(
    game: Game, at: StrategyPair, kind: Array, batch: tuple[int, ...]
) -> tuple[Array, Array, StrategyPair]:
    """The strategies as the caller's kind of array, and the point they really are.

    Rounding to float32 moves strategies: that point is judged anew, for two products.
    """
    xp = namespace(at.costs)
    x, y = at.x.weights, at.y.weights
    if eps_of(kind) > 1e-10:
        x, y = (xp.astype(s, xp.float32) for s in (x, y))
        at = strategy_pair(game, *(strategy(xp.astype(s, xp.float64)) for s in (x, y)))
    return _back(x, kind, batch), _back(y, kind, batch), at


def guarantees(game: Game, at: StrategyPair) -> tuple[np.ndarray, np.ndarray]:
    """What y earns at least and x pays at most in the game without entropy and without its offset.

    Rounded outward.
    """
    _, n, m = game.payoffs.shape
    error = error_of_guarantees(n, m, to_host(game.largest))
    return to_host(at.costs).min(axis=-1) - error, to_host(at.gains).max(axis=-1) + error


def values(game: Game, at: StrategyPair) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What y and x guarantee in the regularised game, rounded outward, and xᵀAy."""
    costs, gains = to_host(at.costs), to_host(at.gains)
    tau, offset = to_host(game.temperature), to_host(game.offset)

    def entropy(player: Mixed) -> np.ndarray:
        return np.asarray(-np.sum(to_host(player.weights) * to_host(player.logs), axis=-1))

    def soft_maximum(logits: np.ndarray) -> np.ndarray:
        top = logits.max(axis=-1)
        rest = np.exp((logits - top[:, None]) / tau[:, None]).sum(axis=-1)
        return np.asarray(top + tau * np.log(rest))

    above = soft_maximum(gains) - tau * entropy(at.x)
    below = tau * entropy(at.y) - soft_maximum(-costs)
    payoff = np.sum(to_host(at.x.weights) * costs, axis=-1)
    error, (_, n, m) = to_host(game.logit_error), game.payoffs.shape
    lower, upper = value_sides(below, above, offset, tau, error, n, m)
    return lower, upper, payoff + offset


def strategy(weights: Array) -> Mixed:
    """The strategy with these probabilities.

    What has underflowed to 0 gets a logarithm: else it could never come back.
    """
    xp = namespace(weights)
    return mixed(xp.log(xp.maximum(weights, xp.full_like(weights, 1e-300))))


def _back(values: Array, kind: Array, batch: tuple[int, ...]) -> Array:
    """Strategies as the caller's kind of array."""
    if namespace(values) is not namespace(kind):
        values = like(values, kind)
    return namespace(values).reshape(values, (*batch, values.shape[-1]))
