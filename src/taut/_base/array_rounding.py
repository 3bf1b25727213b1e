"""Outward rounding of arrays of any library and precision: sides of bounds, one for each row.

The arithmetic of plain float64 numbers is in :mod:`taut._base.rounding`. Here the precision is that
of the array, and XLA may flush subnormal numbers to 0, so results are enlarged by two units in the
last place and by the unit of underflow: an operation that is rounded to nearest errs by half of
either, and multiplying and adding the allowance itself by less than the rest.
"""

from __future__ import annotations

import math

from taut._base.array import Array, eps_of, is_jax, namespace, quietly, widest
from taut._base.checks import check_range
from taut._base.rounding import hypotenuse, plus, toward


@quietly
def round_up(x: Array, relative: Array = 0.0, absolute: float = 0.0) -> Array:
    """A number above x(1 + relative) + absolute, whatever the last roundings did."""
    tiny, eps = _limits(x)
    return x + x * (relative + 2 * eps) + (absolute + tiny)


@quietly
def round_down(x: Array, relative: Array = 0.0, absolute: float = 0.0) -> Array:
    """A number in [0, x(1 − relative) − absolute], or 0 where that is empty."""
    tiny, eps = _limits(x)
    below = x - x * (relative + 2 * eps) - (absolute + tiny)
    if isinstance(below, float):
        return below if below > 0 else 0.0  # also where it is NaN
    xp = namespace(below)
    return xp.where(below > 0, below, xp.zeros_like(below))


@quietly
def product(a: Array, b: Array, *, up: bool) -> Array:
    """a·b for a, b ≥ 0, rounded up or down; exactly so for two Python numbers.

    What overflows, and the undefined product of 0 and infinity, is infinite from above and unknown
    from below.
    """
    if isinstance(a, float) and isinstance(b, float):
        result = a * b
        if not math.isfinite(result):
            return math.inf if up else 0.0
        return toward(result, lambda number: number(a) * number(b), up=up)
    array = b if isinstance(a, float) else a
    xp = namespace(array)
    # A plain number need not fit into float32.
    a, b = (_wide_factor(c, array) for c in (a, b))
    if up and is_jax(array):  # what XLA reads as 0 may have been subnormal
        a, b = (c if isinstance(c, float) else xp.maximum(c, _normal(c)) for c in (a, b))
    result = xp.astype(a * b, array.dtype, copy=False)
    finite = xp.isfinite(result)
    safe = xp.where(finite, result, xp.zeros_like(result))
    if up:
        return xp.where(finite, round_up(safe), xp.full_like(result, math.inf))
    return round_down(safe)


def _normal(x: Array) -> Array:
    return namespace(x).full_like(x, 2.0**-126 if "float32" in str(x.dtype) else 2.0**-1022)


def _wide_factor(c: Array, array: Array) -> Array:
    if not isinstance(c, float):
        return widest(c)
    check_range(c, array, name="the factor")
    return c


@quietly
def sum_up(a: Array, b: Array) -> Array:
    """The sum of two numbers ≥ 0, rounded up; exactly so for two Python numbers."""
    if isinstance(a, float) and isinstance(b, float):
        return plus(a, b)
    return round_up(a + b)


@quietly
def hypotenuse_up(a: Array, b: Array) -> Array:
    """√(a² + b²) for a, b ≥ 0, rounded up; hypot errs by less than two units in the last place."""
    if isinstance(a, float) and isinstance(b, float):
        return hypotenuse(a, b)
    array = b if isinstance(a, float) else a
    xp = namespace(array)
    a, b = (xp.full_like(array, c) if isinstance(c, float) else c for c in (a, b))
    return round_up(xp.hypot(a, b), 4 * eps_of(array))


def _limits(x: Array) -> tuple[float, float]:
    """Unit of underflow and eps of the precision that ``x`` is stored in.

    XLA flushes subnormal numbers to 0, operands and results: for JAX the unit is four times the
    smallest normal number.
    """
    if "float32" in str(getattr(x, "dtype", "")):
        return (2.0**-124 if is_jax(x) else 2.0**-149), 2.0**-23
    return (2.0**-1020 if is_jax(x) else 5e-324), 2.0**-52
