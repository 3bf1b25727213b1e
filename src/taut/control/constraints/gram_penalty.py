"""‖WᵀW − I‖²_F and its derivative, from the smaller Gram matrix (theorem ortho-gram).

For W of size m×n, ‖WᵀW − I_n‖² = ‖WWᵀ − I_m‖² + (n − m): the smaller Gram matrix is formed, and the
constant is added. Several matrices with equally many columns may stand below each other: their Gram
matrices add up, and the matrices are never joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class GramPenalty(torch.autograd.Function):
    """The penalty of matrices that stand below each other."""

    @staticmethod
    def forward(ctx: Any, *matrices: torch.Tensor) -> torch.Tensor:
        """The value; one small square matrix is kept for the backward pass."""
        with without_autocast(matrices):
            value, rest = gram_penalty(matrices)
        ctx.save_for_backward(rest, *matrices)
        return value

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """4W(WᵀW − I)."""
        rest, *matrices = ctx.saved_tensors
        with without_autocast(matrices):
            pairs = (gradient_factors(matrix, rest) for matrix in matrices)
            return tuple((4 * given[0]) * (left @ right) for left, right in pairs)


def without_autocast(matrices: Sequence[torch.Tensor]) -> torch.autocast:
    """Autocast would round the products to half precision."""
    return torch.autocast(matrices[0].device.type, enabled=False)


def gram_penalty(matrices: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """‖WᵀW − I‖²_F, and the smaller of WᵀW − I and WWᵀ − I."""
    columns = matrices[0].shape[1]
    rows = sum(len(matrix) for matrix in matrices)
    if len(matrices) == 1 and rows < columns:
        rest, more = gram_matrix(matrices[0].mT), columns - rows
    else:
        rest, more = sum(map(gram_matrix, matrices[1:]), gram_matrix(matrices[0])), 0
    rest.diagonal().sub_(1.0)
    return rest.square().sum() + more, rest


def gram_matrix(w: torch.Tensor, *, triangular: bool = False) -> torch.Tensor:
    """WᵀW; of large ones only the blocks from the diagonal on are computed, and the rest is copied.

    ``triangular`` says that nothing stands above the diagonals of the matrices.
    """
    rows, n = w.shape[-2:]
    if n < 256 or rows < n:
        return w.mT @ w
    full = w.new_empty(*w.shape[:-2], n, n)
    for start in range(0, n, n // 4):
        block = slice(start, start + n // 4)
        used = w[..., start if triangular else 0 :, start:]
        full[..., block, start:] = used[..., : n // 4].mT @ used
        full[..., block.stop :, block] = full[..., block, block.stop :].mT
    return full


def gradient_factors(matrix: torch.Tensor, rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices whose product is a quarter of the derivative with respect to the first one."""
    return (matrix, rest) if len(rest) == matrix.shape[1] else (rest, matrix)
