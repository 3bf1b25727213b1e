"""Spectral norms of weights from above, kept under what the weights are.

σ² is the largest eigenvalue of the smaller Gram matrix. In float64 the product errs by at most
(inner dimension)·eps·‖W‖_F² and the symmetric eigenvalue solver by a modest multiple of
eps·‖W‖_F², so σ² + (inner + 16·size)·eps·‖W‖_F² is never below the truth. Power iteration would be.
"""

from __future__ import annotations

import math

import torch

from taut.torch._cache import cached

EPS = 2.0**-52


def spectral(*blocks: torch.Tensor, scales: tuple[float, ...] | None = None) -> float:
    """Norm of a matrix, or of several stacked on top of each other, each with its factor.

    Blocks are stacked along their outputs (rows); a transposed matrix has the same norm.
    """
    scales = tuple(1.0 for _ in blocks) if scales is None else scales
    what = f"spectral {[scale.hex() for scale in scales]}"
    return cached(what, blocks, lambda *own: _stacked(own, scales))


def spectral_product(left: torch.Tensor, right: torch.Tensor) -> float:
    """Norm of the product of two matrices."""

    def compute(left: torch.Tensor, right: torch.Tensor) -> float:
        a, b = left.detach().double(), right.detach().double()
        rounding = 2 * EPS * (a.shape[1] + 1) * float(a.norm()) * float(b.norm())
        return (_norm(a @ b) + rounding) * (1 + 8 * EPS)

    return cached("product", (left, right), compute)


def frobenius(weight: torch.Tensor) -> float:
    """Root of the sum of squares of all entries, from above."""
    return float(weight.detach().double().norm()) * (1 + (weight.numel() + 8) * EPS)


def rows(weight: torch.Tensor) -> torch.Tensor:
    """Length of every row, from above."""
    lengths: torch.Tensor = weight.detach().double().norm(dim=1)
    return lengths * (1 + (weight.shape[1] + 8) * EPS)


def length(vector: torch.Tensor | None) -> float:
    """l2 norm of a vector, such as a bias, from above."""
    if vector is None:
        return 0.0
    return float(vector.detach().double().norm()) * (1 + (vector.numel() + 8) * EPS)


def largest(vector: torch.Tensor | None) -> float:
    """Largest absolute entry; 1 for a gain that is not there."""
    return 1.0 if vector is None else float(vector.detach().double().abs().max())


def _stacked(blocks: tuple[torch.Tensor, ...], scales: tuple[float, ...]) -> float:
    scaled = [block.detach().double() * scale for block, scale in zip(blocks, scales, strict=True)]
    return _norm(torch.cat(scaled)) * (1 + 4 * EPS)


def _norm(matrix: torch.Tensor) -> float:
    if not bool(torch.isfinite(matrix).all()):
        return math.inf
    biggest = float(matrix.abs().max()) if matrix.numel() else 0.0
    if biggest == 0:
        return 0.0
    unit = matrix / biggest  # so that squares neither overflow nor underflow
    gram = unit.mT @ unit if unit.shape[0] >= unit.shape[1] else unit @ unit.mT
    size, inner = gram.shape[0], max(unit.shape)
    slack = (inner + 16 * size + 8) * EPS * float(gram.diagonal().sum())
    largest_eigenvalue = float(torch.linalg.eigvalsh(gram)[-1])
    return math.sqrt(max(largest_eigenvalue, 0.0) + slack) * biggest * (1 + 8 * EPS)
