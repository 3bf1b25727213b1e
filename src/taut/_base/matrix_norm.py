"""Norms of matrices from above, for certificates: float64, proved by an error analysis.

In all proofs γ_k = ku/(1 − ku) with u = EPS/2, the bound on the relative error of a sum of k
products in any order (Higham 2002, section 3.1). γ_k ≤ k·EPS: the factor 2 that this gives away
pays for the rounding of the allowances themselves.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taut._base.array import quietly
from taut._base.rounding import EPS, TINY, enlarged, number, plus, root, shifted, times, up

Matrix = np.ndarray[Any, np.dtype[Any]]
SMALLEST_NORMAL = 2.0**-1022


@quietly
def matrix_norm(matrices: Matrix, p: float) -> Matrix:
    """Upper bound on the p-norm of each matrix (..., n, m), tight for p = 1, 2 and ∞.

    For p = 1 and ∞ sums of k absolute values err by γ_k. For other p the norm is hard to compute;
    Riesz and Thorin bound it by ‖A‖₂^θ ‖A‖_e^(1−θ), e being 1 or ∞, whichever lies on the side of
    p. Each exponent is rounded by at most EPS, which changes its power by |log| units.
    """
    matrices = np.asarray(matrices, dtype=np.float64)
    if p in (1, math.inf):
        axis = -2 if p == 1 else -1
        sums = np.max(np.sum(np.abs(matrices), axis=axis), axis=-1, initial=0.0)
        return np.asarray(enlarged(sums, matrices.shape[axis]))
    if p == 2:
        return spectral_norms(matrices)
    theta = 2 - 2 / p if p < 2 else 2 / p
    two, end = spectral_norms(matrices), matrix_norm(matrices, 1.0 if p < 2 else math.inf)
    mean = two**theta * end ** (1 - theta)
    units = (
        16
        + 2 * np.abs(np.log(np.where(two > 0, two, 1)))
        + 2 * np.abs(np.log(np.where(end > 0, end, 1)))
    )
    return np.asarray(enlarged(mean, units))


def spectral(matrix: Matrix) -> float:
    """Upper bound on the largest singular value of one matrix; infinite where it overflows."""
    return float(spectral_norms(matrix))


@quietly
def spectral_norms(matrices: Matrix) -> Matrix:
    """Upper bound on the largest singular value of each matrix (..., n, m).

    Proof. Scaling by a power of two is exact, and makes the largest entry at least 1/2, so that
    what underflows is far below EPS·σ². Let A be the matrix with the fewer columns of the two, A or
    its transpose, and G its Gram matrix as computed: |G − AᵀA| ≤ γ_k|A|ᵀ|A| for columns of length k
    and ‖|A|‖₂² ≤ min(‖A‖_F², ‖A‖₁‖A‖_∞). So σ² is at most :func:`largest_eigenvalues` of G plus
    that. Power iteration would be a lower bound.
    """
    matrices = np.asarray(matrices, dtype=np.float64)
    shape = matrices.shape[:-2]
    if matrices.size == 0:
        return np.zeros(shape)
    stack = matrices.reshape(-1, *matrices.shape[-2:])
    stack = stack if stack.shape[1] >= stack.shape[2] else stack.swapaxes(1, 2)
    largest = np.abs(stack).max(axis=(1, 2))
    good = np.isfinite(largest) & (largest > 0)
    power = np.frexp(np.where(good, largest, 1.0))[1]
    unit = np.ldexp(np.where(good[:, None, None], stack, 0.0), -power[:, None, None])
    gram = unit.swapaxes(1, 2) @ unit
    allowed = times((stack.shape[1] + 2) * EPS, _absolute_square(unit))
    found = root(plus(largest_eigenvalues(gram), allowed))
    found = up(np.ldexp(found, power))
    return np.where(good, found, np.where(largest == 0, 0.0, np.inf)).reshape(shape)


@quietly
def largest_eigenvalues(matrices: Matrix) -> Matrix:
    """Upper bound on the largest eigenvalue of each positive semidefinite matrix (k, n, n).

    A trial value α a little above the computed eigenvalue is proved by factorising B = αI − G.

    Proof. If Cholesky's factorisation of B runs to its end, its factor satisfies RᵀR = B + E with
    |E| ≤ γ_(n+1)|R|ᵀ|R|, in whatever order LAPACK adds up (Higham 2002, theorem 10.3), one more for
    multiplying by reciprocals. As RᵀR has no negative eigenvalue, B has none below
    −γ_(n+2)·min(‖R‖_F², ‖R‖₁‖R‖_∞). Forming B rounds its diagonal by at most EPS·α. Only the lower
    triangle of the matrix is read.
    """
    size = matrices.shape[-1]
    top = np.linalg.eigvalsh(matrices)[:, -1]
    top = np.maximum(top, np.trace(matrices, axis1=1, axis2=2) / size)  # which it is never below
    for units in (8 * math.sqrt(size), 64.0 * size, 4096.0 * size * size):
        trial = enlarged(top, units) + 1e-300
        try:
            factor = np.linalg.cholesky(trial[:, None, None] * np.eye(size) - matrices)
        except np.linalg.LinAlgError:
            continue
        allowed = plus(times((size + 3) * EPS, _absolute_square(factor)), times(2 * EPS, trial))
        return np.asarray(plus(trial, allowed))
    if len(matrices) > 1:  # one of them spoils it for all
        halves = np.array_split(matrices, 2)
        return np.concatenate([largest_eigenvalues(half) for half in halves])
    lower = np.tril(np.abs(matrices))
    return np.asarray(matrix_norm(lower + np.tril(lower, -1).swapaxes(1, 2), 1))


def _absolute_square(stack: Matrix) -> Matrix:
    """Upper bound on ‖|A|‖₂² for each matrix: the smaller of ‖A‖_F² and ‖A‖₁‖A‖_∞."""
    square = enlarged(np.square(stack).sum(axis=(1, 2)), stack[0].size)
    product = times(matrix_norm(stack, 1), matrix_norm(stack, math.inf))
    return np.asarray(np.minimum(square, product))


@quietly
def spectral_of_product(*factors: Matrix) -> float:
    """Upper bound on the norm of a product of matrices.

    Proof. Each multiplication errs by γ_k‖A‖_F‖B‖_F in the Frobenius norm, k being the inner
    dimension, and what follows multiplies that by no more than its own Frobenius norm. A tall
    first factor is replaced by the small triangle of A = QR + D: ‖AX‖ ≤ ‖Q‖‖RX‖ + ‖D‖_F‖X‖_F,
    where the entries of D err by γ_k(|Q||R|) + u|D|. All factors are first scaled by powers of two,
    so that their largest entries are near 1: nothing overflows, and what underflows is far below
    the allowances.
    """
    units, powers = [], 0
    for factor in (np.asarray(factor, dtype=np.float64) for factor in factors):
        largest = float(np.abs(factor).max(initial=0.0))
        if not 0 < largest < math.inf:
            return times(*(spectral(factor) for factor in factors))
        power = math.frexp(largest)[1]
        units.append(np.ldexp(factor, -power))
        powers += power
    return float(shifted(_norm_of_product(tuple(units)), powers))


def _norm_of_product(factors: tuple[Matrix, ...]) -> float:
    first, rest = factors[0], factors[1:]
    if not rest:
        return spectral(first)
    sizes = [frobenius(factor) for factor in factors]
    if first.shape[0] > first.shape[1]:
        q, r = np.linalg.qr(first)
        error = times((first.shape[1] + 2) * EPS, frobenius(q), frobenius(r))
        left_over: float = plus(enlarged(frobenius(first - q @ r), 2), error)
        folded = times(_norm_of_isometry(q), _norm_of_product((r, *rest)))
        return plus(folded, times(left_over, *sizes[1:]))
    if factors[-1].shape[1] > factors[-1].shape[0]:
        return _norm_of_product(tuple(factor.T for factor in reversed(factors)))
    result, inner = first, 0
    for factor in rest:
        inner += factor.shape[0] + 1
        result = result @ factor
    return plus(spectral(result), times(inner * EPS, *sizes))


def _norm_of_isometry(q: Matrix) -> float:
    """Upper bound on ‖Q‖ where QᵀQ is nearly I: ‖Q‖² ≤ 1 + ‖QᵀQ − I‖_F, the product as computed.

    Its entries err by γ_k|Q|ᵀ|Q|, and subtracting I by u times the difference.
    """
    apart = enlarged(frobenius(q.T @ q - np.eye(q.shape[1])), 2)
    size = frobenius(q)
    square: float = plus(1.0, apart, times((q.shape[0] + 2) * EPS, size, size))
    return root(square)


def spectral_of_stack(blocks: list[Matrix], scales: list[float]) -> float:
    """Upper bound on the norm of scaled matrices on top of each other.

    Multiplying errs by u times every entry, so by less than EPS times the Frobenius norm, and by
    less than the smallest float where it underflows.
    """
    stack = np.vstack([scale * block for scale, block in zip(scales, blocks, strict=True)])
    found = spectral(stack)
    if all(scale == 1.0 for scale in scales) or not any(np.any(block) for block in blocks):
        return found
    exact = all(math.frexp(scale)[0] == 0.5 for scale in scales)  # powers of two
    rounded = 0.0 if exact else times(EPS, frobenius(stack))
    tiny = bool((np.abs(stack) < SMALLEST_NORMAL).any())  # zeros may have been made by underflow
    return plus(found, rounded, times(TINY, float(stack.size)) if tiny else 0.0)


def frobenius(matrix: Matrix) -> float:
    """Root of the sum of the squares of all entries, from above."""
    return float(lengths(np.asarray(matrix).reshape(-1)))


@quietly
def lengths(vectors: Matrix) -> Any:
    """l2 norms along the last axis, from above.

    Scaled by a power of two no square overflows, and what underflows is below n·2^−1073 of a sum of
    at least 1/4. The sum errs by γ_n, halved by the root.
    """
    vectors = np.asarray(vectors, dtype=np.float64)
    largest = number(np.abs(vectors).max(axis=-1, initial=0.0))
    power = np.frexp(np.where(np.isfinite(largest), largest, 1.0))[1]
    unit = np.ldexp(vectors, -power[..., None])
    found = enlarged(np.sqrt(np.square(unit).sum(axis=-1)), vectors.shape[-1] / 2 + 2)
    return np.where(largest == 0, 0.0, up(np.ldexp(found, power)))
