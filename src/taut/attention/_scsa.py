"""Scaled cosine similarity attention: queries, keys and values of bounded length."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from taut._array import Array, quietly
from taut._bound import Bound
from taut._rounding import round_up
from taut.attention._inputs import Matrix, count, numbers, positive, visible
from taut.attention._limits import heaviest_column
from taut.attention._spectral import EPS, FROBENIUS, bounded, plus, root, spectral, times


@quietly
def scsa(
    wq: Array,
    wk: Array,
    wv: Array,
    *,
    n: int,
    tau: float,
    nu: float,
    epsilon: float,
    mask: Array = None,
    causal: bool = False,
    form: Literal["covariance", "seed"] = "covariance",
) -> Bound:
    """Lipschitz constant of X ↦ ν softmax(τ Q Kᵀ) V with rows u/√(‖u‖² + ε), u = Wx.

    Parameters
    ----------
    wq, wk, wv
        Weights, either way round; only their norms and those of wk over wv, stacked, matter. All
        three are (outputs, inputs), as in ``torch.nn.Linear``.
    n
        Number of tokens.
    tau, nu, epsilon
        Inverse temperature, factor of the output, and what is added to the squared norms.
    mask, causal
        Boolean mask, True where a query (row) sees a key (column), and the causal one.
    form
        ``"covariance"`` (theorem scsa-cov) or ``"seed"`` (theorem scsa, for comparison).

    Examples
    --------
    >>> import numpy as np
    >>> W = np.eye(4)
    >>> scsa(W, W, W, n=16, tau=1.0, nu=1.0, epsilon=1.0)
    Bound(at most 5.59586, l2, all inputs, n = 16; scsa-cov)
    >>> scsa(W, W, W, n=16, tau=1.0, nu=1.0, epsilon=1.0, form="seed")
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
    tau, nu = positive(tau, name="tau"), positive(nu, name="nu")
    outer = float(round_up(nu / math.sqrt(positive(epsilon, name="epsilon")), 8 * EPS))
    domain = f"all inputs, n = {n}"
    if form == "seed":
        terms = (
            times(float(n * n), tau, spectral(wk)),
            times(float(n), tau, spectral(wq)),
            times(2.0 * n, spectral(wv)),
        )
        return bounded(times(outer, plus(*terms)), FROBENIUS, domain, "scsa")
    if form != "covariance":
        raise ValueError(f"form must be covariance or seed, got {form!r}")
    rows = 1 if mask is None and not causal else n  # without a mask one row stands for all
    seen = visible(mask, causal, (rows, n))
    if not seen.all():
        domain += ", this mask"
    moves = bool((seen.sum(axis=1) > 1).any())
    query = times(tau, spectral(wq)) if moves else 0.0
    return bounded(
        times(outer, plus(query, _context(wk, wv, tau, seen, n // rows))),
        FROBENIUS,
        domain,
        "scsa-cov",
    )


def _context(wk: Matrix, wv: Matrix, tau: float, seen: Matrix, copies: int) -> float:
    """The part through keys and values, for the best of a few ratios μ of their weights."""
    osc = np.full(len(seen), float(round_up(2 * tau)))
    key, value = spectral(wk), spectral(wv)
    keys, values = (
        root(heaviest_column(seen, e, osc, plain=p, copies=copies))
        for e, p in ((tau * tau, 0.0), (0.0, 1.0))
    )
    best = plus(times(keys, key), times(values, value))
    if not (key > 0 and value > 0):
        return best
    balance = math.sqrt(tau * value / key)
    for ratio in balance * 2.0 ** np.linspace(-4, 4, 17):
        energy = float(round_up((tau / ratio) ** 2, 8 * EPS))
        stacked = spectral(np.vstack([ratio * wk, wv]))
        best = min(best, times(root(heaviest_column(seen, energy, osc, copies=copies)), stacked))
    return best
