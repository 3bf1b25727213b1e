"""Bounds known from above only: from a proof of the user's, or computed by this library."""

from __future__ import annotations

import math
from numbers import Real

from taut._base.array import Array
from taut._base.bound import Bound, Rounding
from taut._base.checks import as_float_array, exponent
from taut._base.domain import Domain, Everywhere
from taut._base.norm import Norm, lp
from taut._base.rounding import number

__all__ = ["bounded_above", "upper_bound"]

_ALL = Everywhere()


def upper_bound(
    value: Array, p: float = 2, q: float | None = None, *, domain: Domain | str = _ALL
) -> Bound:
    """A bound of your own, from a proof of yours: a Lipschitz constant known from above.

    A number that a float cannot hold is rounded up. Arrays hold one constant for each row.

    >>> upper_bound(3.0, p=2)
    Bound(at most 3, l2, all inputs; )
    """
    if isinstance(value, Real):
        value, lower = _float_above(value), 0.0
    else:
        xp, value = as_float_array(value, name="value")
        lower = xp.zeros_like(value)
    norm = lp(exponent(p), None if q is None else exponent(q, name="q"))
    return Bound(lower, value, "upper", norm, domain, (), rounding="proved")


def bounded_above(
    upper: float,
    norm: Norm,
    domain: Domain | str,
    theorem: str | tuple[str, ...],
    *,
    rounding: Rounding,
) -> Bound:
    """An upper bound with its provenance; NaN, left by an overflow, is an infinite bound."""
    return Bound(0.0, number(upper), "upper", norm, domain, theorem, rounding=rounding)


def _float_above(value: Real) -> float:
    """The smallest float that is not below the number."""
    try:
        found = float(value)
    except OverflowError:
        return math.inf
    return found if math.isnan(found) or found >= value else math.nextafter(found, math.inf)
