"""What comes in: payoffs and temperatures, checked, centred and ready for the solvers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from taut._array import Array, eps_of, host_view, like, namespace, stop_gradient, to_host, widest
from taut._checks import as_float_array, real_number
from taut.games._survey import interaction, row_bound, survey

# Operations that an exact D may cost before a solver makes do with a bound: a few milliseconds.
CHEAP = 2.0e7
SMALLEST, LARGEST = 1e-150, 1e150  # of payoffs and τ: squares neither over- nor underflow
SHARPEST = 1e-13  # of τ against payoffs: below, rounding hides the equilibrium

Host = np.ndarray[Any, np.dtype[Any]]


class Game(NamedTuple):
    """A batch of zero-sum games: the row player pays xᵀAy, the column player receives it.

    ``payoffs`` (games, n, m) have ``offset`` (games,) taken off, which changes nothing but the
    value; ``largest`` is the largest size of a payoff then. ``tau`` (games,) is the temperature,
    ``interaction`` (games,) an upper bound on D, which is D but for rounding where ``exact``;
    ``means`` (games, n) are the means of the rows, their costs against the uniform strategy, and
    ``logit_error`` (games,) bounds the rounding error of a logit.
    """

    payoffs: Array
    tau: Array
    offset: Array
    largest: Array
    interaction: Array
    means: Array
    logit_error: Array
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
        return self._replace(
            tau=tau, logit_error=logit_error(self.payoffs.shape, self.largest, tau)
        )

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


def logit_error(shape: tuple[int, ...], largest: Array, tau: Array) -> Array:
    """Bound on the rounding error of a logit: product, division and normalisation together.

    A sum of k products errs by at most k eps/2 times the largest product; the rest are a few
    roundings relative to logits that are no larger than largest/τ plus a logarithm.
    """
    return eps_of(tau) * (max(shape[-2:]) + 16) * (largest / tau + 1)


def prepare(
    payoffs: Array,
    tau: Array,
    *,
    own_scale: bool = False,
    work: float = CHEAP,
    name: str = "payoffs",
) -> tuple[Game, Array]:
    """The games in float64 on one batch axis, and the payoffs as the caller's kind of array.

    Both have the shape in which payoffs and temperatures broadcast. With ``own_scale`` the
    temperatures are in units of the size of each game's payoffs. ``work`` limits the operations
    that go into an exact D.
    """
    kind = as_payoffs(payoffs, name=name)
    taus = temperatures(tau)
    kind = _broadcast(kind, taus.shape, name=name)
    flat = stop_gradient(kind)
    flat = namespace(flat).reshape(flat, (-1, *kind.shape[-2:]))
    # On another device the solvers run there, and the survey on a copy.
    host = to_host(widest(flat)).astype(np.float64, copy=False)
    low, high, total = survey(host)
    bottom, top = low.min(axis=-1), high.max(axis=-1)
    _check_sizes(host, total, np.maximum(np.abs(bottom), np.abs(top)), name=name)
    d, exact = _interaction(host, low, high, work)
    offset = bottom + (top - bottom) / 2
    # Where the offset exceeds the spread, subtracting it is exact; elsewhere it would not help.
    offset = np.where(np.abs(offset) > top - bottom, offset, 0.0)
    size = np.maximum(np.abs(bottom - offset), np.abs(top - offset))
    taus = np.broadcast_to(taus, kind.shape[:-2]).reshape(-1).copy()
    if own_scale:
        taus = taus * np.where(size > 0, size, 1.0)
    _check_ratio(size, taus)
    if offset.any():  # sums of what the offset was taken off would round relative to the offset
        host = host - offset[:, None, None]
        total = host.sum(axis=-1)
    means = total / host.shape[-1]
    game = Game(host, taus, offset, size, d, means, logit_error(host.shape, size, taus), exact)
    if host_view(flat) is None:
        there = {key: like(part, flat) for key, part in game._asdict().items() if key != "exact"}
        game = game._replace(**there)
    return game, kind


def as_payoffs(payoffs: Array, *, name: str) -> Array:
    """Payoffs as a float array (..., n, m) with at least one strategy for each player."""
    if hasattr(payoffs, "to_numpy"):  # a table of pandas or polars
        payoffs = payoffs.to_numpy()
    if isinstance(payoffs, np.ma.MaskedArray):
        raise TypeError(f"{name} are a masked array: every pair of strategies needs a payoff")
    if isinstance(payoffs, np.ndarray):
        payoffs = np.asarray(payoffs)  # np.matrix has no batches
    if type(payoffs).__module__.partition(".")[0] in ("pygambit", "nashpy", "taut"):
        raise TypeError(
            f"{name} must be a matrix, got a {type(payoffs).__name__}; read(game).costs is the "
            "matrix of a zero-sum game, and .row and .column those of any other"
        )
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


def temperatures(tau: Array) -> Host:
    """τ > 0 as a float64 array."""
    if not hasattr(tau, "shape") and not isinstance(tau, (list, tuple)):
        tau = real_number(tau, name="tau")
    _, tau = as_float_array(tau, name="tau")
    values = to_host(tau).astype(np.float64)
    good = (values > 0) & (values < math.inf)
    if not np.all(good):
        wrong = values[~good].flat[0]
        hint = "; taut.games.anneal follows tau to 0" if wrong <= 0 else ""
        raise ValueError(f"tau must be a finite number > 0, got {wrong}{hint}")
    return values


def _broadcast(kind: Array, shape: tuple[int, ...], *, name: str) -> Array:
    """The payoffs once for each temperature, where there are more of these."""
    batch = tuple(kind.shape[:-2])
    try:
        both = np.broadcast_shapes(batch, shape)
    except ValueError:
        raise ValueError(
            f"tau of shape {shape} does not fit {name} with a batch of shape {batch}"
        ) from None
    if 0 in both:
        raise ValueError(f"tau of shape {shape} holds no temperature")
    return kind if both == batch else namespace(kind).broadcast_to(kind, (*both, *kind.shape[-2:]))


def _check_sizes(host: Host, total: Host, size: Host, *, name: str) -> None:
    """Refuse NaN and infinities, and what would over- or underflow; say where it stands."""
    fits = (size == 0) | ((size >= SMALLEST) & (size <= LARGEST))
    if np.all(np.isfinite(total)) and np.all(fits):
        return
    bad = np.argwhere(~np.isfinite(host))
    if len(bad):
        game, row, column = (int(k) for k in bad[0])
        where = f" of game {game}" if len(host) > 1 else ""
        raise ValueError(
            f"{name} must be finite: row {row}, column {column}{where} is "
            f"{host[game, row, column]} (counting from 0)"
        )
    raise ValueError(
        f"{name} of size {size[~fits].flat[0]:.3g} are out of range [{SMALLEST:g}, {LARGEST:g}]: "
        "multiply them and tau by a number"
    )


def _check_ratio(size: Host, taus: Host) -> None:
    """Refuse temperatures at which rounding leaves nothing of the answer."""
    good = (taus >= SHARPEST * size) & (taus >= SMALLEST) & (taus <= LARGEST)
    if not np.all(good):
        worst = int(np.argmin(good))
        raise ValueError(
            f"tau = {taus[worst]:.3g} is out of range for payoffs of size {size[worst]:.3g}: it "
            f"must be at least {SHARPEST:g} of it and in [{SMALLEST:g}, {LARGEST:g}]; "
            "taut.games.anneal follows tau to 0"
        )


def _interaction(host: Host, low: Host, high: Host, work: float) -> tuple[Host, bool]:
    """D or a bound on it, and which of the two."""
    games, n, m = host.shape
    if games * n * m * min(n, m) / 2 <= work:
        if n > m:  # the same number either way: compare the pairs of the shorter side
            flipped = np.ascontiguousarray(np.swapaxes(host, -1, -2))
            return interaction(flipped, flipped.min(axis=-1), flipped.max(axis=-1)), True
        return interaction(host, low, high), True
    return row_bound(low, high), False
