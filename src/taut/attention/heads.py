"""Several heads: what they do together, before and after the output projection."""

from __future__ import annotations

import math

import numpy as np

from taut._base.matrix_norm import Matrix, largest_eigenvalues, spectral
from taut.attention.head_at_tokens import Evaluated, Tokens, evaluate
from taut.attention.key_weights import Part, columns, part
from taut.attention.layer import Layer

AFFORDABLE = 1 << 33  # multiplications to take all heads as one, some seconds


def allowance(heads: list[Evaluated]) -> tuple[float, float]:
    """Relative and absolute allowance for rounding, over all heads."""
    relative = max(head.slack for head in heads)
    return 4 * relative, 4 * sum(head.slack * head.size for head in heads)


def queries(layer: Layer, folded: list[Evaluated]) -> Matrix:
    """‖Tᵢ‖ for every query, all heads and the output projection together."""
    ends = _isometries(layer, folded)
    blocks = (
        np.sum([e @ h.rows[i].query for e, h in zip(ends, folded, strict=True)], axis=0)
        for i in range(len(folded[0].rows))
    )
    return np.array([spectral(block) for block in blocks])


def _isometries(layer: Layer, folded: list[Evaluated]) -> list[Matrix]:
    """Where the folded values of each head go: Q of Wo = QR, or its own rows of the output."""
    if layer.wo is None:
        sizes = [head.values.shape[0] for head in folded]
        return np.split(np.eye(sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
    shares = [head.wo for head in layer.heads]
    return [np.linalg.qr(share, mode="reduced")[0] for share in shares if share is not None]


def joint(layer: Layer, at: Tokens, folded: list[Evaluated]) -> Part | None:
    """All heads as one: blocks B = Σ_h Wo P(Wv + cDgᵀ), under the mean πᵢⱼ of their weights.

    κᵢ² = ‖Σⱼ (wⱼ/πᵢⱼ) BᵢⱼBᵢⱼᵀ‖. It takes all blocks of the derivative, one query at a
    time; None where that would take too long.
    """
    ends = _isometries(layer, folded)
    n, m = at.seen.shape
    out, inputs = ends[0].shape[0], at.y.shape[1]
    if len(folded) == 1 or n * m * out * inputs * out > AFFORDABLE:
        return None
    share = np.mean([[row.p for row in head.rows] for head in folded], axis=0)
    # Smaller weights vanish in the rounding, and their inverse would overflow.
    inverse = np.divide(1.0, share, out=np.zeros_like(share), where=share > 1e-290)

    def gram(i: int, scales: Matrix) -> Matrix:
        blocks = np.zeros((m, out, inputs))
        for end, head in zip(ends, folded, strict=True):
            row = head.rows[i]
            moved = (row.spread * row.c[:, None])[:, :, None] * row.gradient[:, None, :]
            blocks += (row.p * scales)[:, None, None] * (end @ (head.values + moved))
        wide = blocks.transpose(1, 0, 2).reshape(out, -1)
        return np.asarray(wide @ wide.T)

    def energy(weights: Matrix) -> Matrix:
        return largest_eigenvalues(
            np.stack([gram(i, np.sqrt(weights * inverse[i])) for i in range(n)])
        )

    return share, energy


def contexts(layer: Layer, at: Tokens, folded: list[Evaluated]) -> list[Matrix]:
    """Bounds on the square of the part through keys and values, each with one number a token.

    Heads are added up after the projection, stacked before it, or taken as one.
    """
    if len(folded) == 1:
        return columns([part(folded[0])])
    m = len(at.y)
    added = sum(math.sqrt(min(float(c.max()) for c in columns([part(h)]))) for h in folded)
    found = [np.full(m, added * added)]
    whole = joint(layer, at, folded)
    if whole is not None:
        found += columns([whole])
    # Before Wo the heads stand side by side, so their squares add and Wo multiplies once.
    plain = [evaluate(layer, at, h, fold=False) for h in range(len(folded))]
    factor = 1.0 if layer.wo is None else spectral(layer.wo)
    error = factor * allowance(plain)[1]
    stacked = columns([part(head) for head in plain])
    values = spectral(np.vstack([_norm_of_weights(head) * head.values for head in plain]))
    apart = values + math.hypot(*(_key_part(head) for head in plain))
    return found + [
        (factor * np.sqrt(c) + error) ** 2 for c in (*stacked, np.full(m, apart * apart))
    ]


def _norm_of_weights(head: Evaluated) -> float:
    return spectral(np.stack([row.p for row in head.rows]))


def _key_part(head: Evaluated) -> float:
    """The part of the derivative that runs through the keys, alone."""
    alone = head._replace(values=np.zeros_like(head.values))
    return math.sqrt(min(float(column.max()) for column in columns([part(alone)])))
