"""The bound of Castin, Ablin and Peyré on a ball, for comparison."""

from __future__ import annotations

from taut._base.array import quietly
from taut._base.bound import Bound
from taut._base.domain import Ball
from taut._base.matrix_norm import spectral_of_product
from taut._base.norm import FROBENIUS
from taut._base.rounding import hypotenuse, plus, root, times
from taut._base.upper_bound import bounded_above
from taut.attention.checks import ball
from taut.attention.layer import Layer


@quietly
def castin_ball(layer: Layer, domain: Ball | float, *, n: int | None = None) -> Bound:
    """√3 ‖V‖ √(‖A‖²R⁴(4n + 1) + n) with A = scale·WkᵀWq, heads added up (theorem attn-castin).

    For layers without biases, soft cap and rotary positions. :func:`dot_product_ball` is never
    larger.

    Examples
    --------
    >>> import numpy as np
    >>> layer = Layer(np.eye(2), np.eye(2), np.eye(2), scale=1.0)
    >>> castin_ball(layer, Ball(1.0), n=16)
    Bound(at most 15.5885, l2, tokens of length at most 1, n = 16; attn-castin)
    """
    domain, n = ball(domain, n, layer.inputs, name="domain")
    radius = domain.radius
    if layer.softcap is not None or any(h.bq.any() or h.bk.any() for h in layer.heads):
        raise ValueError("this bound is for layers without biases and soft cap; use "
                         "dot_product_ball")  # fmt: skip
    total = 0.0
    for head in layer.heads:
        energy = times(layer.scale, spectral_of_product(head.wk.T, head.wq), radius, radius)
        inner = hypotenuse(times(energy, root(4.0 * n + 1)), root(float(n)))
        total = plus(total, times(root(3.0), head.value_norm, inner))
    return bounded_above(
        total, FROBENIUS, domain.given(f"n = {n}"), "attn-castin", rounding="proved"
    )
