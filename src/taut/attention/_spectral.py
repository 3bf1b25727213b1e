"""Spectral norms from above. Power iteration is a lower bound; here it is SVD with slack."""

from __future__ import annotations

import math

import numpy as np

from taut._array import quietly
from taut._bound import Bound, Norm, lp
from taut._matrix_norm import matrix_norm
from taut._rounding import product, round_up, sum_up
from taut.attention._inputs import Matrix

EPS = 2.0**-52
TOKEN = Norm("largest token l2", "largest token l2")
FROBENIUS = lp(2)


@quietly
def spectral(matrix: Matrix) -> float:
    """Upper bound on the largest singular value, infinite where numbers overflow."""
    if not np.isfinite(matrix).all():
        return math.inf
    return float(round_up(float(matrix_norm(matrix, 2))))


@quietly
def spectral_of_product(*factors: Matrix) -> float:
    """Upper bound on the norm of a product: its SVD, plus what multiplying may have rounded."""
    result, sizes, inner = factors[0], float(np.linalg.norm(factors[0])), 0
    for factor in factors[1:]:
        inner += factor.shape[0] + 1
        result = result @ factor
        sizes *= float(np.linalg.norm(factor))
    apart = times(*(spectral(factor) for factor in factors))
    return min(apart, plus(spectral(result), round_up(2 * EPS * inner * sizes)))


def times(*numbers: float) -> float:
    """Product of numbers ≥ 0, rounded up."""
    total = 1.0
    for number in numbers:
        total = float(product(total, float(number), up=True)) if total and number else 0.0
    return total


def plus(*numbers: float) -> float:
    """Sum of numbers ≥ 0, rounded up."""
    total = 0.0
    for number in numbers:
        total = float(sum_up(total, float(number)))
    return total


def root(number: float) -> float:
    """Square root, rounded up."""
    return float(round_up(math.sqrt(number))) if math.isfinite(number) else math.inf


def hypotenuse(*numbers: float) -> float:
    """Root of the sum of squares, rounded up, free of overflow on the way."""
    if not all(math.isfinite(number) for number in numbers):
        return math.inf
    return float(round_up(math.hypot(*numbers), 4 * EPS))


def bounded(upper: float, norm: Norm, domain: str, theorem: str | tuple[str, ...]) -> Bound:
    """An upper bound with its provenance; a constant that overflowed says nothing."""
    upper = math.inf if math.isnan(upper) else float(upper)
    return Bound(0.0, upper, "upper", norm, domain, theorem)
