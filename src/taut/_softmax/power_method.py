"""The nonlinear power method for the p-norm of M(s) in array-API form, where nothing is compiled.

Its steps v ← ψ_q′(M ψ_q(M v)), ψ_q(w) = sign(w)|w|^(q−1), never lower the quotient ‖Mv‖_q/‖v‖_q.
Any v gives a lower bound of the norm; fixed points can be local maxima.
"""

from __future__ import annotations

from taut._base.array import Array, Namespace, namespace, positions
from taut._base.reductions import lp_norm, row_max, running_sum
from taut._softmax.jacobian import covariance_product
from taut._softmax.secular import analyse, eigenvector

_TRIAL_STEPS, _STEPS = 3, 30


def maximiser(x: Array, s: Array, q: float, scale: float) -> Array:
    """A vector with a large quotient: the best start after a few steps, then many steps from it."""
    xp = namespace(x)
    best, record = None, None
    for start in _starts(xp, x, s, q, scale):
        v = _climb(xp, s, start, q, _TRIAL_STEPS)
        reached = quotient(xp, s, v, q)
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
        u = signed_power(xp, unit(xp, covariance_product(s, v)), q - 1)
        v = signed_power(xp, unit(xp, covariance_product(s, u)), 1 / (q - 1))
    return v


def quotient(xp: Namespace, s: Array, v: Array, q: float) -> Array:
    """‖Mv‖_q/‖v‖_q over the last axis, kept; 0 for v = 0."""
    size = lp_norm(v, q)
    safe = xp.where(size == 0, xp.ones_like(size), size)
    return xp.where(size == 0, xp.zeros_like(size), lp_norm(covariance_product(s, v), q) / safe)


def unit(xp: Namespace, v: Array) -> Array:
    """Scale the largest entry to 1, so that powers neither over- nor underflow."""
    size = row_max(xp.abs(v), keepdims=True)
    return v / xp.where(size == 0, xp.ones_like(size), size)


def signed_power(xp: Namespace, v: Array, exponent: float) -> Array:
    """sign(v)|v|^exponent, elementwise."""
    size = xp.abs(v) ** exponent
    return xp.where(v < 0, -size, size)
