"""Norms of weights from above, the costly ones kept under the content of the weights."""

from __future__ import annotations

import torch

from taut._base import matrix_norm
from taut._base.matrix_norm import Matrix
from taut.networks.weight_cache import cached


def spectral(*blocks: torch.Tensor, scales: tuple[float, ...] | None = None) -> float:
    """Spectral norm of a matrix, or of several stacked on top of each other, each with its factor.

    Blocks are stacked along their outputs (rows); a transposed matrix has the same norm.
    """
    factors = [1.0] * len(blocks) if scales is None else list(scales)
    what = f"spectral {[factor.hex() for factor in factors]}"

    def compute(*own: torch.Tensor) -> float:
        return matrix_norm.spectral_of_stack([host(block) for block in own], factors)

    return cached(what, blocks, compute)


def spectral_product(left: torch.Tensor, right: torch.Tensor) -> float:
    """Spectral norm of the product of two matrices."""

    def compute(*own: torch.Tensor) -> float:
        return matrix_norm.spectral_of_product(*(host(factor) for factor in own))

    return cached("product", (left, right), compute)


def frobenius(weight: torch.Tensor) -> float:
    """Root of the sum of squares of all entries."""
    return matrix_norm.frobenius(host(weight))


def longest_row(weight: torch.Tensor) -> float:
    """Length of the longest row."""
    return float(matrix_norm.lengths(host(weight)).max())


def length(vector: torch.Tensor | None) -> float:
    """l2 norm of a vector, such as a bias; 0 for one that is not there."""
    return 0.0 if vector is None else matrix_norm.frobenius(host(vector))


def largest(vector: torch.Tensor | None) -> float:
    """Largest absolute entry; 1 for a gain that is not there."""
    return 1.0 if vector is None else float(vector.detach().double().abs().max())


def host(tensor: torch.Tensor) -> Matrix:
    """The values as float64 in main memory, where the error analysis of the norms holds."""
    return tensor.detach().to("cpu", torch.float64).numpy()
