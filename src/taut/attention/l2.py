"""L2 self-attention: scores −‖u_i − u_j‖²/√width with tied queries and keys u = Wx."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from taut._base.array import Array, quietly
from taut._base.bound import Bound
from taut._base.checks import whole_number
from taut._base.domain import Everywhere
from taut._base.matrix_norm import (
    Matrix,
    frobenius,
    spectral,
    spectral_of_product,
    spectral_of_stack,
)
from taut._base.norm import FROBENIUS, TOKEN
from taut._base.rounding import (
    EPS,
    down,
    enlarged,
    hypotenuse,
    over,
    plus,
    root,
    times,
)
from taut._base.upper_bound import bounded_above
from taut.attention.checks import count as count_tokens
from taut.attention.checks import numbers


@quietly
def l2(
    wq: Array,
    wv: Array,
    wo: Array = None,
    *,
    n: int,
    heads: int = 1,
    form: Literal["covariance", "kim"] = "covariance",
    norm: Literal["l2", "token"] = "l2",
) -> Bound:
    """Lipschitz constant of L2 multi-head self-attention with tied weights (Kim et al. 2021).

    Head h gives Wv A Σⱼ Pᵢⱼxⱼ with A = WqᵀWq/√width and Pᵢⱼ ∝ exp(−‖Wqxᵢ − Wqxⱼ‖²/√width).

    Parameters
    ----------
    wq, wv
        Weights (outputs, inputs), the heads one after another; wq makes queries and keys.
    wo
        Output projection, (outputs, outputs of wv); without it the heads are concatenated.
    n, heads
        Number of tokens and of heads.
    form
        ``"covariance"`` (theorem l2-attention) or ``"kim"`` (theorem l2-kim: the paper's bound
        with ‖Wq‖⁴ in place of ‖Wq‖², without which it is exceeded), for comparison.
    norm
        ``"l2"``, Frobenius over tokens, or ``"token"``, the largest l2 norm of a token, in which
        the constant grows as the logarithm of n.

    Examples
    --------
    >>> import numpy as np
    >>> l2(np.eye(4), np.eye(4), n=16)
    Bound(at most 5.24509, l2, all inputs, n = 16, every token sees itself; l2-attention)
    >>> l2(np.eye(4), np.eye(4), n=16, form="kim")
    Bound(at most 13.0677, l2, all inputs, n = 16, every token sees itself; l2-kim)
    >>> l2(np.eye(4), np.eye(4), n=16, norm="token")
    Bound(at most 3.26693, largest token l2, all inputs, n = 16, every token sees itself; ...)
    """
    wq, wv = numbers(wq, name="wq"), numbers(wv, name="wv")
    count, n = whole_number(heads, name="heads", least=1), count_tokens(n, name="n")
    if wq.shape[1] != wv.shape[1]:
        raise ValueError(f"wq and wv take {wq.shape[1]} and {wv.shape[1]} inputs, must be the same")
    if wq.shape[0] % count or wv.shape[0] % count:
        raise ValueError(
            f"wq and wv give {wq.shape[0]} and {wv.shape[0]} outputs, which are not multiples of "
            f"{count} heads"
        )
    wo = np.eye(wv.shape[0]) if wo is None else numbers(wo, name="wo")
    if wo.shape[1] != wv.shape[0]:
        raise ValueError(f"wo must take {wv.shape[0]} inputs, its shape is {wo.shape}")
    width = wq.shape[0] // count
    narrow = over(1.0, down(math.sqrt(width)))
    domain = Everywhere().given(f"n = {n}", "every token sees itself")
    pairs = list(zip(np.split(wq, count), np.split(wv, count), strict=True))
    moved = farthest(n)
    if norm not in ("l2", "token"):
        raise ValueError(f"norm must be l2 or token, got {norm!r}")
    if form == "kim":
        if norm != "l2":
            raise ValueError("the bound of Kim et al. is for norm='l2' only")
        squares = [times(spectral(q), times(spectral(v), spectral(q))) for q, v in pairs]
        shift = times(root(float(n)), plus(times(4.0, moved), 1.0))
        around = times(spectral(wo), hypotenuse(*squares))
        return bounded_above(
            times(narrow, shift, around), FROBENIUS, domain, "l2-kim", rounding="proved"
        )
    if form != "covariance":
        raise ValueError(f"form must be covariance or kim, got {form!r}")
    ends = np.split(wo, count, axis=1)
    if norm == "token":
        around = _around_token(pairs, ends, spectral(wo))
        shift = plus(times(4.0, moved), 1.0)
        return bounded_above(
            times(narrow, shift, around), TOKEN, domain, "l2-attention", rounding="proved"
        )
    around = _around(pairs, ends, spectral(wo))
    shift = plus(
        root((n + 1) / 2),
        times(2.0, moved),
        times(2.0, root(times(moved, farthest(2), float(n - 1)))),
    )
    if n == 1:
        shift = 1.0
    return bounded_above(
        times(narrow, shift, around), FROBENIUS, domain, "l2-attention", rounding="proved"
    )


def _around(pairs: list[tuple[Matrix, Matrix]], ends: list[Matrix], outer: float) -> float:
    """What stands before and after the averages: ‖[c Wq]_h‖·‖[Wo Wv Wqᵀ/c]_h‖ for any c_h > 0.

    Heads of very different sizes are better kept apart before Wo.
    """
    products = [o @ v @ q.T for o, (q, v) in zip(ends, pairs, strict=True)]
    sizes = [
        times(frobenius(o), frobenius(v), frobenius(q))
        for o, (q, v) in zip(ends, pairs, strict=True)
    ]
    error = EPS * (ends[0].shape[1] + pairs[0][0].shape[1] + 8)
    apart = [times(spectral(q), spectral_of_product(v, q.T)) for q, v in pairs]
    best = times(outer, hypotenuse(*apart))
    balanced = [
        math.sqrt(spectral(product) / spectral(q)) if spectral(q) and spectral(product) else 1.0
        for product, (q, _) in zip(products, pairs, strict=True)
    ]
    for scales in ([1.0] * len(pairs), balanced):
        before = spectral_of_stack([q for q, _ in pairs], scales)
        after = np.hstack([p / c for c, p in zip(scales, products, strict=True)])
        slack = times(error, hypotenuse(*map(over, sizes, scales)))  # of products and quotients
        best = min(best, times(before, plus(spectral(after), slack)))
    return best


def _around_token(pairs: list[tuple[Matrix, Matrix]], ends: list[Matrix], outer: float) -> float:
    """The same in the largest token, where heads may look at different tokens."""
    apart = [times(spectral(q), spectral_of_product(v, q.T)) for q, v in pairs]
    added = [times(spectral(o), each) for o, each in zip(ends, apart, strict=True)]
    return min(times(outer, hypotenuse(*apart)), plus(*added))


def farthest(n: int) -> float:
    """W₀((n − 1)/e), the root of x·e^{x+1} = n − 1, from above: the largest mean squared distance.

    It is the maximum of Σ a e^{−a}/(1 + Σ e^{−a}) over n − 1 numbers a ≥ 0.
    """
    if n == 1:
        return 0.0
    x = math.log(n)
    for _ in range(50):
        x -= (x - (n - 1) * math.exp(-x - 1)) / (1 + (n - 1) * math.exp(-x - 1))
    while x < enlarged((n - 1) * math.exp(-x - 1), 8 + 2 * x):  # proves that it is no smaller
        x = enlarged(x, 64)
    return x
