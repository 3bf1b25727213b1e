"""What attention weights can do at most when all that is known is the size of the tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taut._base.matrix_norm import Matrix
from taut._base.rounding import enlarged

CELLS = 1 << 13


def largest_weight(keys: int, osc: float) -> float:
    """Largest weight among so many keys whose scores differ by at most ``osc`` (bounded-logits)."""
    return min(1.0, enlarged(1 / (1 + (keys - 1) * math.exp(-osc)), 8))


def variance(weight: Matrix) -> Matrix:
    """Largest variance on [−1, 1] with an atom of this weight: 1, or 4p(1 − p) beyond ½."""
    return np.where(weight <= 0.5, 1.0, 4 * weight * (1 - weight))


def heaviest_column(
    seen: np.ndarray[Any, np.dtype[Any]],
    energy: float,
    osc: Matrix,
    *,
    plain: float = 1.0,
    aligned: bool = False,
    copies: int = 1,
) -> float:
    """Largest Σᵢ Pᵢⱼκᵢ² over keys j, with κᵢ² ≤ plain + energy·variance (theorem attn-ball).

    ``osc`` bounds how far apart the scores of each query can be. With ``aligned`` the two parts of
    κᵢ can point the same way, as they can under a soft cap: κᵢ ≤ √plain + √(energy·variance).
    ``copies`` says how often the rows of ``seen`` occur, so that without a mask one is enough.
    """
    count = seen.sum(axis=1)
    cases = dict.fromkeys(zip(count.tolist(), osc.tolist(), strict=True), 0.0)
    for keys, width in cases:
        cases[keys, width] = _weighted(keys, width, energy, plain, aligned)
    each = np.array([cases[case] for case in zip(count.tolist(), osc.tolist(), strict=True)])
    return enlarged(copies * float((each @ seen).max()), len(seen) + 8)


def _weighted(keys: int, osc: float, energy: float, plain: float, aligned: bool) -> float:
    """Maximum over p of p·κ²(p), for weights p that can occur; each cell from above."""
    if keys == 1:
        return plain
    if not math.isfinite(energy):
        return math.inf
    edges = np.linspace(0.0, largest_weight(keys, osc), CELLS + 1)
    moving = energy * variance(edges[:-1])  # falls with p: the left end is the largest
    power = (math.sqrt(plain) + np.sqrt(moving)) ** 2 if aligned else plain + moving
    return enlarged(float((edges[1:] * power).max()), 16)
