"""The nearest matrix that is orthogonal, or whose singular values have a limit."""

from __future__ import annotations

import torch

MARGIN = 4e-6  # singular values stay below the limit by this share, so that rounding cannot pass it


def nearest_orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest matrix with all singular values 1: the polar factor."""
    left, _, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    found: torch.Tensor = left @ right
    return found.to(matrix.dtype)


def nearest_within(matrix: torch.Tensor, limit: float) -> torch.Tensor:
    """The nearest matrix whose singular values stay below the limit by a small margin."""
    if _at_most(matrix, limit):
        return matrix
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT
    wide = tall.double() / limit
    # Squares of singular values and their directions, less than half the work of the values.
    squares, directions = torch.linalg.eigh(wide.mT @ wide)
    if float(squares[-1]) > 1e8:  # then those near the limit drown in rounding
        left, values, right = torch.linalg.svd(wide, full_matrices=False)
        found = (left * values.clamp(max=1 - MARGIN)) @ right
    else:
        over = squares > (1 - MARGIN) ** 2
        if not bool(over.any()):
            return matrix
        shrink = 1 - (1 - MARGIN) * squares[over].rsqrt()
        some = directions[:, over]
        found = wide - ((wide @ some) * shrink) @ some.mT
    found = (found * limit).to(matrix.dtype)
    result: torch.Tensor = found if tall is matrix else found.mT
    return result


def _at_most(matrix: torch.Tensor, limit: float) -> bool:
    """Whether σ^8 ≤ ‖(WᵀW)^4‖_F proves it: products cost less than a decomposition."""
    small = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT
    small = small / limit  # first, so that small numbers do not vanish in the products
    gram = small.mT @ small
    power = (gram @ gram) @ (gram @ gram)
    return float(power.norm()) < 0.99  # the margin covers rounding many times
