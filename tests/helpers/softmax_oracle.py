"""Arbitrary-precision reference values, and rows of logits that are hard for floating point."""

from __future__ import annotations

import math

import numpy as np
from flint import arb, ctx

BITS = 200
TINY = arb(2.0**-100)


def exact_constants(row: np.ndarray, scale: float = 1.0, bits: int = BITS) -> tuple[arb, arb]:
    """‖J‖₁ and ‖J‖₂ at the given floating-point logits, as balls far narrower than a double."""
    ctx.prec = bits
    finite = [arb(float(value)) for value in row if value != -math.inf]
    zero = arb(0)
    if len(finite) < 2:
        return zero, zero
    lam = arb(float(scale))
    top = max(float(value) for value in row)
    exponents = sorted((float(value) for value in row if value != -math.inf), reverse=True)[1:]
    e = [(lam * (arb(value) - arb(top))).exp() for value in exponents]
    tail = sum(e, zero)
    total = 1 + tail
    one = lam * 2 * tail / (total * total)
    if exponents[0] == top or scale == 0:
        return one, lam / total
    return one, lam * _root(e) / total


def _root(e: list[arb]) -> arb:
    """Root X in (e₂, 1) of (1 − X)(T + Σ e²/(X − e)) = X by Newton from below: monotone."""
    tail = sum(e, arb(0))
    total = 1 + tail
    first, second, cross = tail / total, e[0] * (1 - e[0] / total), e[0] / total
    half = (first - second) / 2
    x = _mid((first + second) / 2 + (half * half + cross * cross).sqrt())
    for _ in range(60):
        ratios = [value / (x - value) for value in e]
        s = tail + sum((value * r for value, r in zip(e, ratios, strict=True)), arb(0))
        slope = 1 + s + (1 - x) * sum((r * r for r in ratios), arb(0))
        step = ((1 - x) * s - x) / slope
        x = _mid(x + step)
        if abs(_mid(step)) < x * TINY:
            return x
    raise AssertionError("the oracle did not converge")


def _mid(x: arb) -> arb:
    return arb(x.mid())


def split(value: arb) -> tuple[float, float]:
    """The value as a sum of two doubles, for fast comparison."""
    high = float(value.mid())
    return high, float((value - arb(high)).mid())


def relative_error(computed: np.ndarray, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """|computed − exact| / exact with exact = high + low, 0 where both vanish."""
    difference = np.abs((computed.astype(np.float64) - high) - low)
    return np.divide(difference, high, out=np.zeros_like(difference), where=high > 0)


CATEGORIES = (
    "normal",
    "tiny scale",
    "huge scale",
    "exact ties",
    "near ties",
    "one hot",
    "uniform",
    "constant tail",
    "two level tail",
    "masked",
    "offset",
)


def hard_rows(category: str, dtype: str, count: int, seed: int) -> list[np.ndarray]:
    """Rows of the given kind: n from 2 to 4,096, mostly small, as the dtype."""
    rng = np.random.default_rng([seed, CATEGORIES.index(category), len(dtype)])
    return [_hard_row(category, rng, np.dtype(dtype)) for _ in range(count)]


def _length(rng: np.random.Generator) -> int:
    low, high = ((2, 8), (2, 8), (9, 64), (65, 300), (300, 4096))[
        rng.choice(5, p=[0.4, 0.27, 0.25, 0.06, 0.02])
    ]
    return int(rng.integers(low, high, endpoint=True))


def _hard_row(category: str, rng: np.random.Generator, dtype: np.dtype) -> np.ndarray:
    n = _length(rng)
    normal = rng.standard_normal(n)
    if category == "normal":
        x = normal * 10 ** rng.uniform(-1, 1.3)
    elif category == "tiny scale":
        x = normal * 10 ** rng.uniform(-6, -2)
    elif category == "huge scale":
        x = normal * 10 ** rng.uniform(1.5, 4)
    elif category == "exact ties":
        x = normal * 10 ** rng.uniform(-2, 1)
        x[rng.integers(0, n, size=rng.integers(1, n, endpoint=True))] = np.max(x)
    elif category == "near ties":
        x = (normal * 10 ** rng.uniform(-2, 1)).astype(dtype)
        order = np.argsort(-x)
        steps = int(rng.integers(1, 4))
        value = x[order[0]]
        for k in range(1, int(rng.integers(2, min(n, 5), endpoint=True))):
            for _ in range(steps):
                value = np.nextafter(value, dtype.type(-np.inf))
            x[order[k]] = value
    elif category == "one hot":
        x = normal - rng.uniform(20, 120 if dtype == np.float32 else 780)
        x[rng.integers(0, n)] = rng.standard_normal()
    elif category == "uniform":
        x = np.full(n, rng.standard_normal() * 10 ** rng.uniform(-3, 3))
    elif category == "constant tail":
        x = np.full(n, -rng.uniform(0, 40))
        x[rng.integers(0, n)] = rng.uniform(0, 1)
    elif category == "two level tail":
        x = np.full(n, -rng.uniform(3, 12))
        x[: max(2, n // 50)] = -rng.uniform(0, 3)
        x[0] = 0.0
    elif category == "masked":
        x = normal * 10 ** rng.uniform(-1, 1)
        x[rng.random(n) < rng.uniform(0, 0.9)] = -np.inf
        if np.all(np.isinf(x)):
            x[0] = 0.0
    else:  # a large common offset costs the logits their low bits, not the constants their accuracy
        x = normal * 10 ** rng.uniform(-1, 1) + rng.standard_normal() * 1e3
    return x.astype(dtype)
