"""Lipschitz constants of the softmax: global, at a point, and what attains them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from taut._base.array import Array, quietly
from taut._base.array_rounding import product, round_down, round_up
from taut._base.bound import Bound
from taut._base.checks import (
    dual_exponent,
    finite_at_least_zero,
    restore_axis,
    rows,
    scale_value,
    whole_number,
)
from taut._base.domain import Described, Everywhere
from taut._base.norm import lp
from taut._softmax.box import box_norm
from taut._softmax.exact import exact_constants
from taut._softmax.norms import check_pair, direction, induced_norm, positive_scale
from taut._softmax.sides import ALL

__all__ = ["global_lipschitz", "local_lipschitz", "worst_direction", "worst_input"]

_AT_THE_POINT = Described("at the given point")
_NO_DERIVATIVE = "the limit of the softmax is not Lipschitz"


def global_lipschitz(
    p: float = 2, q: float | None = None, *, n: int | None = None, scale: float = 1.0
) -> Bound:
    """Lipschitz constant of softmax(λx) over all inputs (theorems softmax-lp, inf-to-1, 1-to-q).

    Parameters
    ----------
    p, q
        Exponents of the norm on the input and on the output; ``q`` defaults to ``p``. Available are
        p = q, 1→q, p→inf and inf→1.
    n
        Number of logits; the constant is the same for every n ≥ 2 and 0 for n = 1.
    scale
        Inverse temperature λ; the constants grow with its absolute value.

    Examples
    --------
    >>> global_lipschitz(p=2)
    Bound(exact 0.5, l2, all x in R^n, n >= 2; softmax-lp)
    >>> float(global_lipschitz(math.inf, 1, scale=3.0))
    3.0
    """
    p, q = check_pair(p, q)
    scale = abs(scale_value(scale, infinite=_NO_DERIVATIVE))
    if n is not None:
        n = whole_number(n, name="n", least=1)
    domain = ALL if n is None else Everywhere((n,))
    constant, theorem = _global_constant(p, q)
    if n == 1:
        return Bound(0.0, 0.0, "exact", lp(p, q), domain, (theorem,), 0.0, rounding="proved")
    # Halves and quarters are exact; other powers of two carry an error of their own.
    exact = theorem != "1-to-q"
    low, high = (constant, constant) if exact else (round_down(constant), round_up(constant))
    lower, upper = product(scale, low, up=False), product(scale, high, up=True)
    return Bound(
        lower, upper, "exact", lp(p, q), domain, (theorem,), scale * constant, rounding="proved"
    )


def _global_constant(p: float, q: float) -> tuple[float, str]:
    if p == q:
        return 0.5, "softmax-lp"
    if p == math.inf and q == 1:
        return 1.0, "inf-to-1"
    if p == 1 and q == math.inf:
        return 0.25, "1-to-inf"
    column = q if p == 1 else dual_exponent(p)
    return 2 ** (1 / column - 2), "1-to-q"


@overload
def local_lipschitz(
    x: Array,
    p: float = 2,
    q: float | None = None,
    *,
    radius: float | None = None,
    tight: bool = False,
    axis: int = -1,
    scale: float = 1.0,
) -> Bound: ...
@overload
def local_lipschitz(
    x: Array,
    p: Sequence[float],
    q: None = None,
    *,
    radius: float | None = None,
    tight: bool = False,
    axis: int = -1,
    scale: float = 1.0,
) -> tuple[Bound, ...]: ...
@quietly
def local_lipschitz(
    x: Array,
    p: float | Sequence[float] = 2,
    q: float | None = None,
    *,
    radius: float | None = None,
    tight: bool = False,
    axis: int = -1,
    scale: float = 1.0,
) -> Bound | tuple[Bound, ...]:
    """Lipschitz constant of softmax(λx) at the point x: the norm of its Jacobian, for every row.

    p = 1, 2, inf and the mixed norms 1→q and p→inf are exact (theorems local-1-inf, local-2,
    1-to-q); every other p is a certified bracket; inf→1 is exact up to 24 logits or when a
    probability reaches ½, and otherwise a bracket, for ordinary rows narrower than 1e-6.

    Parameters
    ----------
    x
        Logits, any shape; -inf masks an entry.
    p, q
        Exponents of the norm on the input and on the output, ``q`` defaulting to ``p``. A sequence
        of exponents gives a tuple of bounds and shares the work.
    radius
        If given, the largest local constant over the box of all x + δ with ‖δ‖_∞ ≤ radius
        (theorem radius), which bounds the change of the softmax inside the box. Exact for p = 1 and
        inf, a bracket for other p; q must equal p.
    tight
        For p other than 1, 2 and inf, prove a sharper upper side row by row (theorem local-p-dual):
        usually within 0.1 % of the lower side instead of up to 23 %, for milliseconds a row. Not
        traceable.
    axis, scale
        As in :func:`taut.softmax`.

    Returns
    -------
    Bound
        With the shape of x without the axis. Differentiable in PyTorch and JAX.

    Examples
    --------
    >>> local_lipschitz([0.0, 0.0])
    Bound(exact 0.5, l2, at the given point; local-2)
    >>> local_lipschitz([2.0, 0.0, -1.0], p=3)
    Bound(between 0.220002 and 0.231773, l3, at the given point; local-p-bracket)
    >>> local_lipschitz([2.0, 0.0, -1.0], p=3, tight=True)
    Bound(between 0.220002 and 0.220223, l3, at the given point; local-p-dual)
    """
    several = isinstance(p, (tuple, list)) or (isinstance(p, Sequence) and not isinstance(p, str))
    if several and q is not None:
        raise ValueError("q goes with a single p, not with a sequence")
    exponents: Sequence[float] = p if several else (p,)  # type: ignore[assignment]
    pairs = [check_pair(one, q) for one in exponents]
    scale = scale_value(scale, infinite=_NO_DERIVATIVE)
    _, x = rows(x, axis=axis, name="x")
    x, scale = positive_scale(x, scale)
    if radius is not None and tight:
        raise ValueError("tight=True is for a point; with a radius the bracket has its own bounds")
    if radius is not None:
        radius = finite_at_least_zero(radius, name="radius")
    if radius is None:
        exact = exact_constants(x, scale)
        sides = [induced_norm(x, *pair, scale, exact, tight=tight) for pair in pairs]
        domain = _AT_THE_POINT
    else:
        sides = [box_norm(x, *pair, radius, scale) for pair in pairs]
        domain = Described(f"within {radius:g} of the given point in linf")
    bounds = [s.bound(lp(*pair), domain) for s, pair in zip(sides, pairs, strict=True)]
    return tuple(bounds) if several else bounds[0]


@quietly
def worst_direction(
    x: Array, p: float = 2, q: float | None = None, *, axis: int = -1, scale: float = 1.0
) -> Array:
    """Unit direction (in l_p) in which the softmax changes fastest (in l_q) at the point x.

    It attains the exact constants, and the ``lower`` side of the brackets. The entry of the largest
    probability is positive; masked entries are 0. At a tie the direction is not unique.

    >>> worst_direction([0.0, 0.0]).round(4)
    array([ 0.7071, -0.7071])
    """
    p, q = check_pair(p, q)
    scale = scale_value(scale, infinite=_NO_DERIVATIVE)
    _, x = rows(x, axis=axis, name="x")
    x, scale = positive_scale(x, scale)
    return restore_axis(direction(x, p, q, scale), axis)


def worst_input(
    n: int,
    p: float = 2,
    q: float | None = None,
    *,
    scale: float = 1.0,
    within: float = 1e-6,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Logits whose local constant attains the global one, or comes within λ·``within`` of it.

    For p = 1, inf, 1→inf and inf→1 it is attained at (ln(n−1)/λ, 0, …, 0), for n = 2 at 0. In the
    other norms with n ≥ 3 it is only approached, along s = (½−δ, ½−δ, 2δ/(n−2), …) with
    δ = ``within``, where it is at least λ(½ − δ) (Nair 2025, proposition 2 and the corrected
    example 2).

    >>> float(local_lipschitz(worst_input(10, p=2), p=2)) > 0.49999
    True
    """
    p, q = check_pair(p, q)
    scale = scale_value(scale, infinite=_NO_DERIVATIVE, zero="the softmax is constant")
    n = whole_number(n, name="n", least=2)
    if not 0 < within < 0.5:
        raise ValueError(f"within must be in (0, 1/2), got {within}")
    x = np.zeros(n)
    if n == 2:
        return x
    if (p in (1, math.inf)) and (q in (1, math.inf)):
        x[0] = math.log(n - 1) / scale
    else:
        x[:2] = math.log((0.5 - within) * (n - 2) / (2 * within)) / scale
    if not np.all(np.isfinite(x)):
        raise ValueError(f"scale {scale} is so small that the logits overflow")
    return x
