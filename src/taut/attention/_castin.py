"""The bound of Castin, Ablin and Peyré on a ball, for comparison."""

from __future__ import annotations

from taut._array import quietly
from taut._bound import Bound
from taut.attention._inputs import count, length
from taut.attention._layer import Layer
from taut.attention._spectral import (
    FROBENIUS,
    bounded,
    hypotenuse,
    plus,
    root,
    spectral,
    spectral_of_product,
    times,
)  # fmt: skip


@quietly
def castin_ball(layer: Layer, radius: float, *, n: int) -> Bound:
    """√3 ‖V‖ √(‖A‖²R⁴(4n + 1) + n) with A = scale·WkᵀWq, heads added up (theorem attn-castin).

    For layers without biases, soft cap and rotary positions. :func:`dot_product_ball` is never
    larger.

    Examples
    --------
    >>> import numpy as np
    >>> layer = Layer(np.eye(2), np.eye(2), np.eye(2), scale=1.0)
    >>> castin_ball(layer, 1.0, n=16)
    Bound(at most 15.5885, l2, tokens of length at most 1, n = 16; attn-castin)
    """
    n = count(n, name="n")
    radius = length(radius, name="radius")
    if layer.softcap is not None or any(h.bq.any() or h.bk.any() for h in layer.heads):
        raise ValueError("this bound is for layers without biases and soft cap; use "
                         "dot_product_ball")  # fmt: skip
    total = 0.0
    for head in layer.heads:
        energy = times(layer.scale, spectral_of_product(head.wk.T, head.wq), radius, radius)
        inner = hypotenuse(times(energy, root(4.0 * n + 1)), root(float(n)))
        total = plus(total, times(root(3.0), spectral(head.folded), inner))
    domain = f"tokens of length at most {radius:g}, n = {n}"
    return bounded(total, FROBENIUS, domain, "attn-castin")
