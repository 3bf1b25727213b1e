"""Outward rounding: numbers that are surely above or below what was meant."""

from __future__ import annotations

import math
from fractions import Fraction

from taut._array import Array, namespace


def round_up(x: Array, relative: Array = 0.0, absolute: float = 0.0) -> Array:
    """A number above x(1 + relative) + absolute, whatever the last roundings did."""
    tiny, eps = _limits(x)
    return x + x * (relative + 2 * eps) + (absolute + tiny)


def round_down(x: Array, relative: Array = 0.0, absolute: float = 0.0) -> Array:
    """A number in [0, x(1 − relative) − absolute], or 0 where that is empty."""
    tiny, eps = _limits(x)
    below = x - x * (relative + 2 * eps) - (absolute + tiny)
    if isinstance(below, float):
        return max(below, 0.0)
    xp = namespace(below)
    return xp.maximum(below, xp.zeros_like(below))


def product(a: Array, b: Array, *, up: bool) -> Array:
    """a·b for a, b ≥ 0, rounded up or down; exactly so for two Python numbers."""
    if not (isinstance(a, float) and isinstance(b, float) and math.isfinite(a * b)):
        return round_up(a * b) if up else round_down(a * b)
    return _toward(a * b, Fraction(a) * Fraction(b), up=up)


def sum_up(a: Array, b: Array) -> Array:
    """A + b for a, b ≥ 0, rounded up; exactly so for two Python numbers."""
    if not (isinstance(a, float) and isinstance(b, float) and math.isfinite(a + b)):
        return round_up(a + b)
    return _toward(a + b, Fraction(a) + Fraction(b), up=True)


def _toward(rounded: float, exact: Fraction, *, up: bool) -> float:
    """The rounded number, moved by one unit if it lies on the wrong side of the exact one."""
    if up and Fraction(rounded) < exact:
        return math.nextafter(rounded, math.inf)
    if not up and Fraction(rounded) > exact:
        return math.nextafter(rounded, 0.0)
    return rounded


def _limits(x: Array) -> tuple[float, float]:
    """Smallest positive number and eps of the precision that ``x`` is stored in."""
    if "float32" in str(getattr(x, "dtype", "")):
        return 2.0**-149, 2.0**-23
    return 5e-324, 2.0**-52
