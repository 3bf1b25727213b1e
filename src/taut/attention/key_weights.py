"""Bounds on the derivative in keys and values, from one positive weight for each token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taut._base.matrix_norm import Matrix, largest_eigenvalues
from taut.attention.head_at_tokens import Evaluated, Row

ROUNDS = 4
# The weights of the queries, and κ² of each query as a function of the weights w of the tokens.
Part = tuple[Matrix, Callable[[Matrix], Matrix]]


def energies(head: Evaluated, weights: Matrix) -> Matrix:
    """κᵢ² = ‖Σⱼ Pᵢⱼ wⱼ (Wv + cᵢⱼDⱼgᵢⱼᵀ)(Wv + cᵢⱼDⱼgᵢⱼᵀ)ᵀ‖ for each i (theorem attn-local)."""
    plain = head.values @ head.values.T
    grams = np.stack([_gram(row, head.values, plain, weights) for row in head.rows])
    return largest_eigenvalues(grams)


def _gram(row: Row, values: Matrix, plain: Matrix, weights: Matrix) -> Matrix:
    heavy = row.p * weights
    length = np.sum(row.gradient**2, axis=1)
    square = (row.spread * (heavy * row.c**2 * length)[:, None]).T @ row.spread
    seen = np.broadcast_to(row.gradient @ values.T, row.spread.shape)
    cross = (seen * (heavy * row.c)[:, None]).T @ row.spread
    return np.asarray(heavy.sum() * plain + square + cross + cross.T)


def part(head: Evaluated) -> Part:
    """One head, for :func:`columns`."""
    return np.stack([row.p for row in head.rows]), lambda weights: energies(head, weights)


def columns(parts: list[Part]) -> list[Matrix]:
    """For several weights w, the sums Σᵢ Pᵢⱼ κᵢ²/wⱼ over all parts; the maximum bounds ‖·‖².

    w = 1 comes first. The next ones follow the power method for the Perron vector, which lowers the
    maximum; any positive w is valid, so the number of rounds is a matter of effort only.
    """
    m = parts[0][0].shape[1]
    weights, found = np.ones(m), []
    for _ in range(ROUNDS):
        total = np.zeros(m)
        for p, energy in parts:
            total += energy(weights) @ p
        found.append(total / weights)
        weights = np.maximum(total, 1e-3 * total.max())
        if not 0 < weights.max() < np.inf:
            break
        weights = weights / weights.max()
    return found


def together(column: Matrix, query: Matrix | None) -> float:
    """Bound on ‖T + G‖ where ‖Gᵢ dx‖² adds up to column·‖dx‖² and T has the norms ``query``.

    (a + b)² ≤ (1 + θ)a² + (1 + 1/θ)b² for every θ > 0, and then one maximum over the tokens.
    """
    largest = float(column.max())
    if query is None:
        return float(np.sqrt(largest))
    square = query**2
    most = float(square.max())
    if not (largest > 0 and most > 0):
        return float((largest + most) ** 0.5)
    theta = (most / largest) ** 0.5 * np.concatenate([[1.0], 2.0 ** np.linspace(-6, 6, 97)])
    sides = (1 + theta[:, None]) * column + (1 + 1 / theta[:, None]) * square
    return float(np.sqrt(sides.max(axis=1).min()))
