"""Derivatives of the exact constants: the same values, with a graph that autodiff can follow.

Differentiating through a root finder is slow and inaccurate. Here the value comes from the accurate
code as a constant, and a formula that equals it mathematically supplies the derivative:
``value + (formula − stop(formula))``. Written in units of the largest weight the formulas have no
cancellation. First and second derivatives are right, but where three logits or more are nearly tied
for the largest: of the differences of their rounded weights few digits are left, or none. Compiled
first derivatives have them.

Where the constant has a kink (ties for the largest probability) the derivative is the symmetric
element of Clarke's generalised gradient: tied entries share it equally. One-hot rows, rows with one
entry and masked entries have the derivative 0.
"""

from __future__ import annotations

import math

from taut._base.array import Array, Namespace, eps_of, namespace, stop_gradient, widest
from taut._base.reductions import row_max
from taut._softmax.exponents import scaled_difference
from taut._softmax.secular import Spectrum, analyse, pole_distances


def attach(one: Array, two: Array, x: Array, scale: float) -> tuple[Array, Array]:
    """λ‖M‖₁ and λ‖M‖₂ (constants, given) with derivatives with respect to the logits ``x``."""
    xp = namespace(x)
    spectrum = analyse(stop_gradient(x), scale)
    weights, doubles = smooth_weights(x, scale)
    tail = xp.sum(weights, axis=-1, keepdims=True) + doubles
    total = 1 + tail
    tied = (doubles > 0) | (spectrum.gap < negligible(total))
    root = xp.where(tied, xp.ones_like(total), _root(xp, weights, spectrum))
    return (
        graft(one, scale * (2 * tail / (total * total))),
        graft(two, scale * (root / total)),
    )


def graft(value: Array, formula: Array) -> Array:
    """``value``, with the derivative of ``formula``, whose last axis of length 1 is dropped."""
    xp = namespace(value)
    formula = xp.squeeze(formula, axis=-1)
    return value + xp.astype(formula - stop_gradient(formula), value.dtype, copy=False)


def smooth_weights(x: Array, scale: float) -> tuple[Array, Array]:
    """Differentiable weights exp(λ(xᵢ − x₁)) of the entries below the top, and the ties besides.

    The weights are 0 at the top, at entries tied with it and at masked ones; the second result
    (last axis kept) counts the tied entries but one. Those stay at weight 1 whatever moves, because
    x₁ is taken as the mean of the tied logits.
    """
    xp = namespace(x)
    x = widest(x)
    fixed = stop_gradient(x)
    largest = row_max(fixed, keepdims=True)
    masked = fixed == -math.inf
    tied = (fixed == largest) & ~masked
    count = xp.sum(xp.astype(tied, x.dtype), axis=-1, keepdims=True)
    count = xp.where(count == 0, xp.ones_like(count), count)
    zeros = xp.zeros_like(x)
    # The mean as a distance from the largest: the sum of two huge logits overflows.
    finite = xp.where(largest == -math.inf, xp.zeros_like(largest), largest)
    reference = finite + xp.sum(xp.where(tied, x - finite, zeros), axis=-1, keepdims=True) / count
    below = ~tied & ~masked
    exponents = scaled_difference(xp, xp.where(below, x, reference + zeros), reference, scale)
    weights = xp.where(below, xp.exp(exponents), zeros)
    # Next to underflow the formulas divide by what is not there; the derivative is 0 in effect.
    return xp.where(weights < negligible(x), zeros, weights), count - 1


def negligible(x: Array) -> float:
    """A size next to underflow, whose reciprocal is still finite."""
    return 2.0**-100 if eps_of(x) > 1e-10 else 2.0**-1000


def _root(xp: Namespace, e: Array, spectrum: Spectrum) -> Array:
    """The secular root X as a differentiable function of the weights, for a simple top entry.

    The first-order term is the implicit function theorem on Σ eᵢ/(X − eᵢ) = 1/(1 − X); one Newton
    step on top of it makes the second derivatives right as well. Multiplying the equation by
    w = X − e₂ keeps every term finite next to a tie.
    """
    below_top, above_second = pole_distances(spectrum)
    w = above_second * spectrum.gap
    fixed = stop_gradient(e)
    # Weights may be left out one by one although their sum is large enough.
    nothing = row_max(fixed, keepdims=True) == 0
    alone = (spectrum.tail < negligible(w)) | (w < negligible(w)) | nothing
    w = xp.where(alone, xp.ones_like(w), w)
    distance = w + (spectrum.runner_up - fixed)  # X − eᵢ
    top_ratio = xp.where(alone, xp.ones_like(w), above_second / below_top)  # (X − e₂)/(1 − X)
    g = w / distance
    slope = xp.sum(fixed * g * g, axis=-1, keepdims=True) + top_ratio * top_ratio
    first = xp.sum(spectrum.root * g * g / slope * (e - fixed), axis=-1, keepdims=True)
    moved = w / (distance + first - (e - fixed))
    moved_top = top_ratio / (1 - first * top_ratio / w)
    residual = xp.sum(e * moved, axis=-1, keepdims=True) - moved_top
    slope = xp.sum(e * moved * moved, axis=-1, keepdims=True) + moved_top * moved_top
    second = w * (residual - stop_gradient(residual)) / slope
    return xp.where(alone, xp.zeros_like(w), spectrum.root + first + second)
