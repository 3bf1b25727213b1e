"""Empirical constants: lower bounds from perturbed logits (Nair 2025, equation 7)."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from taut._base.array import (
    Array,
    Namespace,
    eps_of,
    like,
    quietly,
    stop_gradient,
    wide_eps,
    widest,
)
from taut._base.bound import Bound
from taut._base.checks import check_logits, exponent, real_number, rows, scale_value, whole_number
from taut._base.domain import Everywhere
from taut._base.norm import lp
from taut._base.reductions import lp_norm, row_max
from taut._softmax.exponents import shifted
from taut._softmax.functions import softmax
from taut._softmax.norms import direction, positive_scale
from taut._softmax.secular import deepest

__all__ = ["empirical_lipschitz"]


@quietly
def empirical_lipschitz(
    x: Array,
    p: float = 2,
    *,
    epsilon: float = 1e-3,
    along: Literal["random", "worst"] = "random",
    samples: int = 1,
    seed: int = 0,
    axis: int = -1,
    scale: float = 1.0,
) -> Bound:
    """Measured ‖σ(x + δ) − σ(x)‖_p / ‖δ‖_p with ‖δ‖_p = epsilon, for every row: a lower bound.

    Equation 7 of Nair 2025 is the largest over all rows, ``empirical_lipschitz(...).max()``. A
    ratio for a finite step bounds the constant over all x from below. It may exceed the local
    constant at the point, which is about infinitely small steps; as epsilon → 0 it bounds that one
    as well.

    Parameters
    ----------
    x
        Logits; -inf masks an entry, which then is not perturbed.
    p
        Exponent of the norm.
    epsilon
        Size of the perturbation in l_p.
    along
        ``"random"``: Gaussian directions scaled to size epsilon, the paper's recipe; in high
        dimension they fall far below the local constant. ``"worst"``: the worst direction and its
        negative, which reach the local constant to first order.
    samples, seed
        How many random directions per row, of which the best counts, and their seed. The draws are
        NumPy's on every backend; under ``vmap`` every element gets the same ones.
    axis, scale
        As in :func:`taut.softmax`.

    Examples
    --------
    >>> empirical_lipschitz([0.0, 0.0], epsilon=1e-4, along="worst")
    Bound(at least 0.499999, l2, all x, measured with steps of size 0.0001; rounding estimated)
    """
    p = exponent(p)
    scale = scale_value(scale, infinite="the limit of the softmax is not Lipschitz")
    epsilon = real_number(epsilon, name="epsilon")
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon!r}")
    if along not in ("random", "worst"):
        raise ValueError(f"along must be 'random' or 'worst', got {along!r}")
    samples = whole_number(samples, name="samples", least=1)
    seed = whole_number(seed, name="seed", least=0)
    xp, x = rows(x, axis=axis, name="x")
    x, scale = positive_scale(stop_gradient(x), scale)
    check_logits(xp, row_max(x), name="x")
    least = 2.0**-90 if wide_eps(x) > 1e-10 else 2.0**-900
    if min(epsilon, epsilon * (scale or 1.0)) < least:
        raise ValueError(f"epsilon {epsilon} is too small: the change would underflow")
    if epsilon * scale > 1 / least:
        raise ValueError(f"epsilon {epsilon} is too large for scale {scale}: the step overflows")
    best = xp.zeros_like(x[..., 0])
    for v in directions(xp, x, p, scale, along, samples, seed):
        best = xp.maximum(best, step_ratio(xp, x, v, p, epsilon, scale))
    domain = Everywhere(name="all x").given(f"measured with steps of size {epsilon}")
    infinite = xp.full_like(best, math.inf)
    return Bound(best, infinite, "lower", lp(p), domain, (), rounding="estimated")


def directions(
    xp: Namespace, x: Array, p: float, scale: float, along: str, samples: int, seed: int
) -> list[Array]:
    """Generate the directions to try, not yet of unit size, 0 at masked entries."""
    if along == "worst":
        v = direction(x, p, p, scale)
        return [v, -v]
    generator = np.random.default_rng(seed)
    draws = (like(generator.standard_normal(tuple(x.shape)), x) for _ in range(samples))
    masked = x == -math.inf
    return [xp.where(masked, xp.zeros_like(x), xp.astype(v, x.dtype, copy=False)) for v in draws]


def step_ratio(xp: Namespace, x: Array, v: Array, p: float, epsilon: float, scale: float) -> Array:
    """‖σ(x + δ) − σ(x)‖_p / ‖δ‖_p for δ = epsilon·v/‖v‖_p, rounded down."""
    dtype, x, v = x.dtype, widest(x), widest(v)
    size = lp_norm(v, p)
    empty = size == 0
    step = v * (epsilon / xp.where(empty, xp.ones_like(size), size))
    s = softmax(x, scale=scale)
    if scale * epsilon <= 1:
        # Subtracting two nearby softmaxes would leave eps/epsilon of noise; this does not subtract.
        growth = xp.expm1(scale * step)
        mean = xp.sum(s * growth, axis=-1, keepdims=True)
        change = s * (growth - mean) / (1 + mean)
        error = scale
    else:
        # From the shifted exponents, and with the step that adding it to them really makes.
        base, _ = shifted(xp, x, scale)
        # An entry whose exponent overflows has no probability wherever it stands.
        base = xp.maximum(base, xp.full_like(x, -deepest(x)))
        base = xp.where(x == -math.inf, xp.zeros_like(x), base)
        reached = base + scale * step
        step = (reached - base) / scale
        hidden = xp.full_like(x, -math.inf)
        before, after = (xp.where(x == -math.inf, hidden, z) for z in (base, reached))
        change = softmax(after) - softmax(before)
        error = 2 / epsilon
    moved = lp_norm(step, p)
    empty = empty | (moved == 0)
    ratio = lp_norm(change, p) / xp.where(empty, xp.ones_like(moved), moved)
    slack = (16 + 2 * math.log2(x.shape[-1])) * (
        eps_of(x) + eps_of(xp.zeros((1,), dtype=dtype)) / 16
    )
    ratio = ratio * (1 - slack) - error * slack
    ratio = xp.where(empty, xp.zeros_like(ratio), xp.maximum(ratio, xp.zeros_like(ratio)))
    return xp.astype(xp.squeeze(ratio, axis=-1), dtype, copy=False)
