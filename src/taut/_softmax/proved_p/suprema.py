"""One-dimensional suprema of the certificate (Lemmas 2 and 3 of the proof).

For p > 2, 0 <= T < 1 and m >= 0 the function

    h(v) = T |v - m|^p - |v|^p - c v

is convex on [-gamma m / (1 - gamma), gamma m / (1 + gamma)] with gamma = T^(1/(p-2)) and concave on
both sides of that interval.  A convex part is bounded by its end points and a concave one by any of
its tangents, so every value returned here is an upper bound wherever the iterations stop.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

Vector: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
_NEWTON_STEPS = 60
_TANGENT_ERROR = 1e-10  # stop once the tangent is this sharp; what is left is added to the bound


class Suprema(NamedTuple):
    """Suprema over v >= 0 and over v <= 0 (outside the excluded interval) and where they are."""

    plus: float
    plus_at: float
    minus: float
    minus_at: float


@njit(nogil=True)
def h_value(ratio: float, p: float, m: float, c: float, v: float) -> float:
    """Return h(v) for T = ratio^p and any sign of m and v."""
    return (ratio * abs(v - m)) ** p - abs(v) ** p - c * v


@njit(nogil=True)
def concave_maximum(
    coefficient: float,
    p: float,
    m: float,
    c: float,
    sign: float,
    low: float,
    high: float,
    guess: float,
) -> tuple[float, float]:
    """Bound the maximum of u -> h(sign * u) on [low, high], where it is concave.

    Safeguarded Newton steps; also returns the last u.  The bound is (value at u) + |slope at u| *
    (distance to the end of the bracket on the rising side): a tangent bounds a concave function.
    """
    left, right = low, high
    u = guess if low < guess < high else low
    bound = 0.0
    for _ in range(_NEWTON_STEPS):
        z = u - sign * m
        first = coefficient * abs(z) ** (p - 1.0)
        second = u ** (p - 1.0)
        attraction = math.copysign(first, z) - sign * c / p
        slope = attraction - second  # (d/du h(sign * u)) / p
        value = first * abs(z) - second * u - sign * c * u
        if slope < 0.0 and u <= low:
            return value, u
        if slope >= 0.0:
            left = u
            error = p * slope * (right - u)
        else:
            right = u
            error = -p * slope * (u - left)
        bound = value + error
        if error <= _TANGENT_ERROR * (1e-6 + second * u + first * abs(z)):
            return bound, u
        following = -1.0
        if attraction > 0.0 and z != 0.0:
            # Newton for u = attraction(u)^(1/(p-1)): nearly linear in u for every p
            root = attraction ** (1.0 / (p - 1.0))
            denominator = 1.0 - first / abs(z) * root / attraction
            if denominator > 1e-3:
                following = u - (u - root) / denominator
        if not left < following < right:
            following = 0.5 * (left + right)
        if following == u:
            return bound, u
        u = following
    return bound, u


@njit(nogil=True)
def side_supremum(
    coefficient: float,
    p: float,
    m: float,
    c: float,
    sign: float,
    start: float,
    inflection: float,
    end: float,
    guess: float,
) -> tuple[float, float]:
    """Bound sup of h(sign * u) over u >= start: convex up to inflection, falling beyond end."""
    at_start = coefficient * abs(start - sign * m) ** p - start**p - sign * c * start
    low = max(start, inflection)
    bound, u = concave_maximum(coefficient, p, m, c, sign, low, max(low, end), guess)
    if at_start > bound:
        return at_start, start
    return bound, u


@njit(nogil=True)
def both_sides(
    ratio: float,
    p: float,
    m: float,
    c: float,
    excluded: float,
    m_least: float,
    plus_guess: float,
    minus_guess: float,
) -> Suprema:
    """Bound the suprema of h over v >= 0 and v <= 0, for T = ratio^p and m >= 0.

    With g = excluded, v runs over v >= g m_least / (1 + g) and v <= -g m_least / (1 - g) only.
    """
    coefficient = ratio**p
    gamma = ratio ** (p / (p - 2.0))
    rho = ratio ** (p / (p - 1.0))
    exponent = 1.0 / (p - 1.0)
    plus_end = 0.0
    minus_end = rho * m
    if c < 0.0:
        plus_end = (-c / (p * (1.0 - coefficient))) ** exponent
    else:
        minus_end += (c / p) ** exponent
    minus_end /= 1.0 - rho
    plus, plus_at = side_supremum(
        coefficient,
        p,
        m,
        c,
        1.0,
        excluded * m_least / (1.0 + excluded),
        gamma * m / (1.0 + gamma),
        plus_end * (1.0 + 1e-9),
        plus_guess,
    )
    minus, minus_at = side_supremum(
        coefficient,
        p,
        m,
        c,
        -1.0,
        excluded * m_least / (1.0 - excluded),
        gamma * m / (1.0 - gamma),
        minus_end * (1.0 + 1e-9),
        minus_guess,
    )
    return Suprema(plus, plus_at, minus, -minus_at)


@njit(nogil=True)
def interval_supremum(
    ratio: float, p: float, m: float, c: float, low: float, high: float
) -> tuple[float, float]:
    """Bound sup of h over [low, high] (any signs, any m); also return the better end point."""
    flip = 1.0
    if m < 0.0:  # v -> -v
        flip, m, c, low, high = -1.0, -m, -c, -high, -low
    gamma = ratio ** (p / (p - 2.0))
    at_low, at_high = h_value(ratio, p, m, c, low), h_value(ratio, p, m, c, high)
    if low < -gamma * m / (1.0 - gamma) or high > gamma * m / (1.0 + gamma):
        # h need not be convex here, but T |v - m|^p - c v is, and |v| >= nearest
        nearest = 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))
        at_low += abs(low) ** p - nearest**p
        at_high += abs(high) ** p - nearest**p
    return max(at_low, at_high), flip * (low if at_low > at_high else high)
