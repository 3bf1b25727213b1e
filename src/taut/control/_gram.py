"""‖WᵀW − I‖²_F and its derivative, from the smaller Gram matrix (theorem ortho-gram).

For W of size m×n, ‖WᵀW − I_n‖² = ‖WWᵀ − I_m‖² + (n − m): whichever is smaller is formed, and the
constant added. Several matrices with equally many columns may stand below each other: their Gram
matrices add up, and they are never joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Gram(torch.autograd.Function):
    """The penalty of matrices that stand below each other."""

    @staticmethod
    def forward(ctx: Any, *matrices: torch.Tensor) -> torch.Tensor:
        """The value; what is kept is one small square matrix."""
        with exactly(matrices):
            value, rest = gram(matrices)
        ctx.save_for_backward(rest, *matrices)
        return value

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """4W(WᵀW − I)."""
        rest, *matrices = ctx.saved_tensors
        with exactly(matrices):
            pairs = (factors(matrix, rest) for matrix in matrices)
            return tuple((4 * given[0]) * (left @ right) for left, right in pairs)


def exactly(matrices: Sequence[torch.Tensor]) -> torch.autocast:
    """Autocast would round the products to half precision."""
    return torch.autocast(matrices[0].device.type, enabled=False)


def gram(matrices: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """‖WᵀW − I‖²_F, and the smaller of WᵀW − I and WWᵀ − I."""
    columns = matrices[0].shape[1]
    rows = sum(len(matrix) for matrix in matrices)
    if len(matrices) == 1 and rows < columns:
        rest, more = product(matrices[0].mT), columns - rows
    else:
        rest, more = sum(map(product, matrices[1:]), product(matrices[0])), 0
    rest.diagonal().sub_(1.0)
    return rest.square().sum() + more, rest


def product(w: torch.Tensor, *, triangular: bool = False) -> torch.Tensor:
    """WᵀW; of large ones only the blocks from the diagonal on, and the others are copied.

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


def factors(matrix: torch.Tensor, rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices whose product is a quarter of the derivative with respect to the first one."""
    return (matrix, rest) if len(rest) == matrix.shape[1] else (rest, matrix)
