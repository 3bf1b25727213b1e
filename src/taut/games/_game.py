"""What comes in: payoffs and temperatures, checked, centred and ready for the solvers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from taut._array import Array, eps_of, host_view, like, namespace, stop_gradient, to_host, widest
from taut._checks import as_float_array, real_number
from taut.games._survey import interaction, row_bound, survey

# Operations that an exact D may cost before a solver makes do with a bound: a few milliseconds.
CHEAP = 2.0e7
LARGEST = 1e300  # beyond, sums of payoffs may overflow


class Game(NamedTuple):
    """A batch of zero-sum games: the row player pays xᵀAy, the column player receives it.

    ``payoffs`` (games, n, m) have ``offset`` (games,) taken off, which changes nothing but the
    value; ``largest`` is the largest size of a payoff then. ``tau`` (games,) is the temperature,
    ``interaction`` (games,) an upper bound on D, which is D but for rounding where ``exact``;
    ``means`` (games, n) are the means of the rows, their costs against the uniform strategy.
    """

    payoffs: Array
    tau: Array
    offset: Array
    largest: Array
    interaction: Array
    means: Array
    exact: bool

    def take(self, index: Array) -> Game:
        """The games with these numbers."""
        if len(index) == self.tau.shape[0]:
            return self
        fields = self._asdict()
        fields.update((name, fields[name][index]) for name in fields if name != "exact")
        return Game(**fields)

    def at(self, tau: Array) -> Game:
        """The same games at another temperature."""
        return self._replace(tau=tau)

    def to_rows(self, y: Array) -> Array:
        """A y, what each row costs against y."""
        return (self.payoffs @ y[..., None])[..., 0]

    def to_columns(self, x: Array) -> Array:
        """Aᵀx, what each column receives against x."""
        return (x[..., None, :] @ self.payoffs)[..., 0, :]

    @property
    def sensitivity(self) -> Array:
        """R = D/4τ: plain iteration contracts total variation by r²."""
        return self.interaction / (4 * self.tau) * (1 + 4 * eps_of(self.tau))

    @property
    def logit_error(self) -> Array:
        """Bound on the rounding error of a logit, product, division and normalisation together.

        A sum of k products errs by at most k eps/2 times the largest product; the rest are a few
        roundings relative to logits that are no larger than largest/τ plus a logarithm.
        """
        n, m = self.payoffs.shape[-2:]
        eps = eps_of(self.tau)
        return eps * (max(n, m) + 16) * (self.largest / self.tau + 1)


def prepare(payoffs: Array, tau: Array, *, work: float = CHEAP) -> tuple[Game, Array]:
    """The games in float64 on one batch axis, and the payoffs as the caller's kind of array.

    ``work`` limits the operations that go into an exact D.
    """
    kind = as_payoffs(payoffs, name="payoffs")
    batch = tuple(kind.shape[:-2])
    flat = stop_gradient(kind)
    flat = namespace(flat).reshape(flat, (-1, *kind.shape[-2:]))
    # On another device the solvers run there, and the survey on a copy.
    host = to_host(widest(flat)).astype(np.float64, copy=False)
    low, high, total = survey(host)
    _check_finite(host, total)
    d, exact = _interaction(host, low, high, work)
    bottom, top = low.min(axis=-1), high.max(axis=-1)
    offset = bottom + (top - bottom) / 2
    # Where the offset exceeds the spread, subtracting it is exact; elsewhere it would not help.
    offset = np.where(np.abs(offset) > top - bottom, offset, 0.0)
    size = np.maximum(np.abs(bottom - offset), np.abs(top - offset))
    taus = temperatures(tau, batch)
    if offset.any():  # sums of what the offset was taken off would round relative to the offset
        host = host - offset[:, None, None]
        total = host.sum(axis=-1)
    means = total / host.shape[-1]
    game = Game(host, taus, offset, size, d, means, exact)
    if host_view(flat) is None:
        there = {name: like(part, flat) for name, part in game._asdict().items() if name != "exact"}
        game = game._replace(**there)
    return game, kind


def as_payoffs(payoffs: Array, *, name: str) -> Array:
    """Payoffs as a float array (..., n, m) with at least one strategy for each player."""
    _, kind = as_float_array(payoffs, name=name)
    if kind.ndim < 2:
        raise ValueError(
            f"{name} must be a matrix, or a batch of matrices on the last two axes; "
            f"its shape is {tuple(kind.shape)}"
        )
    if 0 in kind.shape[-2:]:
        raise ValueError(f"{name} of shape {tuple(kind.shape)} leave a player without a strategy")
    if 0 in kind.shape:
        raise ValueError(f"{name} of shape {tuple(kind.shape)} hold no game: the batch is empty")
    return kind


def temperatures(tau: Array, batch: tuple[int, ...]) -> np.ndarray:
    """τ > 0 for every game of the batch, as a flat float64 array."""
    hint = "for the game without entropy follow tau to 0 with taut.games.anneal"
    if not hasattr(tau, "shape") or tau.shape == ():
        tau = real_number(tau, name="tau")
    else:
        _, tau = as_float_array(tau, name="tau")
    values = to_host(tau).astype(np.float64)
    if not (np.all(np.isfinite(values)) and np.all(values > 0)):
        wrong = values[~(np.isfinite(values) & (values > 0))].flat[0]
        raise ValueError(f"tau must be a finite number > 0, got {wrong}; {hint}")
    if math.prod(batch) == 0 or np.broadcast_shapes(values.shape, batch) != batch:
        raise ValueError(f"tau of shape {values.shape} does not fit a batch of shape {batch}")
    return np.broadcast_to(values, batch).reshape(-1).copy()


def _check_finite(host: np.ndarray, total: np.ndarray) -> None:
    """Refuse NaN and infinities, and say where the first of them stands."""
    if np.all(np.abs(total) < LARGEST):
        return
    bad = np.argwhere(~np.isfinite(host))
    if len(bad):
        game, row, column = (int(k) for k in bad[0])
        where = f" of game {game}" if len(host) > 1 else ""
        raise ValueError(
            f"payoffs must be finite: row {row}, column {column}{where} is "
            f"{host[game, row, column]} (counting from 0)"
        )
    raise ValueError(f"payoffs beyond {LARGEST:g} may overflow: divide them and tau by a number")


def _interaction(
    host: np.ndarray, low: np.ndarray, high: np.ndarray, work: float
) -> tuple[np.ndarray, bool]:
    """D or a bound on it, and which of the two."""
    games, n, m = host.shape
    if games * n * m * min(n, m) / 2 <= work:
        if n > m:  # the same number either way: compare the pairs of the shorter side
            flipped = np.ascontiguousarray(np.swapaxes(host, -1, -2))
            return interaction(flipped, flipped.min(axis=-1), flipped.max(axis=-1)), True
        return interaction(host, low, high), True
    return row_bound(low, high), False
