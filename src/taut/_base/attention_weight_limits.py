"""What attention weights can do at most when all that is known is the size of the tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taut._base.matrix_norm import Matrix
from taut._base.rounding import EPS, enlarged

CELLS = 1 << 13
TINIEST = 1e-300  # more than what underflows


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
    cells = _cells(largest_weight(keys, osc), energy, plain, aligned)
    return enlarged(float(cells.max()), 16)


def _cells(largest: float, energy: float, plain: float, aligned: bool) -> Matrix:
    """p·κ²(p) for weights p up to the largest, each cell from above."""
    edges = np.linspace(0.0, largest, CELLS + 1)
    moving = energy * variance(edges[:-1])  # falls with p: the left end is the largest
    power = (math.sqrt(plain) + np.sqrt(moving)) ** 2 if aligned else plain + moving
    return np.asarray(edges[1:] * power)


def heaviest_biased_column(
    bias: Matrix,
    seen: np.ndarray[Any, np.dtype[Any]],
    energy: float,
    osc: float,
    *,
    plain: float = 1.0,
) -> float:
    """:func:`heaviest_column` where a fixed term of the scores is known, entry by entry.

    ``bias`` has the shape (heads, queries, keys), ``seen`` the same or one for all heads. All else
    in the scores of a query is at most ``osc`` apart, so that

    Pᵢⱼ ≤ e^{bᵢⱼ}/(e^{bᵢⱼ} + e^{−osc} Σ_{k≠j} e^{bᵢₖ}).

    A term that leads every query to a key of its own so leaves all columns near 1, however sharp it
    is; its range alone would allow all queries the same key.
    """
    if not math.isfinite(energy):
        return math.inf
    with np.errstate(all="ignore"):
        scores = np.where(seen, bias, -np.inf)
        top = scores.max(axis=2, keepdims=True)
        raised = np.maximum(np.exp(scores - top), TINIEST)
        # What is left of a sum of n terms when one is taken away errs by n units of the sum.
        total = raised.sum(axis=2, keepdims=True)
        others = np.maximum(total - raised - (scores.shape[2] + 8) * EPS * total, 0.0)
        most = raised / (raised + math.exp(-osc) * (1 - 8 * EPS) * others)
    most = np.minimum(np.where(np.isnan(most), 1.0, enlarged(most, 16)), 1.0) * seen
    power = np.maximum.accumulate(_cells(1.0, energy, plain, aligned=False))
    cell = np.clip(np.ceil(most * CELLS).astype(int) - 1, 0, CELLS - 1)
    each = np.where(most > 0, np.minimum(power[cell], (plain + energy) * most), 0.0)
    return float(enlarged(float(each.sum(axis=1).max()), scores.shape[1] + 24))
