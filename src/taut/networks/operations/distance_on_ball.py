"""L2 attention on all tokens of bounded length (theorem l2-ball).

Proof in docs/proofs_attention.md. With u = Wx in a head, no two of them farther than D from each
other, and scores −α|uᵢ − uⱼ|², what a change of the keys adds to their average and what it changes
in the weights have opposite signs: as long as αD² ≤ 1, the weights cost nothing.
"""

from __future__ import annotations

import numpy as np
import torch

from taut._base.rounding import Numbers, hypotenuse, number, plus, root, times, up
from taut.networks.operations.attention_on_ball import heaviest
from taut.networks.operations.distance_parameters import DistanceHeads, DistanceNorms
from taut.networks.region import Region


def distances_on_ball(
    x: Region,
    heads: DistanceHeads,
    norms: DistanceNorms,
    seen: torch.Tensor | None,
    bias: torch.Tensor | None,
    norm: str,
) -> Numbers:
    """Constants of L2 attention with its output projection, one for each sample."""
    return number(
        [
            _on_ball(
                x, heads, norms, float(far), None if seen is None else seen[b].cpu(), bias, norm
            )
            for b, far in enumerate(x.length)
        ]
    )


def _on_ball(
    x: Region,
    heads: DistanceHeads,
    norms: DistanceNorms,
    far: float,
    seen: torch.Tensor | None,
    bias: torch.Tensor | None,
    norm: str,
) -> float:
    if not np.isfinite(far):
        return np.inf
    # Λ, the largest variance of u in a head; a single token does not vary, and D² = 4Λ.
    reach = times(norms.queries, far) if x.tokens > 1 else np.zeros_like(norms.queries)
    steep = times(heads.score_scale, reach, reach)  # αΛ
    if not np.isfinite(steep).all():
        return np.inf
    excess = np.maximum(up(times(4.0, steep) - 1.0), 0.0)
    grown = root(plus(1.0, times(4.0, steep, excess)))
    turned = times(2.0, steep)
    if norm == "token":
        keys = hypotenuse(*times(grown, norms.queries, norms.maps))
        turn = float(times(turned, norms.maps).max())
        return float(times(norms.output, plus(keys, times(turn, norms.query))))
    column = heaviest(x, x, float(times(4.0, steep).max()), seen, bias)
    inner = plus(times(root(column(0.0, 1.0)), grown), turned)
    return float(times(norms.output, float(times(inner, norms.maps).max()), norms.query))
