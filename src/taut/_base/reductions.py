"""Sums, norms and extremes over the last axis."""

from __future__ import annotations

import math

from taut._base.array import Array, Namespace, eps_of, is_jax, is_torch, namespace


def row_max(x: Array, *, keepdims: bool = False) -> Array:
    """The largest entry, NaN where there is one."""
    xp = namespace(x)
    return _kept_nan(xp, x, xp.max(x, axis=-1, keepdims=keepdims), keepdims)


def row_min(x: Array, *, keepdims: bool = False) -> Array:
    """The smallest entry, NaN where there is one."""
    xp = namespace(x)
    return _kept_nan(xp, x, xp.min(x, axis=-1, keepdims=keepdims), keepdims)


def _kept_nan(xp: Namespace, x: Array, found: Array, keepdims: bool) -> Array:
    if not is_jax(x):
        return found
    # XLA's own reductions on CPUs lose NaN in arrays of some thousand entries.
    lost = xp.any(xp.isnan(x), axis=-1, keepdims=keepdims)
    return xp.where(lost, xp.full_like(found, math.nan), found)


def running_sum(x: Array) -> Array:
    """Cumulative sum."""
    if is_torch(x):  # array-api-compat's wrapper cannot be followed by torch.compile
        return x.cumsum(-1)
    return namespace(x).cumulative_sum(x, axis=-1)


def tree_sum(xp: Namespace, x: Array) -> Array:
    """Sum, its axis kept, by halving: the error grows with log n on every backend."""
    carry = xp.zeros_like(x[..., :1])
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        if x.shape[-1] % 2:
            carry = carry + x[..., -1:]
        x = x[..., :half] + x[..., half : 2 * half]
    return x + carry


def lp_norm(v: Array, p: float) -> Array:
    """l_p norm, its axis kept, scaled so that powers neither over- nor underflow."""
    xp = namespace(v)
    size = row_max(xp.abs(v), keepdims=True)
    if p == math.inf:
        return size
    # Lift tiny vectors by a power of two: the derivative divides by the size.
    power = 2.0**60 if eps_of(v) > 1e-10 else 2.0**500
    lift = xp.where(size < 1 / power, xp.full_like(size, power), xp.ones_like(size))
    v, size = v * lift, size * lift
    empty = size == 0
    safe = xp.where(empty, xp.ones_like(size), size)
    total = xp.sum((xp.abs(v) / safe) ** p, axis=-1, keepdims=True)
    # The root has no derivative at 0; what stands there is multiplied by 0.
    return size * xp.where(empty, xp.ones_like(total), total) ** (1 / p) / lift
