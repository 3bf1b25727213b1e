"""softmax, log_softmax, logsumexp, softmin, the inverse, superposition and the two-class case.

An entry of -inf is masked: its probability is 0 whatever the sign of the scale. A row that is
masked altogether has probabilities 0, log-probabilities -inf and no sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from taut._array import (
    Array,
    Namespace,
    known,
    positions,
    quietly,
    stop_gradient,
    tree_sum,
    widest,
)
from taut._checks import (
    as_float_array,
    check_logits,
    real_number,
    restore_axis,
    rows,
    same_library,
    scale_value,
    whole_number,
)
from taut._exponents import Exponents, shifted, shifted_exactly, wide_if_extreme

__all__ = ["blend", "log_softmax", "logits", "logsumexp", "softmax", "softmin", "two_class"]


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


@quietly
def logits(
    s: Array,
    *,
    axis: int = -1,
    scale: float = 1.0,
    fix: Literal["mean", "logsumexp"] | int = "mean",
    value: float = 0.0,
) -> Array:
    """Inverse of the softmax (theorem inverse): the logits of given probabilities.

    They are known only up to a constant. ``fix`` says which quantity is set to ``value``: the mean
    of the logits that are not -inf, their log-sum-exp, or the logit with that index.

    >>> logits([0.25, 0.75], fix=0)
    array([0.        , 1.09861229])
    """
    scale = scale_value(
        scale,
        infinite="the probabilities do not determine the logits",
        zero="the probabilities do not determine the logits",
    )
    value = real_number(value, name="value")
    if not math.isfinite(value):
        raise ValueError(f"value must be finite, got {value}")
    xp, s = rows(s, axis=axis, name="s")
    _check_probabilities(xp, s)
    dtype, s = s.dtype, wide_if_extreme(s, scale)
    positive = s > 0
    logs = xp.log(xp.where(positive, s, xp.ones_like(s)))
    if fix == "mean":
        counts = xp.sum(xp.astype(positive, s.dtype), axis=-1, keepdims=True)
        anchor = xp.sum(logs, axis=-1, keepdims=True) / counts
    elif fix == "logsumexp":
        anchor = xp.zeros_like(logs[..., :1])
    elif not isinstance(fix, str):
        fix = whole_number(fix, name="fix")
        if not -s.shape[-1] <= fix < s.shape[-1]:
            raise ValueError(f"fix={fix} is no index of {s.shape[-1]} probabilities")
        index = fix % s.shape[-1]
        anchor = logs[..., index : index + 1]
        if known(xp.any(~positive[..., index])):
            raise ValueError(f"the probability at index {fix} is 0, so its logit cannot be {value}")
    else:
        raise ValueError(f"fix must be 'mean', 'logsumexp' or an index, got {fix!r}")
    found = xp.astype((logs - anchor) / scale + value, dtype, copy=False)
    if known(xp.any(~xp.isfinite(found))):
        raise ValueError(f"the logits overflow at scale {scale} and value {value}")
    result = xp.where(positive, found, xp.full_like(found, -math.inf))
    return restore_axis(result, axis)


@quietly
def blend(
    inputs: Sequence[Array], weights: Sequence[float], *, axis: int = -1, scale: float = 1.0
) -> Array:
    """Softmax of the combination Σ αₖxₖ of several logit arrays (theorem superposition).

    This is the normalised product of the powers softmax(xₖ)^αₖ, computed in the log domain, where
    no factor underflows. An entry masked in an input of positive weight is masked; with a negative
    weight it would divide by the probability 0, which is an error. Weight 0 leaves an input out.

    >>> blend([[0.0, 1.0], [3.0, 0.0]], [1.0, -1.0]).round(6)
    array([0.017986, 0.982014])
    """
    if len(inputs) != len(weights) or len(inputs) == 0:
        raise ValueError(
            f"as many weights as inputs, and at least one: got {len(inputs)} inputs and "
            f"{len(weights)} weights"
        )
    alphas = [
        scale_value(weight, infinite="it is a weight", name=f"weights[{k}]")
        for k, weight in enumerate(weights)
    ]
    # A power of two above the sum of all weights goes into the scale: no combination overflows.
    power = math.frexp(max(map(abs, alphas)))[1] + len(alphas).bit_length()
    scale = scale_value(scale)
    total = None
    for k, (x, alpha) in enumerate(zip(inputs, alphas, strict=True)):
        xp, x = rows(x, axis=axis, name=f"inputs[{k}]")
        term = _term(xp, x, math.ldexp(alpha, -power), name=f"inputs[{k}]", weight=alpha)
        if total is not None:
            same_library(total, term, names=("inputs[0]", f"inputs[{k}]"))
        if total is not None and tuple(total.shape) != tuple(term.shape):
            raise ValueError(
                f"inputs must have one shape: inputs[0] is {tuple(total.shape)}, "
                f"inputs[{k}] is {tuple(term.shape)}"
            )
        total = term if total is None else total + term
    whole = scale * 2.0 ** (power // 2) * 2.0 ** (power - power // 2)
    if math.isinf(whole) and not math.isinf(scale):
        raise ValueError(f"weights of size 2**{power} times scale {scale} overflow")
    return restore_axis(softmax(total, scale=whole), axis)


def _term(xp: Namespace, x: Array, alpha: float, *, name: str, weight: float) -> Array:
    """αx for |α| < 1; -inf where masked."""
    check_logits(xp, xp.max(x, axis=-1, keepdims=True), name=name)
    if weight == 0:
        return xp.zeros_like(x)
    if weight < 0 and known(xp.any(x == -math.inf)):
        raise ValueError(
            f"{name} has a masked entry and the weight {weight}: that divides by a probability of 0"
        )
    return alpha * x


@quietly
def two_class(z1: Array, z2: Array = 0.0, *, scale: float = 1.0) -> Array:
    """Probability of the first of two classes, 1/(1 + exp(λ(z₂ − z₁))) (theorem two-class).

    Elementwise over two arrays of one shape, or an array and a number.

    >>> two_class([0.0, -800.0]).tolist()
    [0.5, 0.0]
    """
    if isinstance(z1, (int, float)) and not isinstance(z2, (int, float)):
        xp, z2 = as_float_array(z2, name="z2")
        z1 = _filled(xp, z2, z1, name="z1")
    else:
        xp, z1 = as_float_array(z1, name="z1")
        plain = isinstance(z2, (int, float))
        z2 = _filled(xp, z1, z2, name="z2") if plain else as_float_array(z2, name="z2")[1]
    same_library(z1, z2, names=("z1", "z2"))
    pair = xp.stack(xp.broadcast_arrays(z1, z2), axis=-1)
    return softmax(pair, scale=scale)[..., 0]


def _filled(xp: Namespace, like: Array, value: float, *, name: str) -> Array:
    """The number as an array, where it must not turn into a mask by overflow."""
    value = real_number(value, name=name)
    if abs(value) > float(xp.finfo(like.dtype).max) and not math.isinf(value):
        raise ValueError(f"{name} is {value}, which {like.dtype} cannot hold: give float64 arrays")
    return xp.full_like(like, value)


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


def _check_probabilities(xp: Namespace, s: Array) -> None:
    total = xp.sum(s, axis=-1)
    if known(xp.any(~(s >= 0))):
        raise ValueError("s must hold probabilities: it has a negative entry or NaN")
    off = xp.abs(total - 1)
    if known(xp.any(off > 1e-3)):
        worst = float(xp.max(off))
        raise ValueError(f"s must sum to 1 along the axis; a sum is off by {worst:.3g}")
