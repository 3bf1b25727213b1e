"""Norms of the Jacobian with different exponents on input and output.

1→q and its transpose p→∞ are the largest column norm, exact for every exponent. ∞→1 is a search
over subsets: exact up to 24 entries or when one probability is at least ½, and otherwise a bracket,
of ordinary rows narrower than 1e-6.
"""

from __future__ import annotations

import math

import numpy as np

from taut._base.array import (
    Array,
    differentiated,
    host_view,
    like,
    namespace,
    positions,
    stop_gradient,
)
from taut._base.array_rounding import product, round_up
from taut._base.reductions import row_max
from taut._softmax.derivatives import graft, smooth_weights
from taut._softmax.exact import Exact
from taut._softmax.functions import softmax
from taut._softmax.partition import Partitions, nearest_half
from taut._softmax.secular import analyse, constants_underflow, relative_error
from taut._softmax.sides import Sides, exact_sides


def one_to_q(x: Array, scale: float, q: float, exact: Exact) -> Sides:
    """λ‖M‖_{1→q} = λ maxⱼ sⱼ((1−sⱼ)^q + Σ_{i≠j} sᵢ^q)^{1/q} (theorem 1-to-q)."""
    xp = namespace(x)
    if math.isinf(q):  # s₁(1 − s₁)
        ceiling = product(scale, 0.25, up=True)
        half = exact.one.estimate / 2
        return exact_sides(half, exact.relative, exact.absolute, ceiling, ("1-to-inf",))
    spectrum = analyse(stop_gradient(x), scale)
    value = scale * row_max(_columns(spectrum.weights, xp.zeros_like(spectrum.tail), q))
    value = xp.astype(value, x.dtype, copy=False)
    if differentiated(x):
        smooth = row_max(_columns(*smooth_weights(x, scale), q), keepdims=True)
        value = graft(value, scale * smooth)
    # Powers multiply relative errors by q and the root divides them again.
    relative = 4 * xp.squeeze(relative_error(x, spectrum), axis=-1)
    relative = xp.astype(relative, x.dtype, copy=False)
    ceiling = product(scale, round_up(2 ** (1 / q - 2)), up=True)
    return exact_sides(value, relative, constants_underflow(x, scale), ceiling, ("1-to-q",))


def largest_column(x: Array, scale: float, q: float) -> Array:
    """Index of the column of M with the largest l_q norm, last axis kept."""
    xp = namespace(x)
    if math.isinf(q):
        return xp.argmax(x, axis=-1, keepdims=True)
    spectrum = analyse(stop_gradient(x), scale)
    columns = _columns(spectrum.weights, xp.zeros_like(spectrum.tail), q)
    best = xp.argmax(columns, axis=-1, keepdims=True)
    # Column 0 of the table is the top entry, the others follow in the order of x.
    top = xp.argmax(x, axis=-1, keepdims=True)
    return xp.where(best == 0, top, best - 1)


def _columns(e: Array, doubles: Array, q: float) -> Array:
    """l_q norms of M's columns from weights below the top: the top column first, then the rest.

    ``doubles`` counts entries of weight 1 besides the top one that ``e`` leaves out.
    """
    xp = namespace(e)
    tail = xp.sum(e, axis=-1, keepdims=True) + doubles
    total = 1 + tail
    empty = tail == 0
    safe = xp.where(empty, xp.ones_like(tail), tail)
    extra = doubles * xp.exp(-q * xp.log(xp.where(doubles > 0, safe, xp.ones_like(safe))))
    shares = xp.sum((e / safe) ** q, axis=-1, keepdims=True) + extra
    top = xp.where(empty, xp.zeros_like(tail), safe * (1 + shares) ** (1 / q))
    far = total - e
    powers = xp.sum(e**q, axis=-1, keepdims=True) + doubles
    rest = (1 + powers - e**q) * xp.exp(-q * xp.log(far))
    return xp.concat([top, e * far * (1 + rest) ** (1 / q)], axis=-1) / (total * total)


def inf_to_one(x: Array, scale: float, exact: Exact) -> Sides:
    """λ‖M‖_{∞→1} = 4λ max_S P(S)(1 − P(S)) (theorem inf-to-1)."""
    s, found = _partitions(x, scale)
    shape = tuple(x.shape)[:-1]
    distance, least = found.distance.reshape(shape), found.least_distance.reshape(shape)
    peaked = np.max(s, axis=-1) >= 0.5 if s.size else np.zeros(shape, dtype=bool)
    alone = 2 * np.asarray(host_view(stop_gradient(exact.one.estimate)), dtype=np.float64)
    lower = np.where(peaked, alone, scale * (1 - 4 * distance**2))
    upper = np.where(peaked, alone, scale * (1 - 4 * least**2))
    dtype = np.asarray(host_view(stop_gradient(x))).dtype
    low, high = (like(side.astype(dtype), x) for side in (lower, upper))
    if differentiated(x):
        chosen = like(found.subset.reshape(s.shape), x)
        xp = namespace(x)
        smooth = softmax(x, scale=scale)
        inside = xp.sum(xp.where(chosen, smooth, xp.zeros_like(smooth)), axis=-1, keepdims=True)
        low, high = (graft(side, scale * 4 * inside * (1 - inside)) for side in (low, high))
    relative = 4 * exact.relative + x.shape[-1] * np.finfo(dtype).eps.item()
    sides = exact_sides(low, relative, exact.absolute, scale, ("inf-to-1",))
    if bool(np.all(lower == upper)):
        return sides
    ceiling = exact_sides(high, relative, exact.absolute, scale, ("inf-to-1",))
    return Sides(sides.lower, ceiling.upper, None, "bracket", ("inf-to-1",), rounding="proved")


def half_signs(x: Array, scale: float) -> Array:
    """Signs that attain ‖M‖_{∞→1} as far as known: +1 on the subset nearest to ½, −1 off it."""
    s, found = _partitions(x, scale)
    signs = np.where(found.subset, 1.0, -1.0).reshape(s.shape)
    xp = namespace(x)
    signs = xp.astype(like(signs, x), x.dtype)
    top = positions(x) == xp.expand_dims(xp.argmax(x, axis=-1), axis=-1)
    return signs * xp.sum(xp.where(top, signs, xp.zeros_like(signs)), axis=-1, keepdims=True)


def _partitions(
    x: Array, scale: float
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float64]], Partitions]:
    """Probabilities in float64, and the best subset of every row."""
    host = host_view(stop_gradient(x))
    if host is None:
        raise TypeError(
            "the linf->l1 constant is a search over subsets: it needs values in main memory and "
            "cannot be traced by jax.jit, torch.compile or vmap, nor run on an accelerator"
        )
    s = softmax(np.asarray(host, dtype=np.float64), scale=scale)
    return s, nearest_half(s.reshape(-1, s.shape[-1]))
