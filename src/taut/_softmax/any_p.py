"""The induced p-norm of M(s) for any p: a certified bracket.

Below stands the best quotient ‖Mv‖_p/‖v‖_p that the nonlinear power method finds; every iterate is
a valid lower bound. Above stands the Riesz–Thorin interpolation between the exact 1- and 2-norms
(theorem local-p-bracket), or on request a bound that is proved row by row (theorem local-p-dual).

M is symmetric, so ‖M‖_p = ‖M‖_p′ (theorem dual) and all work is done at q = max(p, p′) ≥ 2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from taut._base.array import (
    Array,
    Namespace,
    default_threads,
    differentiated,
    eps_of,
    host_view,
    in_compiled_graph,
    like,
    namespace,
    positions,
    stop_gradient,
    widest,
)
from taut._base.array_rounding import product, round_down, round_up
from taut._base.bound import Rounding
from taut._base.checks import dual_exponent
from taut._base.reductions import lp_norm, tree_sum
from taut._softmax.derivatives import graft
from taut._softmax.exact import Exact, kernel_takes
from taut._softmax.exponents import shifted_exactly
from taut._softmax.functions import softmax
from taut._softmax.jacobian import covariance_product
from taut._softmax.power_method import maximiser, quotient, signed_power, unit
from taut._softmax.secular import analyse, constants_underflow, relative_error
from taut._softmax.sides import Sides, at_most

_LARGEST_COMPILED = 1e9  # beyond this q, powers of numbers near 1 have lost their digits


def any_p(x: Array, p: float, scale: float, exact: Exact, *, tight: bool) -> Sides:
    """Bracket λ‖M‖_p of every row, 1 < p < ∞, p ≠ 2, given the exact constants of the rows."""
    xp = namespace(x)
    q = max(p, dual_exponent(p))
    lower, rounding = _lower(xp, x, q, scale, exact)
    upper = _interpolated(xp, q, scale, exact)
    if not tight:
        lower = xp.minimum(lower, upper)
        return Sides(lower, upper, None, "bracket", ("local-p-bracket",), rounding)
    upper = xp.minimum(upper, _proved(xp, x, q, scale, lower))
    lower = xp.minimum(lower, upper)
    return Sides(lower, upper, None, "bracket", ("local-p-dual",), rounding)


def _proved(xp: Namespace, x: Array, q: float, scale: float, lower: Array) -> Array:
    """λ times the bound proved by duality and branch and bound, row by row.

    Its derivative is that of the lower side, times the ratio of the two.
    """
    host, start = host_view(stop_gradient(x)), host_view(stop_gradient(lower))
    if host is None or start is None:
        raise TypeError(
            "tight=True proves its bound row by row: it needs values in main memory and cannot be "
            "traced by jax.jit, torch.compile or vmap, nor run on an accelerator"
        )
    from taut._softmax.proved_p.entry import (
        tight_upper,  # numba is imported when it is first needed
    )

    logits = np.asarray(host, dtype=np.float64).reshape(-1, host.shape[-1])
    s = _probabilities(logits, scale)
    starts = np.asarray(start, dtype=np.float64).reshape(-1) / (scale or 1.0)
    found = np.array([tight_upper(row, q, float(low)) for row, low in zip(s, starts, strict=True)])
    # Relative errors of the probabilities change M by at most 5 times themselves.
    error = 8 * (16 + 2 * math.log2(host.shape[-1])) * 2.0**-52
    absolute = constants_underflow(x, scale)  # probabilities that underflowed to 0
    found = round_up(scale * found, error + 2 * eps_of(x), absolute).astype(host.dtype)
    value = like(found.reshape(host.shape[:-1]), x)
    if differentiated(x):
        safe = xp.where(lower > 0, lower, xp.ones_like(lower))
        value = value * (safe / stop_gradient(safe))
    return value


def _probabilities(x: np.ndarray[Any, Any], scale: float) -> np.ndarray[Any, Any]:
    """Probabilities to 8 + log₂n units in the last place, however deep they are."""
    xp = namespace(x)
    exponents, _ = shifted_exactly(xp, x, scale)
    weights = np.exp(exponents.high)
    weights += weights * exponents.low
    total = tree_sum(xp, weights)
    found: np.ndarray[Any, Any] = weights / np.where(total == 0, 1.0, total)
    return found


def power_direction(x: Array, p: float, scale: float) -> Array:
    """Unit vector in l_p at which the quotient reaches the lower side of the bracket."""
    xp = namespace(x)
    q = max(p, dual_exponent(p))
    s = softmax(widest(x), scale=scale)
    v = maximiser(x, s, q, scale)
    if p < 2:  # ψ_q(Mv) attains the norm for the dual exponent
        v = signed_power(xp, unit(xp, covariance_product(s, v)), q - 1)
    top = positions(x) == xp.expand_dims(xp.argmax(x, axis=-1), axis=-1)
    at_top = xp.sum(xp.where(top, v, xp.zeros_like(v)), axis=-1, keepdims=True)
    v = xp.where(at_top < 0, -v, v)
    size = lp_norm(v, p)
    v = xp.where(size == 0, xp.astype(top, v.dtype), v)
    v = v / xp.where(size == 0, xp.ones_like(size), size)
    return xp.astype(v, x.dtype, copy=False)


def _interpolated(xp: Namespace, q: float, scale: float, exact: Exact) -> Array:
    """‖M‖₁^θ ‖M‖₂^{1−θ}, θ = 1 − 2/q, rounded up."""
    mean = interpolate(xp, exact.one.estimate, exact.two.estimate, q)
    return at_most(round_up(mean, exact.relative, exact.absolute), product(scale, 0.5, up=True))


def interpolate(xp: Namespace, one: Array, two: Array, q: float) -> Array:
    """one^θ two^{1−θ}, θ = |1 − 2/q|, rounded up; 0 where either is 0, NaN where either is NaN.

    The exponents are rounded too, which costs |log one| + |log two| units.
    """
    share = abs(1 - 2 / q)
    present = ~((one == 0) | (two == 0))
    a, b = (widest(xp.where(present, c, xp.ones_like(c))) for c in (one, two))
    mean = a**share * b ** (1 - share)
    slack = (8 + xp.abs(xp.log(a)) + xp.abs(xp.log(b))) * eps_of(a)
    mean = xp.astype(round_up(mean, slack), one.dtype, copy=False)
    return xp.where(present, round_up(mean), xp.zeros_like(mean))


class _Reached(NamedTuple):
    """A direction for every row, and what it proves of λ‖M‖_q from below, in float64."""

    direction: Array
    value: Array


def _lower(xp: Namespace, x: Array, q: float, scale: float, exact: Exact) -> tuple[Array, Rounding]:
    """λ times the best quotient found, rounded down; never below the 2-norm, as ‖M‖_q is not.

    Where it is compiled its rounding is proved; the allowance of the portable code is an estimate.
    """
    fixed = stop_gradient(x)
    found = _compiled(fixed, q, scale, exact, converged=differentiated(x))
    if found is None:
        s = softmax(widest(fixed), scale=scale)
        v = maximiser(fixed, s, q, scale)
        value = xp.squeeze(scale * quotient(xp, s, v, q), axis=-1)
        relative = 4 * xp.squeeze(relative_error(x, analyse(fixed, scale)), axis=-1)
        relative = xp.astype(relative + 64 * eps_of(s), x.dtype, copy=False)
        absolute = constants_underflow(x, scale)
    else:
        v, value = found
        relative, absolute = 0.0, 0.0
    value = xp.astype(value, x.dtype, copy=False)
    if differentiated(x):  # at a maximiser the derivative is that of the quotient with v held fixed
        value = graft(value, scale * quotient(xp, softmax(widest(x), scale=scale), v, q))
    lower = xp.maximum(round_down(value, relative, absolute), exact.two.lower)
    return lower, "estimated" if found is None else "proved"


def _compiled(
    x: Array, q: float, scale: float, exact: Exact, *, converged: bool = False
) -> _Reached | None:
    """What the compiled power method finds; None where it cannot go.

    The derivative is right as far as the direction has converged, which takes more steps.
    """
    if not kernel_takes(scale) or q > _LARGEST_COMPILED:
        return None
    if in_compiled_graph(x):
        from taut._softmax.torch_operator import lower_sides  # imports torch

        found, v = lower_sides(stop_gradient(x), stop_gradient(exact.two.estimate), q, scale)
        return _Reached(v, found)
    host, roots = host_view(stop_gradient(x)), host_view(stop_gradient(exact.two.estimate))
    if host is None or roots is None:
        return None
    # numba is imported when it is first needed
    from taut._softmax.kernel.driver import row_lower_sides

    found, v = row_lower_sides(host, roots / scale, q, scale, converged, default_threads(x))
    return _Reached(like(v, x), like(found, x))
