"""Singular values brought below a limit by products alone (theorem cap-polynomial).

W − a·W(WᵀW)^k has the singular values p(σ) = σ − a·σ^(2k+1). If all σ are at most Λ, and Λ at most
(2k + 1)/(2k) times the target μ, then a = (Λ − μ)/Λ^(2k+1) makes p increasing on [0, Λ] with
p(Λ) = μ: nothing exceeds the target, and the order of singular values is kept. k = 1 is the soft
cap, the cheapest one. The larger k, the less the others move: powers of two up to 32 cost one
product of small matrices each, and come close to cutting. Newhouse et al. 2025 (arXiv 2507.13338)
had the idea; their polynomials are others, and what they leave above the limit is not bounded.
"""

from __future__ import annotations

import numpy as np
import torch

from taut._base.rounding import EPS, enlarged, plus, times
from taut.control.constraints.proved_norms import (
    Grams,
    Numbers,
    absolute_squares,
    frobenius,
    gamma,
    unit,
)


def reach(power: int) -> float:
    """How many times the target the largest singular value may be."""
    return 1 + 1 / (2 * power)


def polynomial_cap(
    stack: torch.Tensor,
    found: Grams,
    norms: Numbers,
    limit: float,
    kept: torch.dtype,
    power: int,
) -> tuple[torch.Tensor, Numbers]:
    """Cap tall matrices (b, m, n) whose largest singular values are at most ``norms``.

    Returns them with upper bounds on their largest singular values once they are ``kept``, which
    are at most ``limit``; NaN where ``norms`` is out of reach. The target lies below the limit by
    what rounding can add.

    With T = XᵀX and P_k the matrix computed for T^k, ‖P_k − T^k‖ ≤ d_k, where d_1 is the error of
    the Gram matrix and d_2k = d_k(2‖T‖^k + d_k) + γ‖|P_k|‖². The result is X − XC with C = a·P_k
    rounded. So it is off by a‖X‖d_k, by γ‖X‖_F‖C‖_F for C and the product, and by
    u(‖X‖_F + ‖XC‖_F) for the difference, and again if it is rounded to be kept.
    """
    dtype, size = stack.dtype, stack.shape[2]
    powered, error = found.products, found.errors
    for exponent in _doubled(power):
        lost = times(gamma(size + 1, dtype), absolute_squares(powered))
        error = plus(times(error, plus(2 * _power(norms, 2 * exponent), error)), lost)
        powered = torch.bmm(powered, powered)
    whole, sums = frobenius(stack), frobenius(powered)

    def rounding(factors: Numbers) -> Numbers:
        """What is added to p(σ) at most."""
        size_of_c = times(enlarged(factors, 8), sums, 1 + 8 * unit(dtype))
        return plus(
            times(enlarged(factors, 8), norms, error),
            times(gamma(size + 6, dtype), whole, size_of_c),
            times(2 * unit(dtype) + 2 * unit(kept), plus(whole, times(whole, size_of_c))),
            size * stack.shape[1] * float(torch.finfo(dtype).tiny),  # underflow
        )

    below = limit * (1 - 256 * power * EPS)  # a and p(Λ) are rounded too
    target = below - 1.25 * rounding(_factors(norms, below, power))  # the factor grows a little
    target = np.where(norms <= reach(power) * target, target, np.nan)
    factors = _factors(norms, target, power)
    scaled = powered * torch.from_numpy(factors).to(powered)[:, None, None]
    result = stack - torch.bmm(stack, scaled)
    bounds = plus(enlarged(target, 64 * power), rounding(factors))
    return result.to(kept), np.where(np.isnan(target), np.nan, bounds)


def _factors(norms: Numbers, target: Numbers | float, power: int) -> Numbers:
    return np.asarray(np.maximum(norms - target, 0.0) / norms ** (2 * power + 1))


def _power(values: Numbers, exponent: int) -> Numbers:
    return np.asarray(enlarged(values**exponent, 4 * exponent))


def _doubled(power: int) -> list[int]:
    """1, 2, 4, ... below a power of two."""
    return [1 << i for i in range(power.bit_length() - 1)]
