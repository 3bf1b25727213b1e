"""The subset whose probability is nearest to ½, on which the ∞→1 norm of M(s) rests.

‖M‖_{∞→1} = 4 max_S P(S)(1 − P(S)) = θ (theorem inf-to-1) is a number-partitioning problem. Up to 24
entries all subsets are tried; of more, the large ones are arranged and the small ones fill what is
left, which gives a bracket narrower than 1e-6 unless more than 24 large entries leave a remainder.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

_Matrix = np.ndarray[Any, np.dtype[Any]]


class Partitions(NamedTuple):
    """For each row a subset (as a mask), its distance from ½, and the least of any subset's."""

    subset: _Matrix
    distance: _Matrix
    least_distance: _Matrix  # a lower bound; the same as the distance where all subsets were tried


def nearest_half(s: _Matrix) -> Partitions:
    """Subsets of the probabilities of every row, (rows, entries), whose sums are nearest to ½."""
    s = np.require(s, np.float64, ["C", "A"])
    subset, out = np.zeros(s.shape, dtype=bool), np.empty((2, len(s)))
    _subsets()(s, subset, out)
    return Partitions(subset, out[0] / 2, out[1] / 2)


def theta_sides(s: _Matrix) -> tuple[_Matrix, _Matrix]:
    """Lower and upper side of θ of every row of probabilities in double precision.

    The probabilities are as a softmax gives them. An exponential and a division cost at most four
    units in the last place, and the difference d of logits |d|/2; the mean of |d| under the
    probabilities is their entropy less log(1/s₁), at most log n. So a sum of signed probabilities,
    that of all and that of the small ones each err by (4 + log n) 2⁻⁵³ at most, of which twice as
    much is allowed, and by n roundings; what the common divisor errs by cancels.
    """
    s = np.require(s, np.float64, ["C", "A"])
    n = s.shape[-1]
    out = np.empty((2, len(s)))
    _thetas()(s, 3 * (4 + math.log(n) + 2 * n) * 2.0**-52, out)
    return out[0], out[1]


@lru_cache
def _subsets() -> Callable[..., None]:
    from numba import types

    from taut._base.compiled import compiled
    from taut._softmax.kernel.partition import fill_subsets

    rows = types.Array(types.float64, 2, "C", readonly=True)
    masks, lines = types.Array(types.boolean, 2, "C"), types.Array(types.float64, 2, "C")
    return compiled(fill_subsets, types.void(rows, masks, lines))


@lru_cache
def _thetas() -> Callable[..., None]:
    from numba import types

    from taut._base.compiled import compiled
    from taut._softmax.kernel.partition import fill_thetas

    rows = types.Array(types.float64, 2, "C", readonly=True)
    lines = types.Array(types.float64, 2, "C")
    return compiled(fill_thetas, types.void(rows, types.float64, lines))
