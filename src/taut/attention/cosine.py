"""Scaled cosine similarity attention: queries, keys and values of bounded length."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from taut._base.array import Array, quietly
from taut._base.attention_weight_limits import heaviest_column
from taut._base.bound import Bound
from taut._base.checks import positive_in_range
from taut._base.domain import Everywhere
from taut._base.matrix_norm import Matrix, spectral, spectral_of_stack
from taut._base.norm import FROBENIUS
from taut._base.rounding import down, over, plus, root, times
from taut._base.upper_bound import bounded_above
from taut.attention.checks import count, numbers, visible


@quietly
def cosine(
    wq: Array,
    wk: Array,
    wv: Array,
    *,
    n: int,
    scale: float,
    nu: float,
    epsilon: float,
    mask: Array = None,
    causal: bool = False,
    form: Literal["covariance", "nair"] = "covariance",
) -> Bound:
    """Lipschitz constant of X ↦ ν softmax(λ Q Kᵀ) V with rows u/√(‖u‖² + ε), u = Wx.

    Parameters
    ----------
    wq, wk, wv
        Weights as (outputs, inputs), as in ``torch.nn.Linear``; only their norms and those of wk
        over wv, stacked, matter.
    n
        Number of tokens.
    scale, nu, epsilon
        Inverse temperature λ, factor of the output, and what is added to the squared norms.
    mask, causal
        Boolean mask, True where a query (row) sees a key (column), and the causal one.
    form
        ``"covariance"`` (theorem scsa-cov) or ``"nair"`` (theorem scsa, that of Nair 2025, for
        comparison).

    Examples
    --------
    >>> import numpy as np
    >>> W = np.eye(4)
    >>> cosine(W, W, W, n=16, scale=1.0, nu=1.0, epsilon=1.0)
    Bound(at most 5.59586, l2, all inputs, n = 16; scsa-cov)
    >>> cosine(W, W, W, n=16, scale=1.0, nu=1.0, epsilon=1.0, form="nair")
    Bound(at most 304.001, l2, all inputs, n = 16; scsa)
    """
    wq, wk, wv = (numbers(w, name=name) for w, name in ((wq, "wq"), (wk, "wk"), (wv, "wv")))
    if not wq.shape[1] == wk.shape[1] == wv.shape[1]:
        raise ValueError(
            f"wq, wk and wv read the same tokens; they take {wq.shape[1]}, {wk.shape[1]} and "
            f"{wv.shape[1]} inputs: weights are (outputs, inputs)"
        )
    if wq.shape[0] != wk.shape[0]:
        raise ValueError(
            f"queries and keys must be of one width, got {wq.shape[0]} and {wk.shape[0]}"
        )
    n = count(n, name="n")
    scale, nu = positive_in_range(scale, name="scale"), positive_in_range(nu, name="nu")
    outer = over(nu, down(math.sqrt(positive_in_range(epsilon, name="epsilon"))))
    domain = Everywhere().given(f"n = {n}")
    if form == "nair":
        terms = (
            times(float(n * n), scale, spectral(wk)),
            times(float(n), scale, spectral(wq)),
            times(2.0 * n, spectral(wv)),
        )
        return bounded_above(
            times(outer, plus(*terms)), FROBENIUS, domain, "scsa", rounding="proved"
        )
    if form != "covariance":
        raise ValueError(f"form must be covariance or nair, got {form!r}")
    rows = 1 if mask is None and not causal else n  # without a mask one row stands for all
    seen = visible(mask, causal, (rows, n))
    if not seen.all():
        domain = domain.given("this mask")
    moves = bool((seen.sum(axis=1) > 1).any())
    query = times(scale, spectral(wq)) if moves else 0.0
    return bounded_above(
        times(outer, plus(query, _context(wk, wv, scale, seen, n // rows))),
        FROBENIUS,
        domain,
        "scsa-cov",
        rounding="proved",
    )


def _context(wk: Matrix, wv: Matrix, scale: float, seen: Matrix, copies: int) -> float:
    """The part through keys and values, for the best of a few ratios μ of their weights."""
    osc = np.full(len(seen), 2 * scale)
    key, value = spectral(wk), spectral(wv)
    keys, values = (
        root(heaviest_column(seen, e, osc, plain=p, copies=copies))
        for e, p in ((times(scale, scale), 0.0), (0.0, 1.0))
    )
    best = plus(times(keys, key), times(values, value))
    if not (key > 0 and value > 0):
        return best
    balance = math.sqrt(scale * value / key)
    for ratio in (balance * 2.0 ** np.linspace(-4, 4, 17)).tolist():
        energy = times(over(scale, ratio), over(scale, ratio))
        stacked = spectral_of_stack([wk, wv], [ratio, 1.0])
        best = min(best, times(root(heaviest_column(seen, energy, osc, copies=copies)), stacked))
    return best
