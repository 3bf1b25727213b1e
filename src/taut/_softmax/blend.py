"""Softmaxes of combined logits: weighted superpositions, and two classes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from taut._base.array import Array, Namespace, known, quietly
from taut._base.checks import (
    as_float_array,
    check_logits,
    real_number,
    restore_axis,
    rows,
    same_library,
    scale_value,
)
from taut._base.reductions import row_max
from taut._softmax.functions import softmax

__all__ = ["blend", "two_class"]


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
    check_logits(xp, row_max(x, keepdims=True), name=name)
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
