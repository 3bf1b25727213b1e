"""Check and centre payoffs and temperatures: the caller's arrays become a Game."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taut._base.array import (
    Array,
    host_view,
    like,
    namespace,
    stop_gradient,
    to_host,
    widest,
)
from taut._base.checks import as_float_array, real_number
from taut.games._solvers.formulas import (
    LARGEST,
    SHARPEST,
    SMALLEST,
    centre,
    size_fits,
    temperature_fits,
)
from taut.games._solvers.game import Game, logit_error
from taut.games._solvers.interaction import interaction, row_bound, survey

# Operations that an exact D may cost before a solver makes do with a bound: a few milliseconds.
CHEAP = 2.0e7

Host = np.ndarray[Any, np.dtype[Any]]


def prepare(
    payoffs: Array,
    temperature: Array,
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
    taus = as_temperatures(temperature)
    kind = _broadcast(kind, taus.shape, name=name)
    flat = stop_gradient(kind)
    flat = namespace(flat).reshape(flat, (-1, *kind.shape[-2:]))
    # On another device the solvers run there, and the survey on a copy.
    host = to_host(widest(flat)).astype(np.float64, copy=False)
    low, high, total = survey(host)
    bottom, top = low.min(axis=-1), high.max(axis=-1)
    _check_sizes(host, total, np.maximum(np.abs(bottom), np.abs(top)), name=name)
    d, exact = _interaction(host, low, high, work)
    offset, size = centre(bottom, top)
    taus = np.broadcast_to(taus, kind.shape[:-2]).reshape(-1).copy()
    if own_scale:
        taus = taus * np.where(size > 0, size, 1.0)
    _check_ratio(size, taus)
    if offset.any():  # sums of what the offset was taken off would round relative to the offset
        host = host - offset[:, None, None]
        total = host.sum(axis=-1)
    means = total / host.shape[-1]
    game = Game(
        host,
        taus,
        offset,
        size,
        d,
        means,
        logit_error(host.shape, size, taus),
        exact,
    )
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


def as_temperatures(temperature: Array) -> Host:
    """τ > 0 as a float64 array."""
    if not hasattr(temperature, "shape") and not isinstance(temperature, (list, tuple)):
        temperature = real_number(temperature, name="temperature")
    _, temperature = as_float_array(temperature, name="temperature")
    values = to_host(temperature).astype(np.float64)
    good = (values > 0) & (values < math.inf)
    if not np.all(good):
        wrong = values[~good].flat[0]
        hint = "; taut.games.anneal lowers the temperature to 0" if wrong <= 0 else ""
        raise ValueError(f"temperature must be a finite number > 0, got {wrong}{hint}")
    return values


def _broadcast(kind: Array, shape: tuple[int, ...], *, name: str) -> Array:
    """The payoffs once for each temperature, where there are more of these."""
    batch = tuple(kind.shape[:-2])
    try:
        both = np.broadcast_shapes(batch, shape)
    except ValueError:
        raise ValueError(
            f"temperature of shape {shape} does not fit {name} with a batch of shape {batch}"
        ) from None
    if 0 in both:
        raise ValueError(f"temperature of shape {shape} holds no temperature")
    return kind if both == batch else namespace(kind).broadcast_to(kind, (*both, *kind.shape[-2:]))


def _check_sizes(host: Host, total: Host, size: Host, *, name: str) -> None:
    """Refuse NaN and infinities, and what would over- or underflow; say where it stands."""
    fits = size_fits(size)
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
        "multiply them and the temperature by a number"
    )


def _check_ratio(size: Host, taus: Host) -> None:
    """Refuse temperatures at which rounding leaves nothing of the answer."""
    good = temperature_fits(taus, size)
    if not np.all(good):
        worst = int(np.argmin(good))
        raise ValueError(
            f"a temperature of {taus[worst]:.3g} is out of range for payoffs of size "
            f"{size[worst]:.3g}: it must be at least {SHARPEST:g} of it and in "
            f"[{SMALLEST:g}, {LARGEST:g}]; taut.games.anneal lowers the temperature to 0"
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
