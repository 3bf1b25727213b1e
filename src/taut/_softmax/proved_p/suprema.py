"""One-dimensional suprema of the certificate (Lemmas 2 and 3 of the proof).

For p > 2, 0 <= T < 1 and m >= 0 the function

    h(v) = T |v - m|^p - |v|^p - c v

is convex on [-gamma m / (1 - gamma), gamma m / (1 + gamma)] with gamma = T^(1/(p-2)) and concave on
both sides of that interval.  A convex part is bounded by its end points and a concave one by any of
its tangents, so every value returned here is an upper bound wherever the iterations stop.

Rounding is part of the bounds.  A term of h, or of its slope, that is computed from floats by
products and one power is off by less than (p + 8) eps of itself, if the power of the C library is
off by less than two units in the last place; ``unit`` is twice that, for the sums.  The inflection
is known to one part in 10^9 (1 - gamma >= 1e-6), and is moved by as much: on the stretch in between
h is concave with second derivative above -p^2 u^(p-2), and exceeds the larger end by no more than
``shape`` u^p.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

Vector: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
_NEWTON_STEPS = 60
_EPS = 2.0**-52
_APART = 1e-9  # beyond the error of inflection points and of the ends of brackets
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
def rounding_unit(p: float) -> float:
    """Return what bounds the rounding of a sum of terms, as a share of their sizes."""
    return 2.0 * (p + 8.0) * _EPS


@njit(nogil=True)
def concave_maximum(
    ratio: float,
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
    The bracket shrinks only where the sign of the slope is certain.
    """
    left, right = low, high
    u = guess if low < guess < high else low
    bound, unit, shape = 0.0, rounding_unit(p), 3e-18 * p * p
    for _ in range(_NEWTON_STEPS):
        z = u - sign * m
        first = ratio * (ratio * abs(z)) ** (p - 1.0)  # a power of z alone may overflow
        second = u ** (p - 1.0)
        attraction = math.copysign(first, z) - sign * c / p
        slope = attraction - second  # (d/du h(sign * u)) / p
        doubt = unit * (first + second + abs(c) / p)
        sizes = first * abs(z) + second * u
        value = first * abs(z) - second * u - sign * c * u
        value += unit * (sizes + abs(c) * u) + shape * second * u
        if slope < -doubt and u <= low:
            return value, u
        if slope > doubt:
            left = u
            error = p * (slope + doubt) * (right - u)
        elif slope < -doubt:
            right = u
            error = p * (doubt - slope) * (u - left)
        else:
            return value + 2.0 * p * doubt * (right - left), u
        bound = value + error * (1.0 + 1e-14)
        if error <= _TANGENT_ERROR * (1e-6 + sizes):
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
    ratio: float,
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
    low = max(start, inflection * (1.0 + _APART))
    end *= 1.0 + _APART
    bound, u = concave_maximum(ratio, p, m, c, sign, low, max(low, end), guess)
    if start < low:
        gained, lost = (ratio * abs(start - sign * m)) ** p, start**p
        at_start = gained - lost - sign * c * start
        at_start += rounding_unit(p) * (gained + lost + abs(c) * start)
        if at_start > bound:
            bound, u = at_start, start
        elif not at_start <= bound:  # NaN bounds nothing
            bound = np.inf
    return (bound, u) if bound < np.inf else (np.inf, u)


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
        ratio,
        p,
        m,
        c,
        1.0,
        excluded * m_least / (1.0 + excluded),
        gamma * m / (1.0 + gamma),
        plus_end,
        plus_guess,
    )
    minus, minus_at = side_supremum(
        ratio,
        p,
        m,
        c,
        -1.0,
        excluded * m_least / (1.0 - excluded),
        gamma * m / (1.0 - gamma),
        minus_end,
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
    gamma = ratio ** (p / (p - 2.0)) * (1.0 - _APART)
    # Where h need not be convex, T |v - m|^p - c v still is, and |v| >= nearest.
    convex = -gamma * m / (1.0 - gamma) <= low and high <= gamma * m / (1.0 + gamma)
    nearest = 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))
    best, best_at = -np.inf, low
    for v in (low, high):
        gained = (ratio * abs(v - m)) ** p
        lost = (abs(v) if convex else nearest) ** p
        bound = gained - lost - c * v + rounding_unit(p) * (gained + lost + abs(c * v))
        if not bound < np.inf:  # NaN bounds nothing
            return np.inf, flip * v
        if bound > best:
            best, best_at = bound, v
    return best, flip * best_at
