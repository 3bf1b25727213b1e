"""softmax, log_softmax, logsumexp, softmin, the inverse, superposition and the two-class case.

An entry of -inf is masked: its probability is 0 whatever the sign of the scale. A row that is
masked altogether has probabilities 0, log-probabilities -inf and no sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from taut._array import Array, Namespace, known, quietly, stop_gradient
from taut._checks import (
    as_float_array,
    check_logits,
    real_number,
    representable,
    restore_axis,
    rows,
    same_library,
    scale_value,
    whole_number,
)

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
    """Logarithm of the softmax, without underflow; masked entries are -inf."""
    xp, x = rows(x, axis=axis, name="x")
    exponents, _ = shifted(xp, x, scale_value(scale))
    total = _denominator(xp, xp.exp(exponents))
    return restore_axis(exponents - xp.log(total), axis)


@quietly
def logsumexp(x: Array, *, axis: int = -1, scale: float = 1.0) -> Array:
    """(1/λ) log Σ exp(λ xᵢ), a smooth maximum; its gradient is ``softmax`` (theorem lse).

    For λ < 0 it is a smooth minimum, and ±inf give the maximum and the minimum themselves. A row
    that is masked altogether gives -inf (λ > 0) or inf (λ < 0), the value of an empty sum.
    """
    scale = scale_value(scale, zero="(1/λ) log Σ exp(λx) has no limit at λ = 0")
    xp, x = rows(x, axis=axis, name="x")
    exponents, reference = shifted(xp, x, scale)
    weights = xp.exp(exponents)
    total = xp.sum(weights, axis=-1)
    empty = total == 0
    total = xp.where(empty, xp.ones_like(total), total)
    if math.isinf(scale):  # the mean of the extremal entries, so that they share the derivative
        value = xp.sum(xp.where(weights > 0, x, xp.zeros_like(x)), axis=-1) / total
    else:
        value = xp.squeeze(reference, axis=-1) + xp.log(total) / scale
    return xp.where(empty, xp.full_like(value, -math.copysign(math.inf, scale)), value)


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
    positive = s > 0
    logs = xp.log(xp.where(positive, s, xp.ones_like(s))) / scale
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
    result = xp.where(positive, logs - anchor + value, xp.full_like(s, -math.inf))
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
    total = None
    for k, (x, weight) in enumerate(zip(inputs, weights, strict=True)):
        alpha = scale_value(weight, infinite="it is a weight", name=f"weights[{k}]")
        xp, x = rows(x, axis=axis, name=f"inputs[{k}]")
        largest = xp.max(x, axis=-1, keepdims=True)
        check_logits(xp, largest, name=f"inputs[{k}]")
        if alpha == 0:
            term = xp.zeros_like(x)
        else:
            masked = x == -math.inf
            if alpha < 0 and known(xp.any(masked)):
                raise ValueError(
                    f"inputs[{k}] has a masked entry and the weight {alpha}: that divides by a "
                    "probability of 0"
                )
            term = alpha * x
        if total is not None:
            same_library(total, term, names=("inputs[0]", f"inputs[{k}]"))
        if total is not None and tuple(total.shape) != tuple(term.shape):
            raise ValueError(
                f"inputs must have one shape: inputs[0] is {tuple(total.shape)}, "
                f"inputs[{k}] is {tuple(term.shape)}"
            )
        total = term if total is None else total + term
    return restore_axis(softmax(total, scale=scale), axis)


@quietly
def two_class(z1: Array, z2: Array = 0.0, *, scale: float = 1.0) -> Array:
    """Probability of the first of two classes, 1/(1 + exp(λ(z₂ − z₁))) (theorem two-class).

    Elementwise over two arrays of one shape, or an array and a number.

    >>> two_class([0.0, -800.0]).tolist()
    [0.5, 0.0]
    """
    if isinstance(z1, (int, float)) and not isinstance(z2, (int, float)):
        xp, z2 = as_float_array(z2, name="z2")
        z1 = xp.full_like(z2, z1)
    else:
        xp, z1 = as_float_array(z1, name="z1")
        plain = isinstance(z2, (int, float))
        z2 = xp.full_like(z1, z2) if plain else as_float_array(z2, name="z2")[1]
    same_library(z1, z2, names=("z1", "z2"))
    pair = xp.stack(xp.broadcast_arrays(z1, z2), axis=-1)
    return softmax(pair, scale=scale)[..., 0]


def shifted(xp: Namespace, x: Array, scale: float) -> tuple[Array, Array]:
    """Exponents λ(x − reference) ≤ 0, -inf where masked, and the reference logit of each row.

    The reference is the entry with the largest λx (theorem stable); it is a constant to automatic
    differentiation, which shift invariance allows.
    """
    largest = xp.max(x, axis=-1, keepdims=True)
    check_logits(xp, largest, name="x")
    masked = x == -math.inf
    if scale < 0:
        reference = xp.min(xp.where(masked, xp.full_like(x, math.inf), x), axis=-1, keepdims=True)
    else:
        reference = largest
    empty = largest == -math.inf
    reference = stop_gradient(xp.where(empty, xp.zeros_like(reference), reference))
    hidden = xp.full_like(x, -math.inf)
    if math.isinf(scale):
        return xp.where((x == reference) & ~masked, xp.zeros_like(x), hidden), reference
    if abs(scale) < 1:  # the difference of two huge logits may overflow before a small scale acts
        difference, scale = x / 2 - reference / 2, 2 * scale
    else:
        difference = x - reference
    return xp.where(masked, hidden, difference * representable(scale, x)), reference


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
