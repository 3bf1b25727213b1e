"""Softmax, its Jacobian and its steps in extended precision, for many rows at once.

M is applied after the entry of v at the largest probability was taken off all of v, which changes
nothing as M1 = 0; then nothing cancels, however peaked the row is.
"""

from __future__ import annotations

import numpy as np

from fuzz.case import Array

WIDE = np.longdouble
# More than what the numbers below may err by, relatively; a quarter of double precision's unit.
DOUBT = 2.0**-54


def probabilities(x: Array, scale: float) -> Array:
    """Softmax of every row of logits, the scale of either sign."""
    masked = x == -np.inf
    away = np.where(masked, -np.inf if scale > 0 else np.inf, x).astype(WIDE)
    top = away.max(axis=-1, keepdims=True) if scale > 0 else away.min(axis=-1, keepdims=True)
    e = np.exp((away - top) * WIDE(scale))  # differences first: they lose nothing, or little
    return e / e.sum(axis=-1, keepdims=True)


def norm(v: Array, p: float) -> Array:
    """The l_p norm of every row."""
    size = np.abs(v)
    top = size.max(axis=-1, keepdims=True)
    if np.isinf(p):
        return top[..., 0]
    unit = size / np.where(top > 0, top, 1)
    return top[..., 0] * (unit ** WIDE(p)).sum(axis=-1) ** (1 / WIDE(p))


def product(s: Array, v: Array) -> Array:
    """M(s)v for rows of probabilities and of vectors."""
    w = _from_top(s, v)
    return s * (w - (s * w).sum(axis=-1, keepdims=True))


def _from_top(s: Array, v: Array) -> Array:
    """V less its entry where s is largest."""
    shape = np.broadcast_shapes(s.shape, v.shape)
    top = np.broadcast_to(np.argmax(s, axis=-1)[..., None], (*shape[:-1], 1))
    v = np.broadcast_to(v, shape)
    return v - np.take_along_axis(v, top, axis=-1)


def quotient(s: Array, v: Array, p: float, q: float) -> Array:
    """‖M(s)v‖_q/‖v‖_p, 0 where v is 0."""
    size = norm(v, p)
    return np.where(size > 0, norm(product(s, v), q) / np.where(size > 0, size, 1), 0)


def change(z: Array, d: Array, scale: float) -> Array:
    """softmax(λ(z + d)) − softmax(λz); steps that are small lose no digits."""
    s = probabilities(z, scale)
    step = _from_top(s, d.astype(WIDE)) * WIDE(scale)  # differences first: they are exact
    grown = np.expm1(np.clip(step, -1, 1))
    mean = (s * grown).sum(axis=-1, keepdims=True)
    far = np.abs(step).max(axis=-1, keepdims=True) > 1
    return np.where(
        far, probabilities(z + d.astype(WIDE), scale) - s, s * (grown - mean) / (1 + mean)
    )
