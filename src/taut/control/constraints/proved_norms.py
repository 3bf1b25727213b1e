"""Upper bounds on the largest singular values of many matrices, proved in their own precision.

Training needs them at every step, so the products run in single precision and for all matrices of
a shape at once. The proof is that of ``taut._base.matrix_norm``, with the unit u of the precision:
a Gram matrix that was summed up in pieces errs by γ|X|ᵀ|X|, and if Cholesky's factorisation of
level²·I − G runs to its end, no eigenvalue of G is above level² by more than γ|R|ᵀ|R| (Higham 2002,
theorem 10.3; theorem spectral). Both are covered by :func:`absolute_squares`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from taut._base.array import quietly
from taut._base.rounding import enlarged, plus, root, times

Numbers = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]

PIECE = 256  # rows of a product that are summed at a time: a sum of k terms errs by ku
FINEST = 2.0**-9  # by how much more than its estimate a norm is tried at first
WIDEST = 1024  # columns up to which single precision proves something useful


class Grams(NamedTuple):
    """Gram matrices XᵀX (b, n, n) as computed, and how far each is from the exact one in l2."""

    products: torch.Tensor
    errors: Numbers


def unit(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number: the relative error of one operation."""
    return float(torch.finfo(dtype).eps) / 2


def gamma(terms: float, dtype: torch.dtype) -> float:
    """At least ku/(1 − ku), the relative error of a sum of k products in any order."""
    share = terms * unit(dtype)
    return math.inf if share > 0.5 else share / (1 - share) * (1 + 1e-12)


def grams(stack: torch.Tensor) -> Grams:
    """Gram matrices of tall matrices (b, m, n), in pieces of rows; half of each by symmetry."""
    count, rows, columns = stack.shape
    full = stack.new_empty(count, columns, columns)
    width = max(columns // 4, 64)
    for first in range(0, columns, width):
        block = slice(first, first + width)
        total = stack.new_zeros(count, min(width, columns - first), columns - first)
        for start in range(0, rows, PIECE):
            piece = stack[:, start : start + PIECE]
            total.baddbmm_(piece[:, :, block].mT, piece[:, :, first:])
        full[:, block, first:] = total
        full[:, first + width :, block] = total[:, :, width:].mT
    terms = min(PIECE, rows) + math.ceil(rows / PIECE) + 1
    # what underflows is below the smallest normal number, rows times in each of n² entries
    lost = rows * columns * float(torch.finfo(stack.dtype).tiny)
    return Grams(full, plus(times(gamma(terms, stack.dtype), absolute_squares(stack)), lost))


@quietly
def absolute_squares(stack: torch.Tensor) -> Numbers:
    """Upper bounds on ‖|A|‖₂² for each matrix: the smaller of ‖A‖_F² and ‖A‖₁‖A‖_∞."""
    sizes = stack.abs()
    more = 1 + 3 * gamma(sum(stack.shape[1:]), stack.dtype)
    in_columns, in_rows = sizes.sum(dim=1).amax(dim=1), sizes.sum(dim=2).amax(dim=1)
    product = _float64(in_columns) * _float64(in_rows) * more
    return np.asarray(enlarged(np.minimum(product, frobenius(sizes) ** 2), 4))


@quietly
def frobenius(stack: torch.Tensor) -> Numbers:
    """Upper bounds on ‖A‖_F for each matrix; squares that underflow count as the smallest."""
    rows, columns = stack.shape[1:]
    # Row by row: a sum of all squares at once could err by as many units.
    sums = np.square(_float64(torch.linalg.vector_norm(stack, dim=2))).sum(axis=1)
    lost = rows * columns * float(torch.finfo(stack.dtype).tiny)
    return np.asarray(
        enlarged(np.sqrt(sums * (1 + 2 * gamma(columns + 4, stack.dtype)) + lost), rows + 8)
    )


def proved_norms(found: Grams, enough: float, guesses: Numbers | None = None) -> Numbers:
    """Upper bounds on σ for each matrix: at most ``enough`` where that is true, else near σ.

    Those with a guess below ``enough`` are tried there first. A norm that is not at most ``enough``
    is estimated by power iteration, and tried from a little above the estimate on, further and
    further away until Cholesky's factorisation succeeds. Guesses and estimates only say where.
    """
    dtype = found.products.dtype
    size = found.products.shape[-1]
    slack = 1 - gamma(5 * size**1.5, dtype)  # what the factorisation usually costs
    norms = np.full(len(found.errors), np.inf)
    lower = norms if guesses is None else guesses
    for tried in (np.where(lower < enough, lower, 0.0), np.full_like(norms, enough)):
        left = np.flatnonzero(~(norms <= enough) & (tried > 0))
        if len(left):
            rest = _some(found, left)
            squares = np.maximum(tried[left] ** 2 * slack - rest.errors, 0.0)
            norms[left] = norms_at_most(rest, squares)
    left = np.flatnonzero(~(norms <= enough))
    if not len(left):
        return norms
    rest = _some(found, left)
    estimates = _estimated_squares(rest.products)
    more = FINEST
    while len(left):
        tried = norms_at_most(rest, estimates * (1 + more))
        norms[left] = np.minimum(norms[left], tried)
        more *= 2
        if more > 2.0**20:  # something is not finite
            break
        failed = np.flatnonzero(~np.isfinite(tried))
        rest = _some(rest, failed)
        left, estimates = left[failed], estimates[failed]
    return norms


def _some(found: Grams, rows: Indices) -> Grams:
    if len(rows) == len(found.errors):
        return found
    return Grams(found.products[torch.from_numpy(rows)], found.errors[rows])


def norms_at_most(found: Grams, squares: Numbers) -> Numbers:
    """Upper bounds on σ that follow if no eigenvalue of G is above a square; infinite if one is."""
    products = found.products
    size, dtype = products.shape[-1], products.dtype
    # as a number of that precision, so that only the subtraction on the diagonal rounds
    levels = torch.from_numpy(squares).to(products)
    shifted = torch.neg(products)
    shifted.diagonal(dim1=1, dim2=2).add_(levels[:, None])
    factors, failed = torch.linalg.cholesky_ex(shifted)
    error = times(gamma(size + 3, dtype), absolute_squares(factors))
    total = plus(_float64(levels), times(4 * unit(dtype), _float64(levels)), error, found.errors)
    good = (failed == 0).cpu().numpy() & np.isfinite(total) & (squares > 0)
    return np.where(good, root(np.where(good, total, 1.0)), np.inf)


def _estimated_squares(products: torch.Tensor) -> Numbers:
    """Largest eigenvalues by a few steps of power iteration: from below, and not proved."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(products.shape[-1], 2, generator=generator, dtype=torch.float64)
    vectors = start.to(products).expand(len(products), -1, -1)
    lengths = torch.ones(())
    for _ in range(10):
        vectors = torch.bmm(products, vectors / lengths)
        lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp_min(1e-30)
    return np.maximum(_float64(lengths.amax(dim=(1, 2))), 1e-30)


def _float64(values: torch.Tensor) -> Numbers:
    return values.detach().double().cpu().numpy()
