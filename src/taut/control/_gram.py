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
        with _exactly(matrices):
            value, rest = gram(matrices)
        ctx.save_for_backward(rest, *matrices)
        return value

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """4W(WᵀW − I)."""
        rest, *matrices = ctx.saved_tensors
        with _exactly(matrices):
            return tuple(given[0] * slope for slope in slopes(matrices, rest))


def _exactly(matrices: Sequence[torch.Tensor]) -> torch.autocast:
    """Autocast would round the products to half precision."""
    return torch.autocast(matrices[0].device.type, enabled=False)


def gram(matrices: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """‖WᵀW − I‖²_F, and the smaller of WᵀW − I and WWᵀ − I."""
    columns = matrices[0].shape[1]
    rows = sum(len(matrix) for matrix in matrices)
    if len(matrices) == 1 and rows < columns:
        rest, more = matrices[0] @ matrices[0].mT, columns - rows
    else:
        rest, more = sum((w.mT @ w for w in matrices[1:]), matrices[0].mT @ matrices[0]), 0
    rest.diagonal().sub_(1.0)
    return rest.square().sum() + more, rest


def slopes(matrices: Sequence[torch.Tensor], rest: torch.Tensor) -> list[torch.Tensor]:
    """The derivative with respect to each matrix."""
    if len(matrices) == 1 and len(matrices[0]) < matrices[0].shape[1]:
        return [4 * (rest @ matrices[0])]
    return [4 * (matrix @ rest) for matrix in matrices]
