"""Whether sides of the exact constants hold, for blocks of rows at once, in extended precision.

With the weights eᵢ = exp(λ(xᵢ − x₁)) below the top, T their sum and Z = 1 + T, ‖M‖₁ = 2T/Z², and
‖M‖₂ = X/Z where G(X) = (1 − X)(T + Σ eᵢ²/(X − eᵢ)) − X falls through 0 on (e₂, 1). So a side of
‖M‖₂ needs no root: it holds if G has the right sign there.

Rounding: weights with relative errors of at most η belong to logits that are off by η, and
‖M‖ = max Var_s(v) changes by a factor of at most exp(2η) with them. Sides are moved inward by that
before they are tested, and a sign counts only if it exceeds the error of the sums. Rows that this
leaves open are decided by Arb.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fuzz.case import Array
from tests.helpers import softmax_oracle

WIDE = np.longdouble
EPS = float(np.finfo(WIDE).eps)
FAR = 11000.0  # depth at which weights underflow even here
BLOCK = 64


class Sides(NamedTuple):
    """Lower side, value and upper side of the constants of every row, in any precision."""

    lower: Array
    value: Array
    upper: Array


class Weights(NamedTuple):
    """The rows in units of their largest weight."""

    e: Array  # 0 at the top
    second: Array
    tail: Array
    margin: Array  # what rounding may have done to either constant, relatively
    empty: Array  # rows whose other weights are masked: the constants are 0
    sunk: Array  # rows whose other weights underflow here: the constants are below 1e-4700


def _sum(x: Array) -> Array:
    """Sums along the rows in two levels, so that at most 192 roundings add up for 8192 entries."""
    rows, n = x.shape
    whole = -(-n // BLOCK) * BLOCK
    if whole != n:
        x = np.concatenate([x, np.zeros((rows, whole - n), x.dtype)], axis=1)
    return x.reshape(rows, -1, BLOCK).sum(axis=2).sum(axis=1)


def _sum_error(n: int) -> float:
    return (BLOCK + -(-n // BLOCK) + 8) * EPS


def weights(x: Array, scale: float) -> Weights:
    """The weights of rows of floating-point logits, the scale of either sign."""
    if scale < 0:
        x, scale = np.where(x == -np.inf, x, -x), -scale
    places = np.arange(len(x)), np.argmax(x, axis=1)
    with np.errstate(over="ignore", under="ignore"):
        depth = (x[places][:, None].astype(WIDE) - x.astype(WIDE)) * WIDE(scale)
        depth[places] = np.inf
        e = np.exp(-np.minimum(depth, 2 * FAR))
    e[depth > 1.5 * FAR] = 0
    nearest = depth.min(axis=1)
    # Weights far below the second do not count: they change the constants by exp(-100) at most.
    deepest = depth.max(axis=1, initial=0, where=np.isfinite(depth))
    counted = np.minimum(np.minimum(nearest + 100, FAR), deepest)
    margin = 2 * (2 * counted.astype(float) + 4) * EPS + _sum_error(x.shape[1])
    others = (x > -np.inf).sum(axis=1) > 1
    return Weights(e, e.max(axis=1), _sum(e), margin, ~others, others & (nearest > FAR))


def _secular(w: Weights, x: Array) -> tuple[Array, Array, Array]:
    """G(X), its size and its slope where e₂ < X < 1; nothing is promised elsewhere."""
    distance = x[:, None] - w.e
    with np.errstate(all="ignore"):
        ratio = np.where(distance > 0, w.e / distance, 0)
        s = w.tail + _sum(w.e * ratio)
        first = (1 - x) * s
        slope = 1 + s + (1 - x) * _sum(ratio * ratio)
    return first - x, np.abs(first) + np.abs(x), slope


def one_ratio(w: Weights, scale: float, sides: Sides) -> tuple[Array, Array]:
    """Share of the allowed error that ‖J‖₁ used, and whether both sides hold for certain."""
    scale = abs(scale)
    lower, value, upper = (side.astype(WIDE) for side in sides)
    total = 1 + w.tail
    truth = WIDE(scale) * (2 * w.tail / (total * total))
    sure = (lower <= truth * (1 - w.margin)) & (truth * (1 + w.margin) <= upper)
    sure |= (lower <= truth * (1 - w.margin)) & (upper >= WIDE(scale) / 2)
    return _share(truth, lower, value, upper, scale), _or_nothing(w, sides, sure)


def two_ratio(w: Weights, scale: float, sides: Sides) -> tuple[Array, Array]:
    """Share of the allowed error that ‖J‖₂ used, and whether both sides hold for certain."""
    scale = abs(scale)
    lower, value, upper = (side.astype(WIDE) for side in sides)
    with np.errstate(all="ignore"):
        unit = (1 + w.tail) / WIDE(scale)
        below, above = lower * unit * (1 + w.margin), upper * unit * (1 - w.margin)
        doubt = _sum_error(w.e.shape[1])
        g, size, _ = _secular(w, below)
        sure = (below <= w.second) | ((below < 1) & (g > doubt * size))
        g, size, _ = _secular(w, above)
        sure &= (
            (above >= 1) | (upper >= WIDE(scale) / 2) | ((above > w.second) & (g < -doubt * size))
        )
        x = value * unit
        for _ in range(3):
            x = np.clip(x, w.second, 1)
            g, _, slope = _secular(w, x)
            x = np.where((x > w.second) & (x < 1), x + g / slope, x)
        truth = np.clip(x, w.second, 1) / unit
    return _share(truth, lower, value, upper, scale), _or_nothing(w, sides, sure)


def _or_nothing(w: Weights, sides: Sides, sure: Array) -> Array:
    """Rows with nothing below the top have the constant 0, with next to nothing almost 0."""
    sure = np.where(w.empty, (sides.lower == 0) & (sides.upper >= 0), sure)
    return np.where(w.sunk, (sides.lower == 0) & (sides.upper > 0), sure)


def _share(truth: Array, lower: Array, value: Array, upper: Array, scale: float) -> Array:
    """How far the value is off, over how far its side is; sides at the ends of the range are safe.

    No constant is below 0 or above λ/2, so that a side there cannot be broken.
    """
    off = truth - value
    with np.errstate(all="ignore"):
        above = np.where(upper >= WIDE(scale) / 2, 0, off / (upper - value))
        below = np.where(lower <= 0, 0, -off / (value - lower))
    share = np.maximum(np.where(off > 0, above, 0), np.where(off < 0, below, 0))
    return np.where(np.isnan(value), np.nan, share).astype(float)


def by_arb(row: Array, scale: float, sides: list[tuple[float, float]]) -> list[bool]:
    """Whether lower and upper side of ‖J‖₁ and ‖J‖₂ of one row hold, to any precision needed."""
    row = row.astype(np.float64)
    if scale < 0:
        row, scale = np.where(row == -np.inf, row, -row), -scale
    held = [False, False]
    for bits in (400, 4000):
        exact = softmax_oracle.exact_constants(row, scale, bits=bits)
        held = [
            bool(softmax_oracle.arb(low) <= truth) and bool(truth <= softmax_oracle.arb(high))
            for truth, (low, high) in zip(exact, sides, strict=True)
        ]
        if all(held):
            break
    return held
