"""The Jacobian of the softmax, dense and as a product, and the smoothness of log-sum-exp."""

from __future__ import annotations

import math

from taut._base.array import Array, known, namespace, positions, quietly, to_host
from taut._base.array_rounding import product
from taut._base.bound import Bound
from taut._base.checks import as_float_array, restore_axis, rows, same_library, scale_value
from taut._base.domain import Everywhere
from taut._base.matrix_norm import spectral
from taut._base.norm import lp
from taut._base.reductions import row_max
from taut._softmax.exponents import wide_if_extreme
from taut._softmax.functions import softmax
from taut._softmax.sides import ALL

__all__ = ["jacobian", "jvp", "logsumexp_smoothness"]

_NOT_AT_INFINITY = "the limit of the softmax has no derivative"


@quietly
def jacobian(x: Array, *, axis: int = -1, scale: float = 1.0) -> Array:
    """Dense Jacobian λ(Diag(s) − ssᵀ) of softmax(λx) (theorem jacobian).

    The axis is replaced by two trailing ones: the result has shape (..., n, n). It is symmetric,
    its rows sum to 0, and a masked entry has a zero row and column. For products with a vector use
    :func:`jvp`, which needs no matrix.

    >>> jacobian([0.0, 0.0])
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    """
    scale = scale_value(scale, infinite=_NOT_AT_INFINITY)
    xp, x = rows(x, axis=axis, name="x")
    s = softmax(wide_if_extreme(x, scale), scale=scale)
    # Powers of two of the scale first: products of small probabilities would underflow.
    power = max(0, math.frexp(scale)[1] // 2)
    lifted = s * 2.0**power
    column, row = xp.expand_dims(lifted, axis=-1), xp.expand_dims(lifted, axis=-2)
    indices = positions(s)
    diagonal = xp.expand_dims(indices, axis=-1) == indices
    # 1 − sᵢ as the sum of the others: subtraction has no correct digit on a peaked row.
    rest = xp.sum(xp.where(diagonal, xp.zeros_like(column * row), row + 0 * column), axis=-1)
    products = xp.where(diagonal, column * xp.expand_dims(rest, axis=-1), -column * row)
    return xp.astype(scale * 2.0 ** (-2 * power) * products, x.dtype, copy=False)


@quietly
def jvp(x: Array, v: Array, *, axis: int = -1, scale: float = 1.0) -> Array:
    """Jacobian-vector product λ s∘(v − ⟨s, v⟩1), in O(n) and without the matrix.

    The Jacobian is symmetric, so this is the vector-Jacobian product as well.

    >>> jvp([0.0, 0.0], [1.0, -1.0])
    array([ 0.5, -0.5])
    """
    scale = scale_value(scale, infinite=_NOT_AT_INFINITY)
    _, x = rows(x, axis=axis, name="x")
    xp, v = rows(v, axis=axis, name="v")
    same_library(x, v, names=("x", "v"))
    if tuple(v.shape)[-1] != tuple(x.shape)[-1]:
        raise ValueError(
            f"v must have as many entries along axis {axis} as x: {v.shape[-1]} and {x.shape[-1]}"
        )
    if known(xp.any(~xp.isfinite(v))):
        raise ValueError("v must be finite: it is a direction, not a mask")
    dtype = xp.result_type(x, v)
    s, v = softmax(wide_if_extreme(x, scale), scale=scale), wide_if_extreme(v, scale)
    # Differences of huge entries would overflow; where there are none, nothing is scaled.
    huge = row_max(xp.abs(v), keepdims=True) > float(xp.finfo(v.dtype).max) / 8
    lift = xp.where(huge, xp.full_like(v[..., :1], 8.0), xp.ones_like(v[..., :1]))
    product = covariance_product(s, v / lift, scale=scale) * lift
    return restore_axis(xp.astype(product, dtype, copy=False), axis)


def covariance_product(s: Array, v: Array, *, scale: float = 1.0) -> Array:
    """λM(s) v = λs∘(v − ⟨s, v⟩1) along the last axis.

    v is measured from its entry at the largest probability, which shift invariance allows: on a
    peaked row ⟨s, v⟩ is almost that entry, and subtracting them would leave no digit.
    """
    xp = namespace(s)
    top = positions(s) == xp.expand_dims(xp.argmax(s, axis=-1), axis=-1)
    reference = xp.sum(xp.where(top, v, xp.zeros_like(v)), axis=-1, keepdims=True)
    v = v - reference
    v = v - xp.sum(s * v, axis=-1, keepdims=True)
    return (s if scale == 1 else scale * s) * v


@quietly
def logsumexp_smoothness(matrix: Array | None = None, *, scale: float = 1.0) -> Bound:
    """Smoothness in l2 of lse(x), or of x ↦ lse(Ax + b) for a given matrix A (theorem lse).

    The gradient is (λ/2)- or (λ/2)‖A‖₂²-Lipschitz; gradient descent may take the step
    2/(λ‖A‖₂²) = 1/smoothness. ‖A‖₂ comes from a singular value decomposition, not from power
    iteration, which would be a lower bound.

    >>> logsumexp_smoothness(scale=4.0)
    Bound(exact 2, l2, all x in R^n, n >= 2; lse)
    """
    scale = abs(scale_value(scale, infinite="log-sum-exp tends to the maximum, which has a kink"))
    half = product(scale, 0.5, up=True)
    if matrix is None:
        low = product(scale, 0.5, up=False)
        return Bound(low, half, "exact", lp(2), ALL, ("lse",), scale / 2, rounding="proved")
    xp, matrix = as_float_array(matrix, name="matrix")
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"matrix must have two axes and entries, its shape is {matrix.shape}")
    if not bool(xp.all(xp.isfinite(matrix))):
        raise ValueError("matrix must be finite")
    top = spectral(to_host(matrix))
    upper = product(product(half, top, up=True), top, up=True)
    return Bound(
        0.0, upper, "upper", lp(2), Everywhere(name="all x in R^n"), ("lse",), rounding="proved"
    )
