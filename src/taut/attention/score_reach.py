"""How far the scores of a head can move and lie apart, for tokens of bounded length."""

from __future__ import annotations

from typing import NamedTuple

from taut._base.matrix_norm import Matrix, spectral, spectral_of_product
from taut._base.rounding import plus, times
from taut.attention.layer import Head, Layer


class Reach(NamedTuple):
    """What a head can do at most: ‖α Wqᵀk‖, ‖α Wkᵀq‖, and how far apart scores can be."""

    key: float
    query: float
    osc: float


def reach_of(layer: Layer, head: Head, radius: float, far: float, turn: float) -> Reach:
    """Sizes of the two gradients of a score.

    ``turn`` is the largest norm of the matrices that rotary positions apply to queries and keys, 0
    where there are none. Rotations keep norms, but not products of weights.
    """
    rotary = turn > 0
    alpha = times(layer.scale, turn, turn) if rotary else layer.scale
    if rotary:
        both = times(spectral(head.wq), spectral(head.wk))
        bq, bk = (
            times(spectral(head.wk), _length(head.bq)),
            times(spectral(head.wq), _length(head.bk)),
        )
    else:
        both = spectral_of_product(head.wk.T, head.wq)
        bq, bk = (
            spectral_of_product(w.T, b[:, None])
            for w, b in ((head.wk, head.bq), (head.wq, head.bk))
        )
    kept = rotary or layer.softcap is not None  # else a bias of the keys cancels (theorem shift)
    key = times(alpha, plus(times(both, far), bk if kept else 0.0))
    query = times(alpha, plus(times(both, radius), bq))
    if rotary:  # the bias of the keys turns with the positions, so it moves scores too
        longest = plus(times(spectral(head.wk), far), _length(head.bk))
        osc = times(2 * alpha, plus(times(spectral(head.wq), radius), _length(head.bq)), longest)
    else:
        osc = times(2.0, query, far)
    return Reach(key, query, osc if layer.softcap is None else min(osc, 2 * layer.softcap))


def _length(bias: Matrix) -> float:
    return spectral(bias[:, None])
