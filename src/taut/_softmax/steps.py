"""Bounds that hold for steps of any size, for ranges of λ, and on domains of bounded logits."""

from __future__ import annotations

import math
from typing import NamedTuple

from taut._base.array import Array, eps_of, known, quietly, widest
from taut._base.array_rounding import product, round_down, round_up
from taut._base.bound import Bound
from taut._base.checks import (
    check_range,
    exponent,
    finite_at_least_zero,
    rows,
    scale_value,
    whole_number,
)
from taut._base.domain import Everywhere
from taut._base.norm import lp
from taut._base.reductions import lp_norm, row_max, row_min
from taut._softmax.lipschitz import global_lipschitz, local_lipschitz
from taut._softmax.sides import ALL, at_most

__all__ = ["Regularity", "bounded_logits_lipschitz", "entropy_floor", "regularity", "step_bound"]


@quietly
def step_bound(d: Array, p: float = 2, *, axis: int = -1, scale: float = 1.0) -> Bound:
    """Bound on ‖softmax(λ(x + d)) − softmax(λx)‖_p for a step d of any size, from any x.

    The smaller of 2^{1/p}·tanh(λ·osc(d)/4) (theorem tv-step), which never exceeds the diameter of
    the simplex, and (λ/2)‖d‖_p (theorem softmax-lp). For p = 1, half of it bounds the total
    variation.

    >>> step_bound([1.0, -1.0], p=1)
    Bound(change at most 0.924235, l1, all x, this step d; tv-step, softmax-lp)
    """
    p = exponent(p)
    scale = abs(scale_value(scale, infinite="any step may flip the softmax"))
    xp, d = rows(d, axis=axis, name="d")
    if known(xp.any(~xp.isfinite(d))):
        raise ValueError("d must be finite: it is a step, not a mask")
    check_range(scale, d, name="scale")
    wide = widest(d)  # a scale need not fit into float32
    quarter = row_max(wide / 4) - row_min(wide / 4)  # halves cannot overflow
    diameter = 2 ** (1 / p)  # of the simplex; a whole number for p = 1 and inf
    variation = diameter * xp.tanh(quarter * scale)
    size = xp.squeeze(lp_norm(wide / 2, p), axis=-1)
    relative = (16 + 2 * math.log2(d.shape[-1])) * eps_of(wide)
    # Entries of d that are subnormal may have been read as 0.
    absolute = scale * d.shape[-1] * (2.0**-126 if eps_of(wide) > 1e-10 else 2.0**-1022)
    least = xp.minimum(variation, size * scale) if scale > 0 else xp.zeros_like(variation)
    upper = round_up(least, relative, absolute)
    upper = round_up(xp.astype(upper, d.dtype, copy=False))
    upper = at_most(upper, diameter if p in (1, math.inf) else round_up(diameter))
    return Bound(
        xp.zeros_like(upper),
        upper,
        "upper",
        lp(p),
        Everywhere(name="all x").given("this step d"),
        ("tv-step", "softmax-lp"),
        quantity="change",
        rounding="proved",
    )


class Regularity(NamedTuple):
    """What softmax(λx) is as an operator in l2 (theorem cocoercive)."""

    lipschitz: Bound
    cocoercive: Bound
    nonexpansive: bool
    firmly_nonexpansive: bool
    contractive: bool


def regularity(scale: float = 1.0) -> Regularity:
    """Lipschitz constant λ/2, co-coercivity 2/λ, and whether softmax(λx) is nonexpansive.

    It is nonexpansive and firmly nonexpansive for λ in (0, 2] and contractive for λ in (0, 2).

    >>> regularity(2.0).firmly_nonexpansive, regularity(2.0).contractive
    (True, False)
    """
    scale = scale_value(
        scale, infinite="the limit is not continuous", zero="the softmax is constant"
    )
    if scale < 0:
        raise ValueError(
            f"scale must be positive: softmax(λx) is monotone for λ > 0 only, got {scale}"
        )
    beta = 2 / scale
    if not math.isfinite(beta):
        raise ValueError(f"scale {scale} is so small that 2/scale overflows")
    cocoercive = Bound(
        round_down(beta),
        round_up(beta),
        "exact",
        lp(2),
        ALL,
        ("cocoercive",),
        beta,
        quantity="co-coercivity",
        rounding="proved",
    )
    return Regularity(
        global_lipschitz(2, scale=scale),
        cocoercive,
        nonexpansive=scale <= 2,
        firmly_nonexpansive=scale <= 2,
        contractive=scale < 2,
    )


def bounded_logits_lipschitz(n: int, *, spread: float, p: float = 2, scale: float = 1.0) -> Bound:
    """Lipschitz constant of softmax(λx) over logits with max x − min x ≤ spread.

    The largest probability is at most 1/(1 + (n−1)e^{−λ·spread}) there. While that stays below ½,
    so does the constant (theorem bounded-logits): exact for p = 1 and inf, a bracket for other p.

    >>> bounded_logits_lipschitz(100, spread=1.0, p=1)
    Bound(exact 0.052019, l1, all x in R^100, max x - min x <= 1; bounded-logits)
    """
    p = exponent(p)
    scale = abs(scale_value(scale, infinite="the limit is not continuous"))
    n = whole_number(n, name="n", least=2)
    spread = finite_at_least_zero(spread, name="spread")
    domain = Everywhere((n,)).given(f"max x - min x <= {spread:g}")
    theorem = ("bounded-logits",)
    odds = min(1.0, math.exp(scale * spread) / (n - 1)) if scale * spread < 700 else 1.0
    value = scale * (2 * odds / (1 + odds) ** 2)
    slack = (8 + min(scale * spread, 700.0)) * 2.0**-52
    upper = min(round_up(value, slack), product(scale, 0.5, up=True))
    if p in (1, math.inf):
        return Bound(
            round_down(value, slack),
            upper,
            "exact",
            lp(p),
            domain,
            theorem,
            value,
            rounding="proved",
        )
    if n > 100_000:  # evidence from below would need rows of that length
        return Bound(0.0, upper, "upper", lp(p), domain, theorem, rounding="proved")
    # Evidence from below: the k largest logits tied, all others `spread` below.
    points = [[spread] * k + [0.0] * (n - k) for k in {1, 2, min(3, n), (n + 1) // 2}]
    lower = max(float(local_lipschitz(point, p, scale=scale).lower) for point in points)
    # The allowance in the lower side is an estimate.
    both = (*theorem, "local-p-bracket")
    return Bound(min(lower, upper), upper, "bracket", lp(p), domain, both, rounding="estimated")


def entropy_floor(n: int, *, logit_norm: float) -> Bound:
    """Least entropy (in nats) of a softmax whose logits have ‖λx‖₂ at most ``logit_norm``.

    Attained with one logit up and the others equally down (theorem entropy-floor). The entropy of
    such a row lies between ``lower`` and ``upper`` = log n.

    >>> entropy_floor(8, logit_norm=2.0)
    Bound(entropy between 1.5683 and 2.07945, l2, ...; entropy-floor)
    """
    n = whole_number(n, name="n", least=2)
    logit_norm = finite_at_least_zero(logit_norm, name="logit_norm")
    drop = logit_norm * math.sqrt(n / (n - 1))
    weight = (n - 1) * math.exp(-drop)
    floor = math.log1p(weight) + drop * weight / (1 + weight)
    lower = round_down(floor, (16 + drop) * 2.0**-52)
    domain = Everywhere((n,)).given(f"||scale * x||_2 <= {logit_norm:g}")
    return Bound(
        lower,
        round_up(math.log(n)),
        "bracket",
        lp(2),
        domain,
        ("entropy-floor",),
        quantity="entropy",
        rounding="proved",
    )
