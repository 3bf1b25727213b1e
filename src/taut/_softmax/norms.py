"""Induced norms of the Jacobian at a point, and the directions that attain them."""

from __future__ import annotations

import math

from taut._base.array import Array, namespace, positions, stop_gradient
from taut._base.checks import check_logits, check_range, dual_exponent, exponent
from taut._base.reductions import lp_norm, row_max
from taut._softmax.any_p import any_p, power_direction
from taut._softmax.exact import Exact
from taut._softmax.functions import softmax
from taut._softmax.jacobian import covariance_product
from taut._softmax.mixed import half_signs, inf_to_one, largest_column, one_to_q
from taut._softmax.power_method import signed_power
from taut._softmax.secular import analyse, eigenvector
from taut._softmax.sides import Sides


def check_pair(p: float, q: float | None) -> tuple[float, float]:
    """Check the exponents of input and output norm; refuse pairs that have no method."""
    p = exponent(p)
    q = p if q is None else exponent(q, name="q")
    if p != q and p != 1 and q != math.inf and (p, q) != (math.inf, 1):
        raise ValueError(
            f"the norm l{p:g}->l{q:g} is not available; available are p = q, 1->q, p->inf and "
            "inf->1"
        )
    return p, q


def positive_scale(x: Array, scale: float) -> tuple[Array, float]:
    """The same softmax with a scale ≥ 0: the logits change sign, masked ones stay masked."""
    check_range(scale, x, name="scale")
    if scale >= 0:
        return x, scale
    xp = namespace(x)
    check_logits(xp, row_max(x), name="x")  # before +inf turns into a mask
    # Nothing is refused while traced: +inf becomes NaN, which no mask is.
    turned = xp.where(x == math.inf, xp.full_like(x, math.nan), -x)
    return xp.where(x == -math.inf, x, turned), -scale


def induced_norm(
    x: Array, p: float, q: float, scale: float, exact: Exact, *, tight: bool = False
) -> Sides:
    """λ‖M‖_{p→q} of every row (last axis), scale ≥ 0, given the exact constants of the rows."""
    if p == q:
        if p in (1, math.inf):
            return exact.one
        return exact.two if p == 2 else any_p(x, p, scale, exact, tight=tight)
    if p == 1:
        return one_to_q(x, scale, q, exact)
    if q == math.inf:
        return one_to_q(x, scale, dual_exponent(p), exact)
    return inf_to_one(x, scale, exact)


def direction(x: Array, p: float, q: float, scale: float) -> Array:
    """Unit vector in l_p that attains ‖M‖_{p→q}, or its lower side, positive at the top entry."""
    xp = namespace(x)
    largest = row_max(x, keepdims=True)
    check_logits(xp, largest, name="x")
    x, unknown = stop_gradient(x), xp.isnan(largest) | (largest == math.inf)
    top = positions(x) == xp.expand_dims(xp.argmax(x, axis=-1), axis=-1)
    ones = xp.ones_like(x)
    if p == 1:
        v = xp.astype(positions(x) == largest_column(x, scale, q), x.dtype)
    elif p == q == 2:
        v = xp.astype(eigenvector(analyse(x, scale)), x.dtype, copy=False)
    elif p == q == math.inf:
        v = xp.where(top, ones, -ones)
    elif q == math.inf:
        v = _dual_direction(x, p, scale)
    elif p == math.inf:
        v = half_signs(x, scale)
    else:
        v = power_direction(x, p, scale)
    v = xp.where(x == -math.inf, xp.zeros_like(v), v)
    return xp.where(unknown, xp.full_like(v, math.nan), v)  # traced code refuses nothing


def _dual_direction(x: Array, p: float, scale: float) -> Array:
    """Maximiser of |⟨row, v⟩| over ‖v‖_p = 1 for the row of M that is largest in l_p′."""
    xp = namespace(x)
    s = softmax(x, scale=scale)
    pick = xp.astype(positions(x) == largest_column(x, scale, dual_exponent(p)), x.dtype)
    row = covariance_product(s, pick)
    size = row_max(xp.abs(row), keepdims=True)
    empty = size == 0
    row = xp.where(empty, pick, row) / xp.where(empty, xp.ones_like(size), size)
    v = signed_power(xp, row, 1 / (p - 1))
    v = v / lp_norm(v, p)
    top = positions(x) == xp.expand_dims(xp.argmax(x, axis=-1), axis=-1)
    at_top = xp.sum(xp.where(top, v, xp.zeros_like(v)), axis=-1, keepdims=True)
    return xp.where(at_top < 0, -v, v)
