"""The nearest matrix that is orthogonal, or whose singular values have a limit."""

from __future__ import annotations

import math

import torch

FAR = 1e4  # above so many times the limit, squares of those near the limit drown in rounding
MARGIN = 4e-6  # singular values stay below the limit by this share, so that rounding cannot pass it


def nearest_orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest matrix with all singular values 1: the polar factor."""
    left, _, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    found: torch.Tensor = left @ right
    return found.to(matrix.dtype)


def nearest_within(matrix: torch.Tensor, limit: float) -> torch.Tensor:
    """The nearest matrix whose singular values stay below the limit by a small margin."""
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT
    # Rounding to single precision adds at most half an eps for each of the singular values.
    below = 1 - max(MARGIN, float(torch.finfo(matrix.dtype).eps) * math.sqrt(tall.shape[1]))
    wide = tall.double()
    if float(wide.abs().max()) > FAR * limit:
        found = _cut(wide, below, limit)
    else:
        wide = wide / limit
        # Squares of singular values and their directions, less than half the work of the values.
        squares, directions = torch.linalg.eigh(wide.mT @ wide)
        over = squares > below**2
        if not bool(over.any()):
            return matrix
        if float(squares[-1]) > FAR**2:
            found = _cut(wide, below, 1.0)
        else:
            shrink = 1 - below * squares[over].rsqrt()
            some = directions[:, over]
            found = wide - ((wide @ some) * shrink) @ some.mT
    found = (found * limit).to(matrix.dtype)
    result: torch.Tensor = found if tall is matrix else found.mT
    return result


def _cut(matrix: torch.Tensor, below: float, limit: float) -> torch.Tensor:
    """A matrix over a limit with its singular values cut, by a decomposition: no square overflows.

    A power of two brings its largest entry near 1. Where singular values then overflow, they are
    far above the limit.
    """
    exponent = math.frexp(float(matrix.abs().max()))[1]
    scaled = torch.ldexp(matrix, torch.tensor(-exponent))
    left, values, right = torch.linalg.svd(scaled, full_matrices=False)
    values = torch.ldexp(values / limit, torch.tensor(exponent))
    found: torch.Tensor = (left * values.clamp(max=below)) @ right
    return found
