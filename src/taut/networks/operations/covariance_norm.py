"""Norms of covariances under attention weights, and of the weights themselves, from above."""

from __future__ import annotations

import math

import torch

from taut._base.rounding import EPS, enlarged
from taut.networks.float32_arithmetic import multiplies_float32_fully, without_autocast

AFFORDABLE = 1 << 26  # numbers in the second moments of one head; beyond, traces are taken
BLOCK = 64
LONG = 256  # keys, from which on second moments are summed in float32, if that can be trusted
SQUARINGS = 2


def sure(value: torch.Tensor) -> torch.Tensor:
    """Treat what is not a number as an infinite bound."""
    return torch.nan_to_num(value, nan=math.inf, posinf=math.inf)


@without_autocast()
def spreads(weights: torch.Tensor, values: torch.Tensor, mean: torch.Tensor | None) -> torch.Tensor:
    """Norm of the covariance of the values under each row of weights, from above.

    ``mean`` are the means, where they are known already, or zeros for second moments.

    Notes
    -----
    With m keys, G = Σ Pⱼvⱼvⱼᵀ is summed up entry by entry, so it errs by γ_{m+16} of a matrix of
    norm at most E|v|². In float32, from 256 keys on, this is by far the largest error; the 16 has
    the conversions. For the covariance under the exact weights, the mean as computed is as good as
    any point: its error, and that of ΣPⱼ = 1, cost 3γ_m of E|v|² more, always in float64.

    γ in float32 assumes products and sums as in IEEE 754. So float32 is used on the CPU only, with
    autocast off and all matrix products at their full precision, and float64 elsewhere.
    """
    n, m = weights.shape
    d = values.shape[1]
    largest = float(values.abs().max())
    if largest == 0 or not math.isfinite(largest):
        return weights.new_full((n,), 0.0 if largest == 0 else math.inf)
    values = values / largest  # so that no square overflows or vanishes
    mean = weights @ values if mean is None else mean / largest
    squares = values.square().sum(dim=1)
    power = weights @ squares
    if m * d * d > AFFORDABLE:  # the trace is never below the norm
        trace = (power - mean.square().sum(dim=1)).clamp(min=0.0)
        return _scaled(trace + 4 * EPS * (m + d) * power, largest)
    trusted = weights.device.type == "cpu" and multiplies_float32_fully()
    kind = torch.float32 if m >= LONG and trusted else torch.float64
    eps = torch.finfo(kind).eps
    sizes = power.to(kind).clamp(min=torch.finfo(kind).tiny)
    slack = ((m + 16) * eps + (2 * m + 32) * EPS) * power + 64 * m * d * torch.finfo(kind).tiny
    if kind == torch.float32:  # weights that it cannot hold
        slack = slack + torch.where(weights < 1e-30, weights, 0.0) @ squares
    p, v, centre = weights.to(kind), values.to(kind), mean.to(kind)
    products = (v[:, :, None] * v[:, None, :]).flatten(1)
    found = weights.new_empty(n)
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        seen = int(p[rows].any(dim=0).nonzero().max()) + 1  # the rest is 0 (a causal mask)
        gram = (p[rows, :seen] @ products[:seen]).reshape(-1, d, d)
        gram = torch.baddbmm(gram, centre[rows, :, None], centre[rows, None, :], alpha=-1)
        found[rows] = _largest_eigenvalue(gram, sizes[rows]).to(found.dtype)
    return _scaled(found * sizes + slack, largest)


def _scaled(value: torch.Tensor, factor: float) -> torch.Tensor:
    """Times factor², never 0: what underflows stays above the truth."""
    return sure(value * factor * factor).clamp(min=5e-324)


def _largest_eigenvalue(gram: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Norm of symmetric matrices over ``sizes``, their traces or more, from above.

    ‖A‖ ≤ ‖A^k‖_F^{1/k}, here for k = 4. What underflows is far below the error of the sums.

    Notes
    -----
    Let A be symmetric with top eigenvalue σ and unit eigenvector u, so that ‖A‖_F² ≤ dσ². Its
    square as computed is A² + E with ‖E‖ ≤ γ_d‖A‖_F² ≤ γ_d·dσ², and uᵀ(A² + E)²u ≥ σ⁴(1 − 2γ_d·d).
    Squaring again errs by γ_d·d of σ⁴, and the Frobenius norm by γ_{d²}. The fourth root divides
    all this by four, which leaves less than d²·EPS.
    """
    unit = (gram + gram.mT) / (2 * sizes[:, None, None])
    for _ in range(SQUARINGS):
        unit = unit @ unit
    power: torch.Tensor = unit.flatten(1).norm(dim=1) ** (0.5**SQUARINGS)
    d = gram.shape[-1]
    return power * (1 + torch.finfo(gram.dtype).eps * (d + 32) * d)


def stacked(rows: list[torch.Tensor], rounds: int = 3) -> float:
    """Norm of matrices ≥ 0 stacked on top of each other, from above.

    For every w > 0, ‖P‖² ≤ maxⱼ (PᵀPw)ⱼ/wⱼ (Collatz and Wielandt); the power method finds a good w.
    Sums of terms ≥ 0 err by γ of their number, relative to themselves.
    """
    w = rows[0].new_ones(rows[0].shape[1])
    best = math.inf
    for _ in range(rounds):
        image = sum((p.mT @ (p @ w) for p in rows), torch.zeros_like(w))
        best = min(best, float((image / w).max()))
        top = float(image.max())
        if not 0 < top < math.inf:
            break
        w = (image / top).clamp(min=1e-3)
    return enlarged(math.sqrt(best), 8 * (sum(rows[0].shape) + len(rows)))
