"""The exact 1-, 2- and ∞-constants of M(s) = Diag(s) − ssᵀ straight from logits, in array-API form.

Everything is written in units of the largest weight: eᵢ = exp(λ(xᵢ − x₁)) for the others, their sum
T (the tail), Z = 1 + T. Then 1 − s₁ = T/Z without subtraction, ‖M‖₁ = 2T/Z², and ‖M‖₂ = X/Z where
X in (e₂, 1) is the root of

    G(X) = (1 − X)(T + S(X)) − X,      S(X) = Σ eᵢ²/(X − eᵢ),

which is the secular equation of theorem local-2. G is convex and decreasing on (e₂, 1), so Newton's
method from a lower bound climbs monotonically to the root and needs no safeguard.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from taut._base.array import (
    Array,
    Namespace,
    eps_of,
    namespace,
    positions,
    stop_gradient,
    wide_eps,
    widest,
)
from taut._base.reductions import row_max, tree_sum
from taut._softmax.exponents import exponents

# Six steps from the top-two start reach 1e-15 (n from 2 to 300, logit scales 0.01 to 60); two more
# cost little and cover larger n.
_NEWTON_STEPS = 8


class Spectrum(NamedTuple):
    """What the rows have in common for every constant, in units of the largest weight."""

    weights: Array  # e, with 0 at the top entry and at masked ones
    is_top: Array  # the one entry that counts as the largest
    tail: Array  # T, keepdims
    root: Array  # X, keepdims
    runner_up: Array  # e₂, keepdims
    gap: Array  # 1 − e₂, keepdims, to full relative precision
    depth: Array  # |λ(x₁ − x₂)|, keepdims; 0 where there is no second entry
    exponents: Array  # λ(x − x₁), -inf at the top entry and at masked ones


class Constants(NamedTuple):
    """λ‖M‖₁ and λ‖M‖₂ of every row, and how far rounding may have moved them."""

    one: Array
    two: Array
    relative: Array | float  # bound on the relative error of either
    absolute: float  # what underflow may add to that


def constants(x: Array, scale: float) -> Constants:
    """The two exact constants of every row (last axis), scale ≥ 0, in the precision of ``x``."""
    xp = namespace(x)
    spectrum = analyse(stop_gradient(x), scale)
    total = 1 + spectrum.tail
    one = scale * (2 * spectrum.tail / (total * total))
    two = scale * (spectrum.root / total)
    relative = relative_error(x, spectrum)
    narrow = [xp.squeeze(xp.astype(c, x.dtype, copy=False), axis=-1) for c in (one, two, relative)]
    return Constants(narrow[0], narrow[1], narrow[2], constants_underflow(x, scale))


def constants_underflow(x: Array, scale: float) -> float:
    """What underflow may take from a constant of the logits ``x``.

    XLA flushes subnormal numbers to 0, so the unit is the smallest normal number. Each of the n
    weights may lose one, and no constant exceeds twice their sum.
    """
    wide = 2.0**-126 if wide_eps(x) > 1e-10 else 2.0**-1022
    return 2.0 * float(x.shape[-1]) * max(1.0, scale) * wide + _smallest_normal(x)


def analyse(x: Array, scale: float) -> Spectrum:
    """Find the weights, the tail and the secular root of every row of logits (last axis)."""
    xp = namespace(x)
    weights, is_top, depths = _weights(xp, widest(x), scale)
    tail = tree_sum(xp, weights)
    runner_up = row_max(weights, keepdims=True)
    nearest = row_max(depths, keepdims=True)
    root = _newton(xp, weights, tail, runner_up)
    depth = xp.where(nearest == -math.inf, xp.zeros_like(nearest), -nearest)
    # Beyond this depth every weight underflows, and the constants with them.
    depth = xp.minimum(depth, xp.full_like(depth, 2000.0))
    return Spectrum(weights, is_top, tail, root, runner_up, -xp.expm1(nearest), depth, depths)


def _weights(xp: Namespace, x: Array, scale: float) -> tuple[Array, Array, Array]:
    """exp(λ(x − x₁)) with the top entry left out, that entry, and the exponents (-inf there)."""
    is_top = positions(x) == xp.expand_dims(xp.argmax(x, axis=-1), axis=-1)
    top = row_max(x, keepdims=True)
    top = xp.where(top == -math.inf, xp.zeros_like(top), top)
    masked = x == -math.inf
    high, low = exponents(xp, xp.where(masked, top, x), top, scale)
    out = is_top | masked
    # An exponent that overflows is deep, but it is not masked.
    high = xp.maximum(high, xp.full_like(x, -deepest(x)))
    high = xp.where(out, xp.full_like(x, -math.inf), high)
    weights = xp.exp(high)
    return weights + weights * low, is_top, high


def _newton(xp: Namespace, e: Array, tail: Array, runner_up: Array) -> Array:
    """Root X of G by Newton's method from the top-two principal minor, which interlaces below."""
    total = 1 + tail
    first, second, cross = tail / total, runner_up * (1 - runner_up / total), runner_up / total
    half = (first - second) / 2
    x = (first + second) / 2 + xp.hypot(half, cross)  # squares would underflow on peaked rows
    x = xp.minimum(xp.maximum(x, runner_up), xp.ones_like(x))
    for _ in range(_NEWTON_STEPS):
        ratios = _safe_ratio(xp, e, x - e)
        s = tail + xp.sum(e * ratios, axis=-1, keepdims=True)
        slope = 1 + s + (1 - x) * xp.sum(ratios * ratios, axis=-1, keepdims=True)
        step = ((1 - x) * s - x) / slope
        x = xp.minimum(x + xp.maximum(step, xp.zeros_like(step)), xp.ones_like(x))
    return x


def _safe_ratio(xp: Namespace, numerator: Array, denominator: Array) -> Array:
    """Ratio with 0 where the denominator is not positive (ties: the pole is the answer there)."""
    positive = denominator > 0
    safe = xp.where(positive, denominator, xp.ones_like(denominator))
    return xp.where(positive, numerator / safe, xp.zeros_like(numerator))


def relative_error(x: Array, spectrum: Spectrum) -> Array:
    """Bound on the relative rounding error of both constants.

    Exponential, sums and the root's residual cost a few eps, the tree log₂ n. An exponent carries
    |λ(x₁ − xᵢ)| eps/2; the mean of those depths under the weights eᵢ exceeds that of the runner-up
    by at most log n (the entropy of n weights), and they enter once through X and once through Z.
    """
    n = x.shape[-1]
    wide = eps_of(spectrum.tail)
    computed = (12 + math.log2(n) + math.log(n) + spectrum.depth) * wide
    return computed if wide == eps_of(x) else computed + eps_of(x)


def deepest(x: Array) -> float:
    """The exponents stop here: three times as much is still in the range of ``x``."""
    return 2.0**125 if eps_of(x) == 2.0**-23 else 2.0**1021


def _smallest_normal(x: Array) -> float:
    return 2.0**-126 if eps_of(x) == 2.0**-23 else 2.0**-1022


def pole_distances(spectrum: Spectrum) -> tuple[Array, Array]:
    """1 − X and X − e₂ to full relative precision, where subtracting would leave no digit.

    With ρ = Σ_{i≥3} eᵢ/(X − eᵢ) the secular equation is a quadratic in either distance. Both are
    returned divided by the gap 1 − e₂, so that they stay finite at a tie.
    """
    xp = namespace(spectrum.weights)
    second = positions(spectrum.weights) == xp.expand_dims(
        xp.argmax(spectrum.weights, axis=-1), axis=-1
    )
    others = xp.where(second, xp.zeros_like(spectrum.weights), spectrum.weights)
    rho = xp.sum(_safe_ratio(xp, others, spectrum.root - others), axis=-1, keepdims=True)
    pull = rho * spectrum.gap
    pair = 1 + spectrum.runner_up
    root = xp.sqrt((pair + pull) * (pair + pull) - 4 * pull)
    below_top = 2 / (pair + pull + root)
    above_second = (
        2 * spectrum.runner_up / _positive(xp, pair - pull, pull * spectrum.runner_up, root)
    )
    return below_top, above_second


def _positive(xp: Namespace, b: Array, c: Array, root: Array) -> Array:
    """B + root, written without cancellation when b < 0: root² − b² = 4c."""
    return xp.where(b >= 0, b + root, 4 * c / xp.where(b >= 0, xp.ones_like(b), root - b))


def eigenvector(spectrum: Spectrum) -> Array:
    """Unit eigenvector of the largest eigenvalue of M: vᵢ ∝ sᵢ/(sᵢ − μ), positive at the top.

    At a tie of the two largest it is (1, −1, 0, …)/√2; where nothing is left besides the top entry
    M is 0, every direction is as good, and the top entry's is returned.
    """
    xp = namespace(spectrum.weights)
    e, gap = spectrum.weights, spectrum.gap
    below_top, above_second = pole_distances(spectrum)
    second = positions(e) == xp.expand_dims(xp.argmax(e, axis=-1), axis=-1)
    # Everything times the gap: v₁ = gap/(1 − X), v₂ = −gap·e₂/(X − e₂), the rest −gap·eᵢ/(X − eᵢ).
    distance = above_second * gap + (spectrum.runner_up - e)
    rest = -_safe_ratio(xp, gap * e, distance)
    runner = -_safe_ratio(xp, spectrum.runner_up, above_second)
    v = xp.where(second & ~spectrum.is_top, runner, rest)
    v = xp.where(spectrum.is_top, 1 / below_top + xp.zeros_like(e), v)
    alone = spectrum.tail == 0
    v = xp.where(alone, xp.astype(spectrum.is_top, e.dtype), v)
    return v / xp.sqrt(xp.sum(v * v, axis=-1, keepdims=True))
