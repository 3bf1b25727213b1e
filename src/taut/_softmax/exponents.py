"""Exponents λ(x − r) of logits against a reference: no overflow on the way, no digits lost.

The difference comes first and the scale afterwards, so that nothing is multiplied which shift
invariance removes. A power of two of the scale is applied exactly, the rest of it is in [1, 2).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from taut._base.array import Array, Namespace, eps_of, stop_gradient, widest
from taut._base.checks import check_logits, check_range
from taut._base.reductions import row_max, row_min


class Exponents(NamedTuple):
    """λ(x − r) rounded, and what rounding took from it."""

    high: Array  # -inf where the product overflows
    low: Array  # a constant to automatic differentiation; 0 where exp(high) is 0


class _Factors(NamedTuple):
    """Factors whose product is the scale; all but the last are powers of two."""

    before: float  # of x and r, so that their difference does not overflow
    first: float  # two factors, as one alone may be out of range
    second: float
    rest: float  # in [1, 2), or 0


def shifted(xp: Namespace, x: Array, scale: float) -> tuple[Array, Array]:
    """Exponents λ(x − reference) ≤ 0, -inf where masked, and the reference logit of each row.

    The reference is the entry with the largest λx (theorem stable); it is a constant to automatic
    differentiation, which shift invariance allows.
    """
    reference, masked = _reference(xp, x, scale)
    if math.isinf(scale):
        high = _limit(xp, x, reference)
    else:
        high = scaled_difference(xp, xp.where(masked, reference, x), reference, scale)
    return xp.where(masked, xp.full_like(x, -math.inf), high), reference


def shifted_exactly(xp: Namespace, x: Array, scale: float) -> tuple[Exponents, Array]:
    """The same to twice the precision."""
    reference, masked = _reference(xp, x, scale)
    if math.isinf(scale):
        high, low = _limit(xp, x, reference), xp.zeros_like(x)
    else:
        high, low = exponents(xp, xp.where(masked, reference, x), reference, scale)
    return Exponents(xp.where(masked, xp.full_like(x, -math.inf), high), low), reference


def scaled_difference(xp: Namespace, x: Array, reference: Array, scale: float) -> Array:
    """λ(x − r) ≤ 0 to about one unit in the last place, for finite logits and a finite scale."""
    x, reference, scale, dtype = _workable(x, reference, scale)
    _, product = _product(x, reference, _factors(scale))
    return xp.astype(product, dtype, copy=False)


def exponents(xp: Namespace, x: Array, reference: Array, scale: float) -> Exponents:
    """λ(x − r) ≤ 0 to twice the precision wherever its exponential is not 0."""
    x, reference, scale, dtype = _workable(x, reference, scale)
    factors = _factors(scale)
    gap, product = _product(x, reference, factors)
    high = xp.astype(product, dtype, copy=False)
    x, reference, gap, product = (stop_gradient(part) for part in (x, reference, gap, product))
    low = _lost_in_product(xp, gap, product, factors.rest)
    low = low + _lost_in_difference(x, reference, factors) * factors.rest
    low = low + (product - xp.astype(stop_gradient(high), product.dtype, copy=False))
    low = xp.where(product > -_deep(product), low, xp.zeros_like(low))
    return Exponents(high, xp.astype(low, dtype, copy=False))


def _reference(xp: Namespace, x: Array, scale: float) -> tuple[Array, Array]:
    """The entry with the largest λx of each row, 0 where all are masked, and which are masked."""
    largest = row_max(x, keepdims=True)
    check_logits(xp, largest, name="x")
    masked = x == -math.inf
    if scale < 0:
        reference = row_min(xp.where(masked, xp.full_like(x, math.inf), x), keepdims=True)
        # Where nothing is refused, in traced code, +inf must not pass for a mask.
        unknown = xp.full_like(reference, math.nan)
        reference = xp.where(largest == math.inf, unknown, reference)
    else:
        reference = largest
    empty = largest == -math.inf
    return stop_gradient(xp.where(empty, xp.zeros_like(reference), reference)), masked


def _limit(xp: Namespace, x: Array, reference: Array) -> Array:
    """The exponents at an infinite scale: 0 at the extremal entries."""
    high = xp.where(x == reference, xp.zeros_like(x), xp.full_like(x, -math.inf))
    return high + 0 * reference  # NaN where the reference is, as where nothing is refused


def _workable(x: Array, reference: Array, scale: float) -> tuple[Array, Array, float, object]:
    """The same with a scale ≥ 0, in float64 if the scale is extreme for float32; and x's dtype."""
    check_range(scale, x, name="scale")
    dtype = x.dtype
    if scale < 0:
        x, reference, scale = -x, -reference, -scale
    return wide_if_extreme(x, scale), wide_if_extreme(reference, scale), scale, dtype


def wide_if_extreme(x: Array, scale: float) -> Array:
    """``x`` in float64 if float32 might lose the scale, or products with it."""
    return x if scale == 0 or 2.0**-100 <= abs(scale) <= 2.0**100 else widest(x)


def _factors(scale: float) -> _Factors:
    if scale == 0:
        return _Factors(0.5, 1.0, 1.0, 0.0)
    half, power = math.frexp(scale)
    rest, power = 2 * half, power - 1
    # A small scale may bring back the difference of two huge logits, a large one that of two
    # subnormal ones, which halving would round.
    before, power = (0.5, power + 1) if scale < 1 else (1.0, power)
    return _Factors(before, 2.0 ** (power // 2), 2.0 ** (power - power // 2), rest)


def _product(x: Array, reference: Array, factors: _Factors) -> tuple[Array, Array]:
    """(x − r) times the powers of two, and that times the rest."""
    gap = x * factors.before - reference * factors.before
    gap = gap * factors.first * factors.second
    return gap, gap * factors.rest


def _lost_in_difference(x: Array, reference: Array, factors: _Factors) -> Array:
    """What rounding took from x − r (Knuth's TwoSum), times the powers of two.

    Without it a tail of many equal weights inherits one rounding error of size |x − r| eps, the
    same in every term.
    """
    x, reference = x * factors.before, reference * factors.before
    difference = x - reference
    back = difference - x
    lost = (x - (difference - back)) + (-reference - back)
    return lost * factors.first * factors.second


def _lost_in_product(xp: Namespace, gap: Array, product: Array, rest: float) -> Array:
    """What rounding took from gap·rest, by halves so short that their product is exact.

    As deep as it matters, the upper half of the gap has 26 bits (12 in float32) in fixed point.
    """
    unit, bits = (2.0**5, 11) if eps_of(gap) > 1e-10 else (2.0**16, 25)
    gap = xp.maximum(gap, xp.full_like(gap, -_deep(gap)))
    upper = xp.round(gap * unit) / unit
    lower = gap - upper
    rest_upper = round(rest * 2.0**bits) / 2.0**bits
    rest_lower = rest - rest_upper  # with what float32 does not hold of the scale
    return (upper * rest_upper - product) + (lower * rest_upper + gap * rest_lower)


def _deep(x: Array) -> float:
    """Below minus this, an exponential is 0 in the precision of ``x``."""
    return 110.0 if eps_of(x) > 1e-10 else 800.0
