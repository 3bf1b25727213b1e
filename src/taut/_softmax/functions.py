"""softmax, softmin, log_softmax and logsumexp.

An entry of -inf is masked: its probability is 0 whatever the sign of the scale. A row that is
masked altogether has probabilities 0, log-probabilities -inf and no sensitivity.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from taut._base.array import Array, Namespace, positions, quietly, stop_gradient, widest
from taut._base.checks import (
    restore_axis,
    rows,
    scale_value,
)
from taut._base.reductions import tree_sum
from taut._softmax.exponents import Exponents, shifted, shifted_exactly

__all__ = ["log_softmax", "logsumexp", "softmax", "softmin"]


@quietly
def softmax(x: Array, *, axis: int = -1, scale: float = 1.0) -> Array:
    """Softmax of ``scale * x`` along an axis (theorems shift, stable, sharpness).

    Parameters
    ----------
    x
        Logits; -inf masks an entry. Half precision is computed and returned in float32.
    axis
        The axis along which the probabilities sum to 1.
    scale
        Inverse temperature λ, any real: negative gives softmin, 0 the uniform distribution over
        what is not masked, inf (-inf) the uniform distribution over the maxima (minima).

    Examples
    --------
    >>> softmax([0.0, 0.0, -math.inf])
    array([0.5, 0.5, 0. ])
    >>> softmax([1.0, 3.0, 3.0], scale=math.inf)
    array([0. , 0.5, 0.5])
    """
    xp, x = rows(x, axis=axis, name="x")
    exponents, _ = shifted(xp, x, scale_value(scale))
    weights = xp.exp(exponents)
    return restore_axis(weights / _denominator(xp, weights), axis)


def softmin(x: Array, *, axis: int = -1, scale: float = 1.0) -> Array:
    """Softmax of ``-scale * x``: the smallest entry gets the largest probability."""
    return softmax(x, axis=axis, scale=-scale_value(scale))


@quietly
def log_softmax(x: Array, *, axis: int = -1, scale: float = 1.0) -> Array:
    """Logarithm of the softmax, to a few units in the last place; masked entries are -inf.

    >>> log_softmax([100.0, 0.0])
    array([-3.72007598e-44, -1.00000000e+02])
    """
    xp, x = rows(x, axis=axis, name="x")
    exponents, _ = shifted_exactly(xp, x, scale_value(scale))
    total = _log_total(xp, exponents)
    # The largest entry's is not exponent − log total: their derivatives would cancel.
    others = exponents.high - total.of_all
    return restore_axis(xp.where(total.is_top, 0 - total.below_top, others), axis)


@quietly
def logsumexp(x: Array, *, axis: int = -1, scale: float = 1.0) -> Array:
    """(1/λ) log Σ exp(λ xᵢ), a smooth maximum; its gradient is ``softmax`` (theorem lse).

    For λ < 0 it is a smooth minimum, and ±inf give the maximum and the minimum themselves. A row
    that is masked altogether gives -inf (λ > 0) or inf (λ < 0), the value of an empty sum.

    The result is the extremal entry plus (1/λ) log(1 + Σ of the others); it is right to a few units
    in the last place of the larger of these two terms, as long as the sum does not underflow.

    >>> float(logsumexp([0.0, -100.0]))
    3.720075976020836e-44
    """
    scale = scale_value(scale, zero="(1/λ) log Σ exp(λx) has no limit at λ = 0")
    xp, x = rows(x, axis=axis, name="x")
    dtype, x = x.dtype, widest(x)  # float64 has room for a small tail over a small scale
    exponents, reference = shifted_exactly(xp, x, scale)
    empty = xp.all(exponents.high == -math.inf, axis=-1)
    if math.isinf(scale):  # the mean of the extremal entries, so that they share the derivative
        value = reference[..., 0] + _mean(xp, x - reference, exponents.high == 0)
    else:
        half = 0.5 if abs(scale) < 1e-300 else 1.0  # either term alone may overflow
        logs = _log_total(xp, exponents).of_all[..., 0]
        value = (reference[..., 0] * half + logs * half / scale) / half
    value = xp.where(empty, xp.full_like(value, -math.copysign(math.inf, scale)), value)
    return xp.astype(value, dtype, copy=False)


class _LogTotal(NamedTuple):
    """log Σ exp(exponents) of each row, last axis kept, for exponents ≤ 0 of which one is 0."""

    of_all: Array  # 0 where all are masked
    below_top: Array  # the same number, as log Σ exp(exponents − exponent of the largest entry)
    is_top: Array  # the one entry that counts as the largest; none where all are masked


def _log_total(xp: Namespace, exponents: Exponents) -> _LogTotal:
    """log(1 + tail), which has all its digits also where the tail is small.

    Automatic differentiation sees the weight of the largest entry too, though its value is 1: as
    its exponent, or as exp(exponent) − 1, whichever does not cancel against the tail.
    """
    fixed = stop_gradient(exponents.high)
    is_top = positions(fixed) == xp.argmax(fixed, axis=-1, keepdims=True)
    is_top = is_top & (fixed > -math.inf)
    zeros = xp.zeros_like(fixed)
    weights = xp.exp(exponents.high)
    tail = tree_sum(xp, xp.where(is_top, zeros, weights + weights * exponents.low))
    top = xp.sum(xp.where(is_top, exponents.high, zeros), axis=-1, keepdims=True)  # it is 0
    below_top = xp.log1p(tail * xp.exp(-top))
    of_all = xp.where(tail < 1, top + below_top, xp.log1p(tail + xp.expm1(top)))
    return _LogTotal(of_all, below_top, is_top)


def _mean(xp: Namespace, x: Array, chosen: Array) -> Array:
    """Mean over the last axis of the chosen entries, 0 where there are none."""
    count = xp.sum(xp.astype(chosen, x.dtype), axis=-1)
    total = xp.sum(xp.where(chosen, x, xp.zeros_like(x)), axis=-1)
    return total / xp.where(count == 0, xp.ones_like(count), count)


def _denominator(xp: Namespace, weights: Array) -> Array:
    """Sum of the weights, 1 where a row is masked altogether."""
    total = xp.sum(weights, axis=-1, keepdims=True)
    return xp.where(total == 0, xp.ones_like(total), total)
