"""Ellipsoids {Lz : |z|₂ ≤ 1}, each as its matrix LLᵀ (theorem ellipsoid-algebra).

A matrix that is larger in the order of positive semidefinite matrices is a larger ellipsoid, so
that rounding is paid for by a multiple of the identity.
"""

from __future__ import annotations

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.node import UnboundedError

TINY = 1e-30  # entries of a power so much smaller than the largest are dropped

NEGLIGIBLE = 1e-4  # share of a series, squared, that its rest may have


def widened(matrix: torch.Tensor, terms: float, size: torch.Tensor | None = None) -> torch.Tensor:
    """The matrix with room for its rounding.

    Entry ij errs by less than ``4·terms·EPS·√(size_i size_j)``, ``size`` being the diagonal unless
    it is given: an error whose largest eigenvalue is at most that of the sum of the sizes.
    """
    return widen(matrix.clone(), terms, size)


def widen(matrix: torch.Tensor, terms: float, size: torch.Tensor | None = None) -> torch.Tensor:
    """The same in place, for a matrix that nobody else reads."""
    total = (matrix.diagonal() if size is None else size).sum()
    if not bool(total.isfinite()):
        raise UnboundedError
    matrix.diagonal().add_(8 * (terms + len(matrix)) * EPS * total)
    return matrix


def summed(*parts: torch.Tensor) -> torch.Tensor:
    """An ellipsoid around the sum of ellipsoids; weights that suit their sizes."""
    sizes = [float(part.diagonal().sum().clamp(min=0.0)) ** 0.5 for part in parts]
    whole = sum(sizes)
    found = torch.zeros_like(parts[0])
    for part, size in zip(parts, sizes, strict=True):
        if size > 0:
            found.add_(part, alpha=whole / size)
    return widen(found, 8)


def smaller(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Of two ellipsoids around the same set the one with the smaller trace."""
    return one if float(one.diagonal().sum()) <= float(other.diagonal().sum()) else other


def box(radius: torch.Tensor) -> torch.Tensor:
    """An ellipsoid around a box: the diagonal is a sum of intervals."""
    return torch.diag(radius * radius.sum() * (1 + 1e-9))


def series(
    matrix: torch.Tensor, coefficients: list[torch.Tensor], rests: list[torch.Tensor], first: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A power series of x in an ellipsoid, entry by entry: its first term, and all others.

    Parameters
    ----------
    coefficients
        Those of the powers of each entry, from ``first`` on.
    rests
        How much is left after each of them, from the second on; the series ends with the first
        that does not matter.
    """
    power = matrix if first == 1 else matrix**first
    found = widen(scaled(power, coefficients[0]), 8 * first)
    size = float(found.diagonal().sum())
    parts = []
    for factor, rest in zip(coefficients[1:], rests, strict=True):
        first += 1
        power = power * matrix
        if first % 6 == 0:  # before anything underflows
            power = torch.where(power.abs() < TINY * power.diagonal().max(), 0.0, power)
        parts.append(widen(scaled(power, factor), 8 * first))
        if float(rest.sum()) ** 2 < NEGLIGIBLE * size:
            break
    return found, summed(*parts, box(rest))


def scaled(matrix: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Rows and columns times numbers, in a new matrix."""
    return (factor[:, None] * matrix).mul_(factor)


def reach(matrix: torch.Tensor) -> torch.Tensor:
    """Largest value of every entry."""
    found: torch.Tensor = matrix.diagonal().clamp(min=0.0).sqrt() * (1 + 1e-9)
    return found


def factor(matrix: torch.Tensor) -> torch.Tensor:
    """L with LLᵀ at least the matrix: Cholesky's factor of a little more than it."""
    if not bool(matrix.any()):
        return matrix[:, :0]
    for more in (1.0, 1e2, 1e4):
        found: torch.Tensor
        found, failed = torch.linalg.cholesky_ex(widened(matrix, more * len(matrix)))
        if not bool(failed):
            return found
    raise UnboundedError
