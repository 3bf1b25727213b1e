"""L2 attention at given tokens, or near them (theorem l2-attention).

For one head and one query, with P its weights, C their covariance, rⱼ = |uⱼ − uᵢ| and α the factor
of the scores, a change du moves the average m of u under P by

    Σⱼ Pⱼduⱼ + 2αC duᵢ − 2αΣⱼ Pⱼ(uⱼ − m)⟨uⱼ − uᵢ, duⱼ⟩.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from taut._base.rounding import EPS, enlarged
from taut.networks.operations.covariance_norm import spreads, stacked, sure

LIKELY = 1e-9  # weights below this are bounded one by one


class DistanceCentre(NamedTuple):
    """One head at its centre."""

    weights: torch.Tensor  # (tokens, tokens)
    u: torch.Tensor  # centred: distances do not change
    squares: torch.Tensor  # of the distances, as computed
    seen: torch.Tensor  # 1 where a token sees another, else 0
    scale: float  # α, from above
    term: float  # no fixed term of a score is larger


def distance_centre(
    u: torch.Tensor, scale: float, seen: torch.Tensor | None, bias: torch.Tensor | None = None
) -> DistanceCentre:
    """Weights of one head from u, (tokens, width); ``seen`` is True on its diagonal."""
    u = u - u.mean(dim=0)
    power = u.square().sum(dim=1)
    squares = (power[:, None] + power - 2 * (u @ u.mT)).clamp(min=0.0).fill_diagonal_(0.0)
    scores = -scale * squares if bias is None else bias - scale * squares
    term = 0.0 if bias is None else float(bias.abs().max())
    seen = torch.ones_like(squares, dtype=torch.bool) if seen is None else seen
    weights = torch.softmax(scores.masked_fill(~seen, -math.inf), dim=-1)
    return DistanceCentre(weights, u, squares, seen.double(), scale, term)


def near_distances(found: DistanceCentre, near: float, norm: str) -> float:
    """Constant of u ↦ m where no u is farther than ``near`` (δ) from that of the centre.

    Notes
    -----
    A score moves by at most Δⱼ = 4αδ(rⱼ + δ), that of the token itself not at all. By Jensen's
    inequality the sum of the exponentials falls by no more than the factor e^{−ΣPⱼΔⱼ}, so
    P′ⱼ ≤ Pⱼe^{Δⱼ + ΣPΔ}. For any g, P′ ≤ gP + (P′ − gP)₊, so that the variance under P′ is at most
    (√(gλ + Σ(P′ − gP)₊|uⱼ − m|²) + δ)² with λ = ‖C‖.

    Rounding: centring u has moved it by EPS·|u|, which counts as a distance. A squared distance
    errs by γ_{w+4} of (|uᵢ| + |uⱼ|)² ≤ 4 max|u|², a score by α times that, and the logarithm of a
    weight by twice as much, γ_{n+8} for the sum of the exponentials, and three units of the bias.
    """
    weights, u, squares, seen, scale, term = found
    n, w = u.shape
    alpha = scale * (1 + 2 * EPS)
    longest = float(u.norm(dim=1).max()) * (1 + (w + 8) * EPS)
    near = near + 2 * EPS * longest
    lost = 8 * (w + 8) * EPS * longest**2
    slack = math.expm1(min(4 * (alpha * lost + (n + 16 + 4 * term) * EPS), 700.0))
    far = (squares + lost).sqrt().fill_diagonal_(0.0)
    change = 4 * alpha * near * (far + near).fill_diagonal_(0.0) * (1 + 16 * EPS)
    fall = (weights * change).sum(dim=1, keepdim=True) * (1 + slack)
    likely = torch.where(weights > LIKELY, change, 0.0).amax(dim=1, keepdim=True)
    growth = torch.exp(fall + likely) * (1 + 8 * EPS)
    # 1e-300 stands for weights that were too small to be stored.
    heavy = (weights + 1e-300) * (1 + slack) * torch.exp(change + fall) * (1 + 8 * EPS)
    heavy = sure(heavy).clamp(max=1.0) * seen
    rest = (heavy - growth * weights).clamp(min=0.0).sum(dim=1) * (2 * longest) ** 2
    spread = growth[:, 0] * (1 + slack) * spreads(weights, u, weights @ u) + rest
    spread = sure((spread.sqrt() + near).square())
    moved = sure(heavy * (far + 2 * near).fill_diagonal_(0.0).square())
    units = 16 * (n + w + 16)
    if norm == "token":
        rows = 1 + 2 * alpha * spread + 2 * alpha * (spread * moved.sum(dim=1)).sqrt()
        return enlarged(float(sure(rows).max()), units)
    columns = float(sure(spread @ moved).max())
    parts = (stacked([heavy]), 2 * alpha * float(spread.max()), 2 * alpha * math.sqrt(columns))
    return enlarged(sum(parts), units)
