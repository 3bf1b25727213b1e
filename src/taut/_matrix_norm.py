"""Induced norms of a matrix from above, for certificates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Matrix = np.ndarray[Any, np.dtype[Any]]


def matrix_norm(matrices: Matrix, p: float) -> Matrix:
    """Upper bound on the p-norm of each matrix (..., n, m), tight for p = 1, 2 and ∞.

    For other p the norm is hard to compute; Riesz and Thorin bound it by ‖A‖₂^θ ‖A‖_e^(1−θ), e
    being 1 or ∞, whichever lies on the side of p.
    """
    eps = float(np.finfo(matrices.dtype).eps)
    n, m = matrices.shape[-2:]
    if p in (1, math.inf):
        axis, terms = (-2, n) if p == 1 else (-1, m)
        sums = np.max(np.sum(np.abs(matrices), axis=axis), axis=-1)
        return np.asarray(sums * (1 + (terms + 4) * eps))
    # LAPACK's singular values err by a modest multiple of eps‖A‖; this allows for 8 max(n, m).
    two = np.linalg.svd(matrices, compute_uv=False)[..., 0] * (1 + 8 * max(n, m) * eps)
    if p == 2:
        return np.asarray(two)
    end = 1.0 if p < 2 else math.inf
    theta = 2 - 2 / p if p < 2 else 2 / p
    return np.asarray(two**theta * matrix_norm(matrices, end) ** (1 - theta) * (1 + 16 * eps))
