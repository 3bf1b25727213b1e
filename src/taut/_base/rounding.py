"""Outward rounding in float64: no result is below (or, from below, above) the exact one.

Numbers are ≥ 0. Python numbers in, a Python float out; with a NumPy array among the arguments, an
array out. NaN, such as ∞ − ∞, counts as an infinite upper bound and as 0 from below.

What the proofs assume: IEEE 754 binary64 rounded to nearest, so that +, ·, / and the square root
return a float next to the exact result or equal to it. The next float beyond is then on the safe
side of it, which is all that :func:`up` and :func:`down` do. Python numbers are compared with the
exact result, a fraction, and moved only if they lie on the wrong side. Functions of the C library
(exp, log, tanh, pow) are assumed to err by less than two units in the last place; whoever calls
them allows for that with :func:`enlarged`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from taut._base.array import quietly

Numbers = np.ndarray[Any, np.dtype[np.float64]]

TINY = 5e-324  # the smallest positive float
EPS = 2.0**-52  # from 1 to the next float; rounding to nearest errs by half of it


@overload
def number(value: float) -> float: ...
@overload
def number(value: Any) -> Numbers: ...
def number(value: Any) -> Any:
    """A float or a float64 array; NaN as infinity."""
    if isinstance(value, (float, int)):
        return math.inf if math.isnan(value) else float(value)
    array = np.asarray(value, dtype=np.float64)
    return np.where(np.isnan(array), np.inf, array)


@overload
def up(value: float) -> float: ...
@overload
def up(value: Any) -> Numbers: ...
def up(value: Any) -> Any:
    """The next float above; 0 stays 0.

    Never below the exact result of one correctly rounded operation, unless that underflowed to 0.
    """
    found = number(value)
    if isinstance(found, float):
        return math.nextafter(found, math.inf) if found else 0.0
    return np.where(found == 0, 0.0, np.nextafter(found, np.inf))


@overload
def down(value: float) -> float: ...
@overload
def down(value: Any) -> Numbers: ...
def down(value: Any) -> Any:
    """The next float below, but at least 0: never above the exact result of one operation ≥ 0."""
    if isinstance(value, (float, int)):
        return max(math.nextafter(value, -math.inf), 0.0) if value > 0 else 0.0
    array = np.asarray(value, dtype=np.float64)
    return np.where(array > 0, np.nextafter(array, -np.inf), 0.0)


@overload
def enlarged(value: float, units: float) -> float: ...
@overload
def enlarged(value: Any, units: Any) -> Numbers: ...
@quietly
def enlarged(value: Any, units: Any) -> Any:
    """At least value·(1 + units·EPS): for results that err by fewer than so many units.

    1 + 1.01·units·EPS + 3·EPS is computed with a relative error below EPS·(1 + units·EPS), and the
    product is moved up; a share of a hundredth covers the second order for units below 2^40.
    """
    return up(number(value) * (1 + (1.01 * units + 3) * EPS))


@quietly
def reduced(value: Any, units: Any) -> Any:
    """At most value·(1 − units·EPS), and at least 0; see :func:`enlarged`."""
    return down(value * (1 - (1.01 * units + 3) * EPS))


@overload
def times(*factors: float) -> float: ...
@overload
def times(*factors: Any) -> Numbers: ...
@quietly
def times(*factors: Any) -> Any:
    """Product, rounded up. A factor 0 makes it 0, whatever the others are, infinity included.

    A product that underflows to 0 is moved to the smallest positive float.
    """
    total: Any = 1.0
    for factor in map(number, factors):
        if isinstance(total, float) and isinstance(factor, float):
            total = _product(total, factor) if total and factor else 0.0
            continue
        product = number(total * factor)
        untouched = (total == 1) | (factor == 1)
        rounded = np.where(untouched, product, np.nextafter(product, np.inf))
        total = np.where((total == 0) | (factor == 0), 0.0, rounded)
    return total


@overload
def plus(*terms: float) -> float: ...
@overload
def plus(*terms: Any) -> Numbers: ...
@quietly
def plus(*terms: Any) -> Any:
    """Sum, rounded up. Sums of floats do not underflow; adding 0 is exact."""
    total: Any = 0.0
    for term in map(number, terms):
        if isinstance(total, float) and isinstance(term, float):
            total = _sum(total, term)
        else:
            total = np.where(total == 0, term, np.where(term == 0, total, up(total + term)))
    return total


@overload
def root(value: float) -> float: ...
@overload
def root(value: Any) -> Numbers: ...
@quietly
def root(value: Any) -> Any:
    """Square root, rounded up. Square roots neither overflow nor underflow."""
    found = number(value)
    if not isinstance(found, float):
        return up(np.sqrt(found))
    if math.isinf(found):
        return math.inf
    nearest = math.sqrt(found)
    # the square of the nearest float, rounded down or exact, decides: it is at most the exact one
    below = toward(nearest * nearest, lambda number: number(nearest) ** 2, up=False)
    return nearest if below >= found else math.nextafter(nearest, math.inf)


@overload
def hypotenuse(*terms: float) -> float: ...
@overload
def hypotenuse(*terms: Any) -> Numbers: ...
@quietly
def hypotenuse(*terms: Any) -> Any:
    """Root of the sum of squares, rounded up.

    All terms are first divided by one power of two near the largest, which is exact but where it
    underflows; :func:`up` sees to that. Squares then cannot overflow.
    """
    found = [number(term) for term in terms]
    largest: Any = 0.0
    for term in found:
        largest = np.maximum(largest, term)
    power = np.frexp(np.where(np.isfinite(largest), largest, 1.0))[1]
    scaled = [shifted(term, -power) for term in found]
    return shifted(root(plus(*(times(term, term) for term in scaled))), power)


@overload
def over(value: float, divisor: float) -> float: ...
@overload
def over(value: Any, divisor: Any) -> Numbers: ...
@quietly
def over(value: Any, divisor: Any) -> Any:
    """Quotient, rounded up; infinite where the divisor is 0. Give a divisor rounded down."""
    a, b = number(value), divisor
    if isinstance(a, float) and isinstance(b, (float, int)):
        if a == 0 and b != 0:
            return 0.0
        if b == 0 or math.isnan(b) or math.isinf(a):
            return math.inf
        return _moved_up(a / b, lambda number: number(a) / number(b)) if b < math.inf else TINY
    b = np.asarray(b, dtype=np.float64)
    quotient = np.nextafter(number(a / b), np.inf)
    return np.where(b == 0, np.inf, np.where(a == 0, 0.0, quotient))


def _product(a: float, b: float) -> float:
    """The product, moved up if it was rounded down.

    Where nothing comes near overflow or underflow, Dekker's splitting gives the error of the
    product exactly, ten times as fast as fractions do.
    """
    if not (1e-140 < a < 1e140 and 1e-140 < b < 1e140):
        return _moved_up(a * b, lambda number: number(a) * number(b))
    rounded = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    error = a2 * b2 - (((rounded - a1 * b1) - a2 * b1) - a1 * b2)
    return math.nextafter(rounded, math.inf) if error > 0 else rounded


def _halves(a: float) -> tuple[float, float]:
    """A sum of two numbers of 26 bits each, whose products are exact (Dekker 1971)."""
    shifted = 134217729.0 * a  # 2^27 + 1
    high = shifted - (shifted - a)
    return high, a - high


def _sum(a: float, b: float) -> float:
    """The sum, moved up if it was rounded down: its error is a float (Knuth's two-sum)."""
    rounded = a + b
    if not rounded < 1e300:
        return _moved_up(rounded, lambda number: number(a) + number(b))
    part = rounded - a
    error = (a - (rounded - part)) + (b - part)
    return math.nextafter(rounded, math.inf) if error > 0 else rounded


def toward(rounded: float, exactly: Callable[[Any], Any], *, up: bool) -> float:
    """The rounded number, moved by one float if it lies on the wrong side of the exact one."""
    from fractions import Fraction  # not at the top: it would slow down `import taut`

    exact = exactly(Fraction)
    if up and Fraction(rounded) < exact:
        return math.nextafter(rounded, math.inf)
    if not up and Fraction(rounded) > exact:
        return math.nextafter(rounded, 0.0)
    return rounded


def _moved_up(rounded: float, exactly: Callable[[Any], Any]) -> float:
    return toward(rounded, exactly, up=True) if math.isfinite(rounded) else math.inf


def shifted(value: Any, power: Any) -> Any:
    """value·2^power, moved up where it underflows."""
    found = np.ldexp(value, power)
    found = np.where(np.ldexp(found, -power) < value, np.nextafter(found, np.inf), found)
    return float(found) if isinstance(value, float) and np.ndim(found) == 0 else found
