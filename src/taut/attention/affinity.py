"""How far the attention weights of a query move when the query moves."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from taut._base.array import Array, quietly
from taut._base.array_rounding import round_down, round_up
from taut._base.bound import Bound
from taut._base.checks import dual_exponent, exponent, positive_in_range
from taut._base.domain import At, Everywhere
from taut._base.matrix_norm import Matrix, matrix_norm
from taut._base.norm import lp
from taut._base.reductions import lp_norm
from taut._base.rounding import EPS, enlarged, plus, times
from taut._base.upper_bound import bounded_above
from taut.attention.checks import numbers

Form = Literal["diameter", "centred", "zhang"]


@quietly
def affinity(
    keys: Array,
    *,
    scale: float | None = None,
    p: float = 2,
    queries: Array = None,
    form: Form = "diameter",
) -> Bound:
    """Change of softmax(scale·K q) in l_p for each unit of change of the query q in l_p.

    Each row depends on its own query alone, so the same constant holds for the whole matrix of
    weights as a function of all queries (Frobenius norm, or entrywise l_p).

    Parameters
    ----------
    keys
        Keys, one a row.
    scale
        Factor of the scores; 1/√(width) if not given.
    p
        Exponent of the norm.
    queries
        If given, the constants at these queries (one a row) and no others: exact for p = 1, 2, ∞.
    form
        ``"diameter"`` (theorem affinity-diameter), the best one; ``"centred"`` (affinity);
        ``"zhang"``, that of Zhang et al. 2021, for p = 2 (affinity-seed).

    Returns
    -------
    Bound
        For every query and every mask or additive term, or one constant for each given query.

    Examples
    --------
    >>> keys = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]
    >>> affinity(keys, scale=1.0)
    Bound(at most 0.707107, l2, all queries, these keys, ...; affinity-diameter)
    >>> affinity(keys, scale=1.0, form="zhang").upper > 2.8
    True
    >>> affinity(keys, scale=1.0, queries=[[0.0, 0.0]])[0]
    Bound(exact 0.471405, l2, at these queries, these keys; affinity-local; rounding estimated)
    """
    if form not in ("diameter", "centred", "zhang"):
        raise ValueError(f"form must be diameter, centred or zhang, got {form!r}")
    k = numbers(keys, name="keys")
    alpha = 1 / math.sqrt(k.shape[1]) if scale is None else positive_in_range(scale, name="scale")
    p = exponent(p)
    if queries is not None:
        return _at(k, numbers(queries, name="queries"), alpha, p)
    domain = Everywhere(name="all queries").given("these keys", "any mask or bias")
    if len(k) == 1:  # one weight is always 1
        return Bound(0.0, 0.0, "exact", lp(p), domain, "affinity-diameter", 0.0, rounding="proved")
    if form == "zhang":
        if p != 2:
            raise ValueError(
                f"the bound of Zhang et al. 2021 is for p = 2, not {p}; use another form"
            )
        return bounded_above(
            times(2 * alpha, _norm(k, 2)), lp(2), domain, "affinity-seed", rounding="proved"
        )
    if form == "centred":
        return bounded_above(
            times(alpha / 2, _centred(k, p)), lp(p), domain, "affinity", rounding="proved"
        )
    factor = enlarged(alpha * 2 ** (1 / p) / 4, 8)
    return bounded_above(
        times(factor, _diameter(k, dual_exponent(p))),
        lp(p),
        domain,
        "affinity-diameter",
        rounding="proved",
    )


def _norm(matrix: Matrix, p: float) -> float:
    return float(matrix_norm(matrix, p))


def _centred(k: Matrix, p: float) -> float:
    """Least norm of K − 1cᵀ over a few c: the mean is best for p = 2, the median for p = 1."""
    middle = (k.max(axis=0) + k.min(axis=0)) / 2
    # Subtracting rounds each entry by half a unit; the norm of those errors is at most that much.
    slack = times(float(np.abs(k).max()), 2 * EPS * k.size)
    centres = (k.mean(axis=0), np.median(k, axis=0), middle, np.zeros(k.shape[1]))
    return min(plus(_norm(k - c, p), slack if c.any() else 0.0) for c in centres)


def _diameter(k: Matrix, p: float) -> float:
    """Largest distance of two keys in l_p, rounded up."""
    largest = 0.0
    for i, row in enumerate(k[:-1]):
        apart = lp_norm(k[i + 1 :] - row, p)  # scaled: powers of p near ∞ underflow at once
        largest = max(largest, float(apart.max()))
    # Roundings before the root are divided by p; small differences of large keys are lost.
    lost = times(4 * EPS * k.shape[1], float(np.abs(k).max()))
    return float(plus(enlarged(largest, k.shape[1] + 16), lost))


def _at(k: Matrix, q: Matrix, alpha: float, p: float) -> Bound:
    """Constants α‖M(s)K‖_p at given queries: M K has the rows sⱼ(kⱼ − Σ sₗkₗ)."""
    if q.shape[1] != k.shape[1]:
        raise ValueError(
            f"queries and keys must be of one width, got {q.shape[1]} and {k.shape[1]}"
        )
    k = k - k.mean(axis=0)  # changes no weight and spares digits
    z = alpha * (q @ k.T)
    z = z - z.max(axis=1, keepdims=True)
    s = np.exp(z)
    s = s / s.sum(axis=1, keepdims=True)
    moved = alpha * s[:, :, None] * (k - (s @ k)[:, None, :])
    found = matrix_norm(moved, p)
    size = np.linalg.norm(q, axis=1) * np.linalg.norm(k, axis=1).max() * alpha
    relative = 8 * EPS * (sum(k.shape) + 16) * (1 + size)
    absolute = alpha * relative * np.abs(k).max() * math.sqrt(k.shape[1] * len(k))
    upper = round_up(found, relative) + absolute
    known = p in (1, 2, math.inf)
    lower = np.maximum(round_down(found, relative) - absolute, 0.0)
    return Bound(
        lower if known else np.zeros_like(upper),
        upper,
        "exact" if known else "upper",
        lp(p),
        At(q, name="these queries").given("these keys"),
        "affinity-local",
        found if known else None,
        rounding="estimated",
    )
