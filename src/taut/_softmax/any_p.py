"""The induced p-norm of M(s) for any p: a certified bracket.

Below stands the best quotient ‖Mv‖_p/‖v‖_p that the nonlinear power method finds; every iterate is
a valid lower bound. Above stands the Riesz–Thorin interpolation between the exact 1- and 2-norms
(theorem local-p-bracket), or on request a bound that is proved row by row (theorem local-p-dual).

M is symmetric, so ‖M‖_p = ‖M‖_p′ (theorem dual) and all work is done at q = max(p, p′) ≥ 2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taut._base.array import (
    Array,
    Namespace,
    differentiated,
    eps_of,
    host_view,
    like,
    lp_norm,
    namespace,
    positions,
    running_sum,
    stop_gradient,
    widest,
)
from taut._base.array_rounding import product, round_down, round_up
from taut._base.checks import dual_exponent
from taut._softmax.derivatives import graft
from taut._softmax.exact import Exact
from taut._softmax.functions import softmax
from taut._softmax.jacobian import covariance_product
from taut._softmax.secular import analyse, constants_underflow, eigenvector, relative_error
from taut._softmax.sides import Sides, at_most

_TRIAL_STEPS, _STEPS = 3, 30


def any_p(x: Array, p: float, scale: float, exact: Exact, *, tight: bool) -> Sides:
    """Bracket λ‖M‖_p of every row, 1 < p < ∞, p ≠ 2, given the exact constants of the rows."""
    xp = namespace(x)
    q = max(p, dual_exponent(p))
    lower = _lower(xp, x, q, scale, exact)
    upper = _interpolated(xp, q, scale, exact)
    if not tight:
        # The upper side is proved; the allowance for the quotient of the lower one is an estimate.
        theorem = ("local-p-bracket",)
        return Sides(
            xp.minimum(lower, upper), upper, None, "bracket", theorem, rounding="estimated"
        )
    upper = xp.minimum(upper, _proved(xp, x, q, scale, lower))
    # The dual values allow for rounding by a share of their magnitudes, which is an estimate.
    lower = xp.minimum(lower, upper)
    return Sides(lower, upper, None, "bracket", ("local-p-dual",), rounding="estimated")


def _proved(xp: Namespace, x: Array, q: float, scale: float, lower: Array) -> Array:
    """λ times the bound proved by duality and branch and bound, row by row.

    Its derivative is that of the lower side, times the ratio of the two.
    """
    host, start = host_view(stop_gradient(x)), host_view(stop_gradient(lower))
    if host is None or start is None:
        raise TypeError(
            "tight=True proves its bound row by row: it needs values in main memory and cannot be "
            "traced by jax.jit, torch.compile or vmap, nor run on an accelerator"
        )
    from taut._softmax.proved_p.entry import (
        tight_upper,  # numba is imported when it is first needed
    )

    logits = np.asarray(host, dtype=np.float64).reshape(-1, host.shape[-1])
    s = softmax(logits, scale=scale)
    starts = np.asarray(start, dtype=np.float64).reshape(-1) / (scale or 1.0)
    found = np.array([tight_upper(row, q, float(low)) for row, low in zip(s, starts, strict=True)])
    # Relative errors of the probabilities change M by at most 8 times themselves.
    error = 8 * (16 + 2 * math.log2(host.shape[-1]) + scale * _depth(logits)) * 2.0**-52
    absolute = constants_underflow(x, scale)  # probabilities that underflowed to 0
    found = round_up(scale * found, error + 2 * eps_of(x), absolute).astype(host.dtype)
    value = like(found.reshape(host.shape[:-1]), x)
    if differentiated(x):
        safe = xp.where(lower > 0, lower, xp.ones_like(lower))
        value = value * (safe / stop_gradient(safe))
    return value


def _depth(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How far the second largest logit lies below the largest, 0 where there is none."""
    if logits.shape[-1] < 2:
        return np.zeros(len(logits))
    pair = np.partition(logits, -2, axis=-1)[..., -2:]
    pair = np.where(np.isfinite(pair[..., :1]), pair, 0.0)
    depth: np.ndarray[Any, Any] = pair[..., 1] - pair[..., 0]
    return depth


def power_direction(x: Array, p: float, scale: float) -> Array:
    """Unit vector in l_p at which the quotient reaches the lower side of the bracket."""
    xp = namespace(x)
    q = max(p, dual_exponent(p))
    s = softmax(widest(x), scale=scale)
    v = _maximiser(xp, x, s, q, scale)
    if p < 2:  # ψ_q(Mv) attains the norm for the dual exponent
        v = signed_power(xp, _unit(xp, covariance_product(s, v)), q - 1)
    top = positions(x) == xp.expand_dims(xp.argmax(x, axis=-1), axis=-1)
    at_top = xp.sum(xp.where(top, v, xp.zeros_like(v)), axis=-1, keepdims=True)
    v = xp.where(at_top < 0, -v, v)
    size = lp_norm(v, p)
    v = xp.where(size == 0, xp.astype(top, v.dtype), v)
    v = v / xp.where(size == 0, xp.ones_like(size), size)
    return xp.astype(v, x.dtype, copy=False)


def _interpolated(xp: Namespace, q: float, scale: float, exact: Exact) -> Array:
    """‖M‖₁^θ ‖M‖₂^{1−θ}, θ = 1 − 2/q, rounded up."""
    mean = interpolate(xp, exact.one.estimate, exact.two.estimate, q)
    return at_most(round_up(mean, exact.relative, exact.absolute), product(scale, 0.5, up=True))


def interpolate(xp: Namespace, one: Array, two: Array, q: float) -> Array:
    """one^θ two^{1−θ}, θ = |1 − 2/q|, rounded up; 0 where either is 0, NaN where either is NaN.

    The exponents are rounded too, which costs |log one| + |log two| units.
    """
    share = abs(1 - 2 / q)
    present = ~((one == 0) | (two == 0))
    a, b = (widest(xp.where(present, c, xp.ones_like(c))) for c in (one, two))
    mean = a**share * b ** (1 - share)
    slack = (8 + xp.abs(xp.log(a)) + xp.abs(xp.log(b))) * eps_of(a)
    mean = xp.astype(round_up(mean, slack), one.dtype, copy=False)
    return xp.where(present, round_up(mean), xp.zeros_like(mean))


def _lower(xp: Namespace, x: Array, q: float, scale: float, exact: Exact) -> Array:
    """λ times the best quotient found, rounded down; never below the 2-norm, as ‖M‖_q is not."""
    fixed = stop_gradient(x)
    s = softmax(widest(fixed), scale=scale)
    v = _maximiser(xp, fixed, s, q, scale)
    value = scale * _quotient(xp, s, v, q)
    value = xp.astype(xp.squeeze(value, axis=-1), x.dtype, copy=False)
    if differentiated(x):  # at a maximiser the derivative is that of the quotient with v held fixed
        value = graft(value, scale * _quotient(xp, softmax(widest(x), scale=scale), v, q))
    spectrum = analyse(fixed, scale)
    relative = 4 * xp.squeeze(relative_error(x, spectrum), axis=-1) + 64 * eps_of(s)
    relative = xp.astype(relative, x.dtype, copy=False)
    return xp.maximum(round_down(value, relative, constants_underflow(x, scale)), exact.two.lower)


def _maximiser(xp: Namespace, x: Array, s: Array, q: float, scale: float) -> Array:
    """A vector with a large quotient: the best start after a few steps, then many steps from it."""
    best, record = None, None
    for start in _starts(xp, x, s, q, scale):
        v = _climb(xp, s, start, q, _TRIAL_STEPS)
        reached = _quotient(xp, s, v, q)
        if best is None or record is None:
            best, record = v, reached
        else:
            best = xp.where(reached > record, v, best)
            record = xp.maximum(reached, record)
    return _climb(xp, s, best, q, _STEPS)


def _starts(xp: Namespace, x: Array, s: Array, q: float, scale: float) -> list[Array]:
    """The l2 eigenvector, one against the rest, and the best split into k largest and rest."""
    top = positions(x) == xp.expand_dims(xp.argmax(x, axis=-1), axis=-1)
    signs = xp.where(top, xp.ones_like(s), -xp.ones_like(s))
    starts = [eigenvector(analyse(x, scale)), signs]
    return [*starts, *_best_splits(xp, s, q)] if s.shape[-1] > 2 else starts


def _best_splits(xp: Namespace, s: Array, q: float) -> list[Array]:
    """The two-valued v, 1 on the k largest entries and −b on the rest, with the largest quotient.

    Two with other k besides, because the climb from the best split need not end highest.

    On flat rows the maximiser is of this kind with many entries on either side (Rolewicz: the norm
    of f − ∫f on L_p), and no other start finds it. With a = P(k largest) the q-th power of the
    quotient is (1+b)^q (A(1−a)^q + B a^q)/(k + (n−k)b^q), where A and B are the sums of sᵢ^q on
    either side; it is largest at b = (k/(n−k))^{1/(q−1)} whatever s is; all k are tried.
    """
    n = s.shape[-1]
    sorted_s = xp.flip(xp.sort(s, axis=-1), axis=-1)
    largest = sorted_s[..., :1]
    powers = (sorted_s / xp.where(largest == 0, xp.ones_like(largest), largest)) ** q
    inside, outside = running_sum(sorted_s), _reverse_sum(xp, sorted_s)
    k = xp.astype(positions(s)[:-1] + 1, s.dtype)
    b = (k / (n - k)) ** (1 / (q - 1))
    score = q * xp.log1p(b) - xp.log(k + (n - k) * b**q)
    left = xp.log(running_sum(powers))[..., :-1] + q * xp.log(outside[..., 1:])
    right = xp.log(_reverse_sum(xp, powers))[..., 1:] + q * xp.log(inside[..., :-1])
    best = xp.argmax(score + xp.maximum(left, right), axis=-1, keepdims=True) + 1
    rank = xp.argsort(xp.argsort(-s, axis=-1), axis=-1)
    splits = []
    for factor in (1.0, 0.6, 1.6):
        k = xp.clip(xp.round(factor * xp.astype(best, s.dtype)), 1, n - 1)
        inside = xp.astype(rank, s.dtype) < k
        splits.append(xp.where(inside, xp.ones_like(s), -((k / (n - k)) ** (1 / (q - 1)))))
    return splits


def _reverse_sum(xp: Namespace, x: Array) -> Array:
    """Sums of the entries from each position to the end."""
    return xp.flip(running_sum(xp.flip(x, axis=-1)), axis=-1)


def _climb(xp: Namespace, s: Array, v: Array, q: float, steps: int) -> Array:
    """Steps v ← ψ_q′(M ψ_q(M v)) of the nonlinear power method; the quotient never falls."""
    for _ in range(steps):
        u = signed_power(xp, _unit(xp, covariance_product(s, v)), q - 1)
        v = signed_power(xp, _unit(xp, covariance_product(s, u)), 1 / (q - 1))
    return v


def _quotient(xp: Namespace, s: Array, v: Array, q: float) -> Array:
    """‖Mv‖_q/‖v‖_q over the last axis, kept; 0 for v = 0."""
    size = lp_norm(v, q)
    safe = xp.where(size == 0, xp.ones_like(size), size)
    return xp.where(size == 0, xp.zeros_like(size), lp_norm(covariance_product(s, v), q) / safe)


def _unit(xp: Namespace, v: Array) -> Array:
    """Scale the largest entry to 1, so that powers neither over- nor underflow."""
    size = xp.max(xp.abs(v), axis=-1, keepdims=True)
    return v / xp.where(size == 0, xp.ones_like(size), size)


def signed_power(xp: Namespace, v: Array, exponent: float) -> Array:
    """sign(v)|v|^exponent, elementwise."""
    size = xp.abs(v) ** exponent
    return xp.where(v < 0, -size, size)
